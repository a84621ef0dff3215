"""Drafts by a head over the target's hidden states, for many sequences at once.

The head's keys and values lie in the target's cache, under a layer number of their own: cutting
back, moving and reusing a beginning hold for both. Its place i was made of the target's state at
i - 1 and the token at i, so a place holds for every text that begins with the same tokens.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from pipelines.text.attention import Packed, attend
from pipelines.text.draft_head import DraftHead
from pipelines.text.drawing import draw_drafts
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel
from pipelines.text.layout import Layout, Piece
from pipelines.text.packed import Int8Linear
from pipelines.text.requests import Rule
from pipelines.text.sequence import Sequence
from pipelines.text.speculative import Draft


@dataclass(slots=True)
class _Progress:
    """How far the head has read one sequence."""

    place: int  # the next to read
    states: list[Tensor] = field(default_factory=list)  # the target's, from `place` - 1 on

    @property
    def waiting(self) -> int:
        return sum(len(states) for states in self.states)


class HeadDrafter:
    """One head for one target model."""

    def __init__(
        self, head: DraftHead, model: LanguageModel, cache: KVCache, rule: Rule, *, packs: bool
    ) -> None:
        self._model = model
        self._cache = cache
        self._rule = rule
        self._layer = model.layers
        ids = head.ids
        assert isinstance(ids, Tensor)
        self._columns = ids.numpy()
        embedding = model.embed(ids.to(model.device))
        self._head = head.to(model.device, model.dtype).eval().requires_grad_(False)
        self._logits: nn.Module
        if packs:
            for name in ("mix", "qkv", "o", "gate_up", "down"):
                linear = getattr(head, name)
                setattr(head, name, Int8Linear(linear.weight.float()))
            self._logits = Int8Linear(embedding.float())
        else:
            self._logits = nn.Linear(*embedding.shape[::-1], bias=False, dtype=model.dtype)
            self._logits.weight = nn.Parameter(embedding, requires_grad=False)
        self._progress: dict[str, _Progress] = {}

    def read(self, row: Sequence, start: int, hidden: Tensor) -> None:
        """The target's states of the row's tokens from `start` on, `[tokens, width]`."""
        progress = self._progress.get(row.request.id)
        if progress is None:
            progress = self._progress[row.request.id] = _Progress(start + 1 if start else 0)
            if start == 0:  # before the first token there is no state
                progress.states.append(torch.zeros_like(hidden[:1]))
        progress.states.append(hidden)
        if row.unread:  # a prompt is read on at once: its beginning may be kept for others
            self._read_on([row])

    @torch.no_grad()
    def propose(self, rows: Items[Sequence], width: int) -> list[Draft]:
        """`width` tokens for each row, one after the other."""
        states = self._read_on(rows)

        def go_on(step: int, tokens: list[int]) -> Tensor:
            nonlocal states
            pieces = [Piece(row.slot, len(row.ids) + step, 1) for row in rows]
            states = self._forward(states, [[token] for token in tokens], pieces)
            return self._answer(states)

        return draw_drafts(rows, width, self._rule, self._answer(states), go_on, self._columns)

    def _answer(self, states: Tensor) -> Tensor:  # float32 [rows, draft vocabulary]
        logits: Tensor = self._logits(self._head.norm("out", states))
        return logits.float()

    def judged(self, row: Sequence, draft: Draft, accepted: int) -> None:
        """What was drafted is read again with the target's own states."""

    def move(self, row: Sequence, target: int) -> None:
        """Its keys move with the target's."""

    def leave(self, row: Sequence) -> None:
        """Forget how far it was read."""
        self._progress.pop(row.request.id, None)

    @torch.no_grad()
    def _read_on(self, rows: Items[Sequence]) -> Tensor:
        """Read all places whose state is known; the output at each row's last, `[rows, width]`.

        A single row may have none; rows that wrote a token have one.
        """
        parts, ids, pieces = [], [], []
        for row in rows:
            progress = self._progress[row.request.id]
            states = torch.cat(progress.states)
            count = min(len(states), len(row.ids) - progress.place)
            if count == 0:  # of a prompt that was read before, all but its last state
                return states[:0]
            parts.append(states[:count])
            ids.append(row.ids[progress.place : progress.place + count])
            pieces.append(Piece(row.slot, progress.place, count))
            progress.place += count
            progress.states = [states[count:]] if count < len(states) else []
        out = self._forward(torch.cat(parts), ids, pieces)
        ends = torch.tensor([piece.count for piece in pieces]).cumsum(0) - 1
        return out[ends.to(out.device)]

    def _forward(self, states: Tensor, ids: list[list[int]], pieces: list[Piece]) -> Tensor:
        self._cache.reserve(max(piece.start + piece.count for piece in pieces))
        layout = Layout(pieces, self._model.device)
        tokens = torch.tensor([token for part in ids for token in part], device=self._model.device)
        packed = Packed(layout, self._cache)

        def look(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return attend(query, key, value, self._layer, packed)

        out: Tensor = self._head(states, self._model.embed(tokens), layout.positions, look)
        return out
