"""The evaluation's figures: their bars, a table and a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmarks.report import machine
from training.rendering import Settings
from training.scoring import Verdict

BARS = {
    "background": 0.97,
    "object": 0.90,
    "position": 0.90,
    "pair_objects": 0.75,
    "size": 0.85,
    "vae_psnr_db": 30.0,
    "judge_count": 0.97,
    "judge_pair_objects": 0.95,
    "variety": 0.5,
    "edit_gentle_ssim": 0.8,
    "edit_follows": 0.7,
    "edit_keeps_place": 0.7,
}
# Values that must not pass theirs: falls are shares, a colour's shift and a difference are levels.
LIMITS = {
    "steps_half_fall": 0.03,
    "unknown_words_fall": 0.02,
    "edit_gentle_colour_shift": 12.0,
    "edit_following_fall": 0.034,  # one picture of 30
    "edit_full_difference": 1.0,
}


@dataclass(frozen=True, slots=True)
class Score:
    """A figure; ``count`` is of how many pictures, ``ceiling`` that of drawings, where known."""

    name: str
    value: float
    count: int | None = None
    ceiling: float | None = None

    @property
    def bar(self) -> float | None:
        return BARS.get(self.name, LIMITS.get(self.name))

    @property
    def holds(self) -> bool:
        if self.name in LIMITS:
            return self.value <= LIMITS[self.name]
        return self.value >= BARS[self.name]


def table(scores: Sequence[Score]) -> str:
    """One line a score: its value, that of drawings, its bar, and whether it holds."""
    lines = []
    for score in scores:
        ceiling = "" if score.ceiling is None else f"{score.ceiling:.3f}"
        count = "" if score.count is None else f"n = {score.count}"
        bar, held = "", ""
        if score.bar is not None:
            bar = f"{'<=' if score.name in LIMITS else '>='} {score.bar:g}"
            held = "holds" if score.holds else "MISSED"
        lines.append(f"{score.name:28}{score.value:8.3f}{ceiling:>8}{count:>10}{bar:>10} {held}")
    return "\n".join([f"{'score':28}{'value':>8}{'drawn':>8}", *lines])


def json_line(
    scores: Sequence[Score], settings: Settings, mistakes: Sequence[Verdict], seconds: float
) -> str:
    """As benchmarks print it: a claim for each figure with a bar; beside them what went wrong."""
    claims = [
        {"name": s.name, "value": round(s.value, 4), "bar": s.bar, "holds": s.holds}
        for s in scores
        if s.bar is not None
    ]
    values = {
        "benchmark": "embedded-model",
        "machine": machine(),
        "settings": asdict(settings) | {"seconds": round(seconds)},
        "claims": claims,
        "rows": [asdict(score) for score in scores],
        "mistakes": [asdict(verdict) for verdict in mistakes],
    }
    return json.dumps(values)
