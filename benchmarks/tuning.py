"""Settings of a step cache that compute a wanted share of the work. No tensors here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

THRESHOLDS = (0.003, 1.0)
ROUNDS = 8


class Measured(Protocol):
    @property
    def fraction(self) -> float:
        """Share of the work that was computed."""

    @property
    def psnr(self) -> float: ...


W = TypeVar("W")
Measure = Callable[[W], Measured]


class Window(NamedTuple):
    """Fractions from `low` to `high`."""

    low: float
    high: float

    def holds(self, fraction: float) -> bool:
        return self.low <= fraction <= self.high


class Family(Generic[W]):
    """Settings that differ in a threshold alone: more is predicted as it rises."""

    def __init__(self, make: Callable[[float], W]) -> None:
        self._make = make
        self._fractions: dict[float, float] = {}  # of the thresholds that were tried

    def tune(self, window: Window, measure: Measure[W]) -> W | None:
        """The best of the settings tried that lie in the window; tries more until there is one.

        Searches share what they tried. None where no threshold gives such a fraction.
        """
        self._try(THRESHOLDS[1], measure)
        for _ in range(ROUNDS):
            inside = [t for t, fraction in self._fractions.items() if window.holds(fraction)]
            if inside:
                return max(map(self._make, inside), key=lambda way: measure(way).psnr)
            threshold = self._between(window)
            if threshold is None:
                return None
            self._try(threshold, measure)
        return None

    def _try(self, threshold: float, measure: Measure[W]) -> None:
        self._fractions[threshold] = measure(self._make(threshold)).fraction

    def _between(self, window: Window) -> float | None:
        """Where a line from the nearest above the window to the nearest below meets its middle.

        The line is over the threshold's logarithm; both ends are kept away from, for it bends.
        """
        below = [item for item in self._fractions.items() if item[1] < window.low]
        above = [item for item in self._fractions.items() if item[1] > window.high]
        high, least = min(below, default=(0.0, 0.0))
        low, most = max(above, default=(THRESHOLDS[0], 1.0))
        if low >= high:
            return None
        share = (most - sum(window) / 2) / (most - least)
        return low * (high / low) ** min(max(share, 0.1), 0.9)


@dataclass(frozen=True)
class Contestant(Generic[W]):
    """All settings of one cache that may stand for it."""

    name: str
    families: tuple[Family[W], ...] = ()
    fixed: tuple[W, ...] = ()

    def best(self, window: Window, measure: Measure[W]) -> W | None:
        """The setting of highest PSNR of those inside the window; None where none is."""
        tuned = [family.tune(window, measure) for family in self.families]
        found = [way for way in tuned if way is not None]
        found += [way for way in self.fixed if window.holds(measure(way).fraction)]
        return max(found, key=lambda way: measure(way).psnr, default=None)
