"""The search finds a setting in the window where there is one, and the best of several kinds."""

from dataclasses import dataclass
from functools import partial

import pytest

from benchmarks.tuning import ROUNDS, Contestant, Family, Window


@dataclass(frozen=True)
class Score:
    fraction: float
    psnr: float


@dataclass(frozen=True)
class Setting:
    kind: str
    threshold: float


class Cache:
    """Computes less as the threshold rises, down to `least`; `quality` is its PSNR at 100 %."""

    def __init__(self, scale: float, least: float, quality: float) -> None:
        self.scale, self.least, self.quality = scale, least, quality

    def score(self, threshold: float) -> Score:
        fraction = max(self.least, 1 / (1 + threshold / self.scale))
        steps = round(fraction * 100) / 100  # as whole steps do
        return Score(steps, self.quality * steps)


CACHES = {"good": Cache(0.05, 0.4, 50.0), "poor": Cache(0.2, 0.2, 40.0)}


def contestant(fixed: tuple[Setting, ...] = ()) -> Contestant[Setting]:
    families = tuple(Family(partial(Setting, kind)) for kind in CACHES)
    return Contestant("caches", families, fixed)


class Bench:
    def __init__(self) -> None:
        self.asked: list[Setting] = []

    def measure(self, setting: Setting) -> Score:
        self.asked.append(setting)
        return CACHES[setting.kind].score(setting.threshold)

    @property
    def drawn(self) -> int:
        return len(set(self.asked))


@pytest.mark.parametrize("target", [0.9, 0.6, 0.45])
def test_the_best_kind_wins_inside_the_window(target):
    bench, window = Bench(), Window(target - 0.02, target)
    found = contestant().best(window, bench.measure)
    assert found is not None and found.kind == "good"
    assert window.holds(bench.measure(found).fraction)
    assert bench.drawn <= 2 * (ROUNDS + 1)


def test_a_kind_that_cannot_compute_so_little_is_left_out():
    bench = Bench()
    found = contestant().best(Window(0.28, 0.3), bench.measure)
    assert found is not None and found.kind == "poor"
    assert sum(setting.kind == "good" for setting in set(bench.asked)) == 1


def test_there_is_none_where_no_kind_gets_there():
    assert contestant().best(Window(0.05, 0.1), Bench().measure) is None


def test_there_is_none_between_two_steps():
    assert contestant().best(Window(0.601, 0.609), Bench().measure) is None


def test_a_fixed_setting_counts_only_inside_the_window():
    inside, outside = Setting("good", 0.0333), Setting("good", 0.0)
    window = Window(0.59, 0.61)
    bench = Bench()
    only_fixed: Contestant[Setting] = Contestant("fixed", fixed=(outside, inside))
    assert only_fixed.best(window, bench.measure) == inside
    assert bench.measure(outside).psnr > bench.measure(inside).psnr


def test_searches_share_what_they_tried():
    alone, shared, entrant = Bench(), Bench(), contestant()
    contestant().best(Window(0.58, 0.6), alone.measure)
    entrant.best(Window(0.6, 0.62), shared.measure)
    before = shared.drawn
    entrant.best(Window(0.58, 0.6), shared.measure)
    assert shared.drawn - before < alone.drawn
