"""Drafts by a smaller model with the same tokenizer, which keeps a cache of its own."""

from collections.abc import Sequence as Items

import torch
from torch import Tensor

from pipelines.text.drawing import draw_drafts
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel, Read
from pipelines.text.requests import Rule
from pipelines.text.sequence import Sequence
from pipelines.text.speculative import Draft


class ModelDrafter:
    """One draft model beside one target, their slots the same."""

    def __init__(self, model: LanguageModel, slots: int, rule: Rule) -> None:
        self._model = model
        self._cache = KVCache(slots, model.context_tokens)
        self._rule = rule
        self._cached: dict[str, int] = {}  # tokens of a request whose keys are held
        self._before: dict[str, int] = {}  # tokens of a request when it was drafted for

    @torch.no_grad()
    def propose(self, rows: Items[Sequence], width: int) -> list[Draft]:
        """`width` tokens for each row, one after the other."""
        longest = max(len(row.ids) for row in rows) + width
        if longest > self._model.context_tokens:
            return [Draft() for _ in rows]

        def go_on(step: int, tokens: list[int]) -> Tensor:
            reads = [
                Read(row.slot, len(row.ids) + step, [token])
                for row, token in zip(rows, tokens, strict=True)
            ]
            return self._model.logits(self._model.read(reads, self._cache))

        drafts = draw_drafts(rows, width, self._rule, self._read_on(rows), go_on)
        for row in rows:
            self._before[row.request.id] = len(row.ids)
            self._cached[row.request.id] = len(row.ids)
        return drafts

    def _read_on(self, rows: Items[Sequence]) -> Tensor:
        """Read what was written since; the logits behind it."""
        reads = []
        for row in rows:
            start = self._cached.get(row.request.id, 0)
            reads.append(Read(row.slot, start, row.ids[start:]))
        hidden = self._model.read(reads, self._cache)
        ends = torch.tensor([len(read.ids) for read in reads]).cumsum(0) - 1
        return self._model.logits(hidden[ends.to(hidden.device)])

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
