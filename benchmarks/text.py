"""Text: tokens a second and time to the first token, with each draft and without, beside the peers.

`python -m benchmarks.text` runs fresh prompt expansions and edits of long prompts through our
engine (plain, n-grams, the draft head, all of it as the studio runs it), transformers' `generate`
in bfloat16 (plain, and for edits with prompt lookup) and llama.cpp (`xllamacpp`, from the same
GGUF), for 1, 4 and 16 requests. The contestants take turns, round after round, on one thread.
"""

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import Claim, json_line
from benchmarks.text_peers import LlamaCpp, Stock
from benchmarks.text_work import WORKS, Result, Work, requests_of
from pipelines.text import embedded
from pipelines.text.drafting import open_drafter
from pipelines.text.engine import EngineOptions, TextEngine
from pipelines.text.language_model import LanguageModel
from pipelines.text.loading import load_text_model
from pipelines.text.requests import Speculating, TextDelta, TextDone, TextEvent, TextRequest

ROUNDS = 5
COUNTS = (1, 4, 16)
OURS: dict[str, Speculating] = {
    "ours, plain": "off",
    "ours, n-grams": "ngram",
    "ours, head": "head",
    "ours": "auto",
}


class Ours:
    """Our engine with one kind of drafts, its prefixes and widths kept from run to run."""

    def __init__(self, model: LanguageModel, kind: Speculating) -> None:
        self._events: list[TextEvent] = []
        self._first: float | None = None
        options = EngineOptions()
        self._engine = TextEngine(model, self._hear, options)
        self._engine.drafter = open_drafter(kind, model, self._engine.cache, options.rule, None)
        self._engine.warm_up()

    def _hear(self, event: TextEvent) -> None:
        if isinstance(event, TextDelta) and self._first is None:
            self._first = time.perf_counter()
        self._events.append(event)

    def __call__(self, requests: list[TextRequest]) -> Result:
        self._events.clear()
        self._first = None
        began = time.perf_counter()
        for request in requests:
            self._engine.submit(request)
        while self._engine.is_busy:
            self._engine.step()
        seconds = time.perf_counter() - began
        usages = [event.usage for event in self._events if isinstance(event, TextDone)]
        steps = sum(usage.speculation.steps for usage in usages if usage.speculation)
        drafted = sum(usage.speculation.drafted for usage in usages if usage.speculation)
        accepted = sum(usage.speculation.accepted for usage in usages if usage.speculation)
        return Result(
            sum(usage.output_tokens for usage in usages),
            seconds,
            None if self._first is None else self._first - began,
            accepted / drafted if drafted else None,
            1 + accepted / steps if steps else None,
        )


Contestant = Callable[[list[TextRequest]], Result]


@dataclass(slots=True)
class Table:
    """All results, by work, number of requests and contestant."""

    results: dict[tuple[str, int, str], list[Result]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def rate(self, work: str, count: int, name: str) -> float:
        """Median tokens a second."""
        return statistics.median(r.rate for r in self.results[work, count, name])

    def ratio(self, work: str, count: int, name: str, other: str) -> float:
        """Median over the rounds of one's rate by another's in the same round."""
        pairs = zip(self.results[work, count, name], self.results[work, count, other], strict=True)
        return statistics.median(ours.rate / theirs.rate for ours, theirs in pairs)

    def row(self, key: tuple[str, int, str]) -> dict[str, Any]:
        """One line of the table."""
        results = self.results[key]
        rates = [result.rate for result in results]
        firsts = [result.first_s for result in results if result.first_s is not None]
        last = results[-1]
        return {
            "work": key[0],
            "requests": key[1],
            "name": key[2],
            "tokens_s": statistics.median(rates),
            "min": min(rates),
            "max": max(rates),
            "first_s": statistics.median(firsts) if firsts else None,
            "acceptance": last.acceptance,
            "tokens_per_step": last.tokens_per_step,
        }


def measure(
    contestants: dict[str, Contestant], works: list[Work], counts: list[int], rounds: int
) -> Table:
    """The contestants in turn for each work and number of requests; a warm-up goes before."""
    table = Table()
    for work in works:
        for count in counts:
            for turn in range(-1, rounds):
                requests = requests_of(work, count, seed=1000 * (turn + 1) + count)
                for name, run in contestants.items():
                    if count > 1 and name in SINGLE:
                        continue
                    result = run(requests)
                    if turn >= 0:
                        table.results[work, count, name].append(result)
            for key in table.results:
                if key[:2] == (work, count):
                    print_row(table.row(key))
    return table


SINGLE = ("generate, bf16, prompt lookup",)  # transformers looks prompts up for one request alone


def print_row(row: dict[str, Any]) -> None:
    """Tokens a second with extremes, first token, acceptance."""
    first = f"{row['first_s'] * 1000:6.0f} ms" if row["first_s"] is not None else " " * 9
    rate = f"{row['acceptance']:.2f}" if row["acceptance"] is not None else "    "
    step = f"{row['tokens_per_step']:.2f}" if row["tokens_per_step"] is not None else "    "
    print(
        f"{row['work']:10} {row['requests']:2d}  {row['name']:30} {row['tokens_s']:7.1f} tok/s "
        f"({row['min']:.1f} to {row['max']:.1f}) {first}  accepted {rate}  a step {step}",
        flush=True,
    )


def claims_of(table: Table, counts: list[int]) -> list[Claim]:
    """Each as what it may be at most: shares of time, so 1 / 2.5 for 2.5 times the speed."""
    plain, ours, stock = "ours, plain", "ours", "generate, bf16"
    has_all = set(COUNTS) <= set(counts) and {work for work, _, _ in table.results} == set(WORKS)
    if not has_all:  # a part of the table proves nothing
        return []
    claims = [
        Claim("expansion: time by generate's", 1 / table.ratio("expansion", 1, ours, stock), 0.4),
        Claim("expansion: time by plain's", 1 / table.ratio("expansion", 1, ours, plain), 1 / 1.3),
        Claim("edit: time by plain's", 1 / table.ratio("edit", 1, ours, plain), 1 / 1.5),
        Claim("first token, s", float(table.row(("expansion", 1, ours))["first_s"]), 0.4),
    ]
    slowest = min(table.ratio(work, count, ours, plain) for work in WORKS for count in counts)
    claims.append(Claim("worst time by plain's, anywhere", 1 / slowest, 1 / 0.97))
    many = table.rate("expansion", 16, ours) / table.rate("expansion", 1, plain)
    claims.append(Claim("16 at once: time by plain one by one", 1 / many, 0.4))
    return claims


def main() -> None:
    """Print the table, then the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--counts", type=int, nargs="+", default=list(COUNTS))
    parser.add_argument("--works", nargs="+", default=list(WORKS), choices=WORKS)
    parser.add_argument("--folder", type=Path, default=Path("data/text"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    model = load_text_model(embedded.NAME, folder=options.folder, device="cpu")
    with tempfile.TemporaryDirectory() as folder, LlamaCpp(Path(folder)) as llama:
        stock = Stock(options.folder / embedded.NAME)
        contestants: dict[str, Contestant] = {
            name: Ours(model, kind) for name, kind in OURS.items()
        } | {
            "generate, bf16": stock.plain,
            "generate, bf16, prompt lookup": stock.looked_up,
            "llama.cpp": llama,
        }
        table = measure(contestants, options.works, options.counts, options.rounds)
    rows = [table.row(key) for key in table.results]
    print(json_line("text", claims_of(table, options.counts), rows))


if __name__ == "__main__":
    main()
