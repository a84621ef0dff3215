"""Measures the embedded model: what it draws of what is asked, and what changes that.

    python -m training.evaluate             # a table, a contact sheet, a line of JSON last
    python -m training.evaluate --edits     # image-to-image alone
    python -m training.evaluate --parts steps guidance

The prompts ask for combinations that training never drew. Beside each share stands what the judge
finds right in drawings of the same scenes: no model can score more.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import diffusers
import transformers

from benchmarks.report import machine
from pipelines.specs import find_spec
from training import autoencoder, budget, drawing, edits, judge, studies
from training.emoji import ICONS
from training.latents import RUNS
from training.prompts import AXES, Wish, held_out_wishes
from training.rendering import Editor, Renderer, Settings
from training.scoring import Critic, Verdict, shares
from training.sheet import Entry, contact_sheet

ASSETS = Path("assets/flux-emoji")
PROMPT_SEED = 7
PARTS = (
    *("prompts", "steps", "guidance", "negative", "variety", "sizes", "unknown", "strangers"),
    "edits",
)
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
    "edit_following_fall": 0.0,
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


class Evaluation:
    """Runs the parts that are asked for; each gives scores. The wishes are drawn at most once."""

    def __init__(self, bench: studies.Bench, folder: Path, icons: Path) -> None:
        self.bench, self.folder, self.icons = bench, folder, icons
        self.wishes = held_out_wishes(PROMPT_SEED)
        self.sections: list[tuple[str, Sequence[Entry]]] = []
        self._full: list[Verdict] = []

    def part(self, name: str) -> list[Score]:
        """The scores of one of PARTS."""
        bench, wishes = self.bench, self.wishes
        if name == "prompts":
            return self._prompts()
        if name == "strangers":
            return self._strangers()
        numbers: dict[str, Callable[[], studies.Numbers]] = {
            "steps": lambda: studies.half_steps(bench, wishes, self.full()),
            "guidance": lambda: studies.guidance(bench, wishes, self.full()),
            "negative": lambda: studies.negatives(bench),
            "variety": lambda: studies.variety(bench, wishes),
            "sizes": lambda: studies.sizes(bench, wishes),
            "unknown": lambda: studies.unknown_words(bench, wishes, self.full()),
            "edits": lambda: edits.scores(bench, Editor(self.folder)),
        }
        return _scores(numbers[name]())

    def full(self) -> list[Verdict]:
        """Of every wish at the asked settings."""
        if not self._full:
            pictures = self.bench.paint([wish.text for wish in self.wishes])
            self._full = self.bench.critic.verdicts(self.wishes, pictures)
            self.sections += [
                (axis, [e for w, e in self._entries(pictures) if w.axis == axis]) for axis in AXES
            ]
        return self._full

    def _entries(self, pictures: Sequence[Any]) -> list[tuple[Wish, Entry]]:
        rows = zip(self.wishes, self._full, pictures, strict=True)
        return [(wish, entry_of(verdict, pixels)) for wish, verdict, pixels in rows]

    def _prompts(self) -> list[Score]:
        ceilings = shares(self.bench.critic.drawn(self.wishes))
        scores = [
            Score(name, share, count, ceilings[name][0])
            for name, (share, count) in shares(self.full()).items()
        ]
        pool = autoencoder.draw_pool(self.icons, 64, seed=5000)
        psnr = autoencoder.psnr(self.bench.renderer.pipeline.vae, pool)
        of_judge = {f"judge_{n}": ceilings[n][0] for n in ("count", "pair_objects")}
        return [*scores, Score("vae_psnr_db", psnr, len(pool)), *_scores(of_judge)]

    def _strangers(self) -> list[Score]:
        pictures, verdicts = studies.strangers_prompts(self.bench)
        entries = [entry_of(v, pixels) for v, pixels in zip(verdicts, pictures, strict=True)]
        self.sections.append(("strangers", entries))
        return [Score(name, share, count) for name, (share, count) in shares(verdicts).items()]


def entry_of(verdict: Verdict, pixels: Any) -> Entry:
    """For the contact sheet."""
    wrong = [name for name, is_right in verdict.marks.items() if not is_right]
    return Entry(pixels, verdict.text, f"saw {verdict.seen}" if wrong else "")


def _scores(numbers: Mapping[str, float]) -> list[Score]:
    return [Score(name, value) for name, value in numbers.items()]


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


def json_line(scores: Sequence[Score], settings: Settings, seconds: float) -> str:
    """As benchmarks print it; a claim for each figure with a bar."""
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
    }
    return json.dumps(values)


def load_judge(icons: Path, runs: Path) -> judge.Judge:
    """The trained judge; trains it first where there is none (six minutes)."""
    if not (runs / "judge.pt").exists():
        model, right = judge.train(icons, 6.0, 1000)
        budget.save(runs / "judge.pt", {"judge": model.state_dict(), "accuracy": right})
    return judge.load(runs)


def bench_of(args: argparse.Namespace) -> studies.Bench:
    spec = find_spec(str(args.model))
    critic = Critic(load_judge(args.icons, args.runs), drawing.load(args.icons))
    settings = Settings(args.steps or spec.default_steps, args.guidance_scale)
    renderer = Renderer(args.model, spec.max_sequence_length)
    return studies.Bench(renderer, critic, spec, settings, args.seed)


def main() -> None:
    args = parser().parse_args()
    for library in (diffusers.utils.logging, transformers.utils.logging):
        library.set_verbosity_error()  # they warn of every cut prompt, with its padding
        library.disable_progress_bar()
    began = time.monotonic()
    evaluation = Evaluation(bench_of(args), args.model, args.icons)
    names = ["edits"] if args.edits else args.parts
    scores = [score for name in names for score in evaluation.part(name)]
    if evaluation.sections:
        args.sheet.parent.mkdir(parents=True, exist_ok=True)
        contact_sheet(evaluation.sections).save(args.sheet)
    if not args.json:
        print(table(scores))
    print(json_line(scores, evaluation.bench.settings, time.monotonic() - began))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Judge the embedded model on held-out prompts")
    parser.add_argument("--icons", type=Path, default=ICONS, help="icons.json of the npm package")
    parser.add_argument("--model", type=Path, default=ASSETS)
    parser.add_argument("--steps", type=int, help="default: the model's own")
    parser.add_argument("--guidance-scale", type=float, default=3.5)
    parser.add_argument("--seed", type=int, default=0, help="of the first picture")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--edits", action="store_true", help="image-to-image alone")
    parser.add_argument("--sheet", type=Path, default=RUNS / "sheet.png")
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--json", action="store_true", help="print only the line of JSON")
    return parser


if __name__ == "__main__":
    main()
