"""Pairs of an idea and its prompt, by seed: what the adapter is trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from studio.expansion.template import STOP, clean_idea, prefix_of
from training.expansion.grammar import MIN_WORDS, continuation
from training.expansion.ideas import draw_idea

HELD_OUT = Path(__file__).parent / "ideas.txt"


@dataclass(frozen=True, slots=True)
class Pair:
    """An idea and what comes after it; only `answer` is learned."""

    idea: str
    category: str
    written: str

    @property
    def prefix(self) -> str:
        """What the model is given."""
        return prefix_of(self.idea)

    @property
    def answer(self) -> str:
        """What it is to write, the end included."""
        return f" {self.written}{STOP}"

    @property
    def prompt(self) -> str:
        """The whole prompt as a picture model gets it."""
        return f"{self.idea}, {self.written}"


def held_out_ideas() -> list[str]:
    """The ideas that no training has seen, as a person typed them."""
    return HELD_OUT.read_text(encoding="utf-8").splitlines()


def pairs(count: int, seed: int) -> Iterator[Pair]:
    """`count` pairs, no idea of the held-out ones among them; the same for the same seed."""
    rng = Random(seed)
    forbidden = {clean_idea(idea).lower() for idea in held_out_ideas()}
    while count:
        idea = draw_idea(rng)
        written = continuation(rng, idea)
        if idea.text.lower() in forbidden or len(written.split()) < MIN_WORDS:
            continue
        count -= 1
        yield Pair(clean_idea(idea.text), idea.category, written)
