"""Drafts by a smaller model with the same tokenizer, which keeps a cache of its own."""

from collections.abc import Sequence as Items

import numpy as np
import torch
from torch import Tensor

from pipelines.text.drawing import draw_drafts
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel, Read
from pipelines.text.requests import Rule
from pipelines.text.scheduler import CHUNK_TOKENS
from pipelines.text.sequence import Sequence
from pipelines.text.speculative import NOTHING, Draft


class ModelDrafter:
    """One draft model beside one target of `vocabulary` tokens, their slots the same.

    Models of one family share a tokenizer and pad their vocabularies differently: only tokens that
    both have are drafted, and a text with others is left alone.
    """

    def __init__(self, model: LanguageModel, vocabulary: int, slots: int, rule: Rule) -> None:
        self._model = model
        self._cache = KVCache(slots, model.context_tokens)
        self._rule = rule
        self._columns = np.arange(min(vocabulary, model.vocabulary))
        self._cached: dict[str, int] = {}  # tokens of a request whose keys are held
        self._before: dict[str, int] = {}  # tokens of a request when it was drafted for

    @torch.no_grad()
    def propose(self, rows: Items[Sequence], width: int) -> list[Draft]:
        """`width` tokens for each row, one after the other; none where the prompt is not read."""
        able = [row for row in rows if self._can_draft(row, width)]
        drafts = iter(self._drafted(able, width) if able else [])
        return [next(drafts) if row in able else NOTHING for row in rows]

    def _can_draft(self, row: Sequence, width: int) -> bool:
        if len(row.ids) + width > self._model.context_tokens:
            return False
        start = self._cached.get(row.request.id, 0)
        if any(not 0 <= token < self._model.vocabulary for token in row.ids[start:]):
            return False
        if len(row.ids) - start > CHUNK_TOKENS:  # a piece at a time, or all others would wait
            self._read_chunk(row)
            return False
        return True

    def _read_chunk(self, row: Sequence) -> None:
        start = self._cached.get(row.request.id, 0)
        chunk = row.ids[start : start + CHUNK_TOKENS]
        self._model.read([Read(row.slot, start, chunk)], self._cache)
        self._cached[row.request.id] = start + len(chunk)

    def _drafted(self, rows: Items[Sequence], width: int) -> list[Draft]:
        def go_on(step: int, tokens: list[int]) -> Tensor:
            return self._answer(
                [
                    Read(row.slot, len(row.ids) + step, [token])
                    for row, token in zip(rows, tokens, strict=True)
                ]
            )

        first = self._answer(
            [
                Read(row.slot, start, row.ids[start:])
                for row in rows
                for start in [self._cached.get(row.request.id, 0)]
            ]
        )
        drafts = draw_drafts(rows, width, self._rule, first, go_on, self._columns)
        for row in rows:
            self._before[row.request.id] = self._cached[row.request.id] = len(row.ids)
        return drafts

    def _answer(self, reads: list[Read]) -> Tensor:  # float32 [rows, shared vocabulary]
        hidden = self._model.read(reads, self._cache)
        ends = torch.tensor([len(read.ids) for read in reads]).cumsum(0) - 1
        return self._model.logits(hidden[ends.to(hidden.device)])[:, : len(self._columns)]

    def read(self, row: Sequence, start: int, hidden: Tensor) -> None:
        """The target's states are not needed."""

    def judged(self, row: Sequence, draft: Draft, accepted: int) -> None:
        """The keys of accepted tokens stay; the last drafted one was never read."""
        kept = min(accepted, len(draft.tokens) - 1)
        self._cached[row.request.id] = self._before[row.request.id] + kept

    def move(self, row: Sequence, target: int) -> None:
        """The row is about to stand in slot `target`."""
        self._cache.move(row.slot, target, self._cached.get(row.request.id, 0))

    def leave(self, row: Sequence) -> None:
        """Forget it."""
        self._cached.pop(row.request.id, None)
        self._before.pop(row.request.id, None)
