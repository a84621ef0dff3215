"""A training run's clock and its checkpoints: minutes spent, pauses, atomic saves, resume."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch

PAUSE_VARIABLE = "STUDIO_TRAINING_PAUSE_FILE"
SAVE_EVERY_S = 120.0


class Budget:
    """Counts the training time of a run in seconds; pauses and earlier processes included right.

    While the file that the environment variable ``STUDIO_TRAINING_PAUSE_FILE`` names exists,
    ``tick`` sleeps, and that time does not count.
    """

    def __init__(self, minutes: float, spent_s: float = 0.0) -> None:
        self.limit_s = minutes * 60
        self.spent_s = spent_s
        self._last = time.monotonic()
        self._saved_s = spent_s

    def tick(self) -> None:
        """To be called once a step."""
        now = time.monotonic()
        self.spent_s += now - self._last
        pause = os.environ.get(PAUSE_VARIABLE)
        while pause and Path(pause).exists():
            time.sleep(1.0)
        self._last = time.monotonic()

    @property
    def progress(self) -> float:
        """0 at the start, 1 when the minutes are used."""
        return min(1.0, self.spent_s / self.limit_s)

    @property
    def is_over(self) -> bool:
        return self.spent_s >= self.limit_s

    def is_save_due(self) -> bool:
        """True once in two minutes of training."""
        if self.spent_s - self._saved_s < SAVE_EVERY_S:
            return False
        self._saved_s = self.spent_s
        return True


def learning_rate(progress: float, warm: float = 0.03, flat: float = 0.5) -> float:
    """Factor of the peak rate: a short rise, a plateau until ``flat``, a linear fall to 2 %."""
    if progress < warm:
        return progress / warm + 1e-3
    return 1.0 if progress < flat else max(0.02, (1 - progress) / (1 - flat))


def save(path: Path, state: dict[str, Any]) -> None:
    """Write and rename, so that a reader or a kill never meets half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    torch.save(state, part)
    part.replace(path)


def load(path: Path) -> dict[str, Any]:
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state
