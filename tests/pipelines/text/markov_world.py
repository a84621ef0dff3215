"""A target and a draft over six tokens: small enough to know the chance of every text."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from unittest.mock import patch

import numpy as np
import torch

from pipelines.text import sampling
from pipelines.text.noise import exponentials
from pipelines.text.requests import Rule, Sampling
from pipelines.text.sampling import Kept, Seen, kept, penalised
from pipelines.text.speculative import (
    Draft,
    Verdict,
    draft_distribution,
    draft_token,
    judge,
    verify,
)
from tests.pipelines.text.chi_squared import p_value

VOCAB, LENGTH, WIDTH = 6, 3, 3
PROMPT = (0, 2)
Text = tuple[int, ...]


@dataclass
class World:
    """A target and a draft over one small vocabulary; distributions are made once a prefix."""

    sampling: Sampling = field(default_factory=Sampling)
    columns: np.ndarray | None = None  # the draft's vocabulary
    is_certain: bool = False  # drafts are no draws, as those of n-grams

    def __post_init__(self) -> None:
        noise = torch.randn(2, VOCAB, VOCAB, generator=torch.Generator().manual_seed(3))
        self.target_logits = 1.5 * noise[0]  # [last token, next token]
        self.draft_logits = 1.2 * noise[0] + 0.8 * noise[1]
        self.targets: dict[Text, Kept] = {}
        self.drafts: dict[Text, Kept] = {}

    def seen(self, text: Text) -> Seen:
        seen = Seen(PROMPT)
        for token in text:
            seen.add(token)
        return seen

    def rows(self, logits: torch.Tensor, text: Text, drafted: Text) -> torch.Tensor:
        """What a model gives behind `text`, and behind each of the drafted tokens."""
        last = (*PROMPT, *text)[-1]
        return logits[[last, *drafted]]

    def p(self, text: Text) -> Kept:
        if text not in self.targets:
            rows = penalised(
                self.rows(self.target_logits, text, ()), self.seen(text), (), self.sampling
            )
            self.targets[text] = kept(rows[0].numpy(), self.sampling)
        return self.targets[text]

    def q(self, text: Text, drafted: Text) -> Kept:
        """By the text with the draft: whether a token was drafted or written is all the same."""
        if text + drafted not in self.drafts:
            row = self.rows(self.draft_logits, text, drafted)[-1]
            row = row if self.columns is None else row[self.columns]
            self.drafts[text + drafted] = draft_distribution(
                row, self.sampling, self.seen(text), drafted, self.columns
            )
        return self.drafts[text + drafted]

    def draft(self, rule: Rule, text: Text, seed: int, width: int) -> Draft:
        drafted: Text = ()
        q: tuple[Kept, ...] = ()
        for i in range(width):
            if self.is_certain:
                drafted = (*drafted, (3 * (*PROMPT, *text, *drafted)[-1] + 1) % VOCAB)
            else:
                q = (*q, self.q(text, drafted))
                drafted = (*drafted, draft_token(q[-1], rule, seed, len(text) + i))
        return Draft(drafted, None if self.is_certain else q)

    def judged(self, rule: Rule, text: Text, draft: Draft, seed: int) -> Verdict:
        return judge(rule, lambda i: self.p(text + draft.tokens[:i]), draft, seed, len(text))

    def verified(self, rule: Rule, text: Text, draft: Draft, seed: int) -> Verdict:
        """From the logits, as an engine does."""
        rows = self.rows(self.target_logits, text, draft.tokens)
        return verify(rule, rows, draft, self.sampling, seed, len(text), self.seen(text))

    def write(self, rule: Rule, seed: int, widths: tuple[int, ...] = (WIDTH,)) -> Text:
        """LENGTH tokens by steps of the given widths, the last of them again and again."""
        text: Text = ()
        steps = 0
        while len(text) < LENGTH:
            draft = self.draft(rule, text, seed, widths[min(steps, len(widths) - 1)])
            text += self.judged(rule, text, draft, seed).tokens
            steps += 1
        return text[:LENGTH]

    def exact(self, text: Text) -> float:
        return float(np.prod([self.p(text[:i]).of(token) for i, token in enumerate(text)]))


class BulkNoise:
    """The noise of many texts by a hash of all their tokens at once: 3 times as fast as one each.

    Seed s has the numbers of the tokens from s * VOCAB on, which are as independent.
    """

    def __init__(self, seeds: int) -> None:
        self._ids = np.arange(seeds * VOCAB)
        self._tables: dict[tuple[int, int], np.ndarray] = {}  # [seeds, VOCAB]

    def __call__(self, seed: int, position: int, purpose: int, ids: np.ndarray) -> np.ndarray:
        if (position, purpose) not in self._tables:
            numbers = exponentials(0, position, purpose, self._ids)
            self._tables[position, purpose] = numbers.reshape(-1, VOCAB)
        row = self._tables[position, purpose][seed]
        return row if ids.size == VOCAB else row[ids]


def fit(
    world: World, rule: Rule, seeds: int, widths: tuple[int, ...] = (WIDTH,), is_bulk: bool = True
) -> float:
    """p of what a rule writes with so many seeds, over all texts."""
    noise = BulkNoise(seeds) if is_bulk else exponentials
    with patch.object(sampling, "exponentials", noise):
        counts = Counter(world.write(rule, seed, widths) for seed in range(seeds))
    texts = list(product(range(VOCAB), repeat=LENGTH))
    return p_value([counts[text] for text in texts], [world.exact(text) for text in texts])
