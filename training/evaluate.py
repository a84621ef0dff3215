"""Measures the embedded model: what it draws of what is asked, and what changes that.

    python -m training.evaluate             # a table, a contact sheet, a line of JSON last
    python -m training.evaluate --edits     # image-to-image alone
    python -m training.evaluate --parts steps guidance

The prompts ask for combinations that training never drew. Beside each share stands what the judge
finds right in drawings of the same scenes: no model can score more.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import diffusers
import numpy as np
import transformers

from pipelines.specs import find_spec
from training import autoencoder, drawing, edits, judge, studies
from training.emoji import ICONS
from training.latents import RUNS
from training.prompts import held_out_wishes
from training.rendering import Editor, Renderer, Settings
from training.report import Score, json_line, table
from training.scoring import Critic, Verdict, shares
from training.sheet import Entry, contact_sheet

ASSETS = Path("assets/flux-emoji")
PROMPT_SEED = 7
PARTS = (
    *("prompts", "steps", "guidance", "negative", "variety", "sizes", "unknown", "strangers"),
    "edits",
)


class Evaluation:
    """Runs the parts that are asked for; each gives scores. The wishes are drawn at most once."""

    def __init__(self, bench: studies.Bench, folder: Path, icons: Path) -> None:
        self.bench, self.folder, self.icons = bench, folder, icons
        self.wishes = held_out_wishes(PROMPT_SEED)
        self.sections: list[tuple[str, Sequence[Entry]]] = []
        self.mistakes: list[Verdict] = []
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
            self._show(self._full, pictures)
        return self._full

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
        self._show(verdicts, pictures)
        return [Score(name, share, count) for name, (share, count) in shares(verdicts).items()]

    def _show(self, verdicts: Sequence[Verdict], pictures: Sequence[np.ndarray]) -> None:
        """A section of the sheet for each axis."""
        self.mistakes += [verdict for verdict in verdicts if verdict.wrong]
        for axis in dict.fromkeys(verdict.axis for verdict in verdicts):
            pairs = zip(verdicts, pictures, strict=True)
            self.sections.append((axis, [entry_of(v, p) for v, p in pairs if v.axis == axis]))


def entry_of(verdict: Verdict, pixels: np.ndarray) -> Entry:
    """For the contact sheet."""
    return Entry(pixels, verdict.text, f"saw {verdict.seen}" if verdict.wrong else "")


def _scores(numbers: Mapping[str, float]) -> list[Score]:
    return [Score(name, value) for name, value in numbers.items()]


def load_judge(icons: Path, runs: Path) -> judge.Judge:
    """The trained judge; trains it first where there is none (six minutes)."""
    if not (runs / "judge.pt").exists():
        judge.save(runs, *judge.train(icons, 6.0, 1000))
    return judge.load(runs)


def bench_of(args: argparse.Namespace) -> studies.Bench:
    spec = find_spec(str(args.model))
    critic = Critic(load_judge(args.icons, args.runs), drawing.load(args.icons))
    guidance = args.guidance_scale or spec.default_guidance_scale
    settings = Settings(args.steps or spec.default_steps, guidance)
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
    seconds = time.monotonic() - began
    print(json_line(scores, evaluation.bench.settings, evaluation.mistakes, seconds))


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Judge the embedded model on held-out prompts")
    parser.add_argument("--icons", type=Path, default=ICONS, help="icons.json of the npm package")
    parser.add_argument("--model", type=Path, default=ASSETS)
    parser.add_argument("--steps", type=int, help="default: the model's own")
    parser.add_argument("--guidance-scale", type=float, help="default: the model's own")
    parser.add_argument("--seed", type=int, default=0, help="of the first picture")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--edits", action="store_true", help="image-to-image alone")
    parser.add_argument("--sheet", type=Path, default=RUNS / "sheet.png")
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--json", action="store_true", help="print only the line of JSON")
    return parser


if __name__ == "__main__":
    main()
