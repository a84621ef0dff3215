"""Drafts by the modules for multi-token prediction that a checkpoint brings along.

DeepSeek-AI 2024, arXiv:2412.19437, section 2.2: module k reads the state that the one before it
(the target, for the first) has at place i, beside the token at i + k, and foresees the token at
i + k + 1. The modules are transformers' `MtpModel`; here they read packed rows, and their keys lie
in the target's cache, in the layers behind the target's own.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field

import torch
from torch import Tensor
from transformers.modeling_layers import MtpModel

from pipelines.errors import LoadFailed
from pipelines.text.attention import Packed
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel
from pipelines.text.layout import Layout, Piece
from pipelines.text.module_folder import BROKEN, first_line
from pipelines.text.sequence import Sequence
from pipelines.text.speculative import Draft

UNKNOWN = 0  # stands for a token that is not written yet; what is made of it is read again


def read_mtp(model: LanguageModel) -> MtpModel:
    """The modules of the model's own folder. Raises `LoadFailed` where it has none."""
    if not getattr(model.config, "num_mtp_layers", None):
        raise LoadFailed(
            f"{model.name} has no modules for multi-token prediction: choose another --speculation."
        )
    try:
        mtp: MtpModel = MtpModel.from_pretrained(model.module, device_map={"": model.device})
    except (*BROKEN, AttributeError) as error:
        raise LoadFailed(
            f"The modules for multi-token prediction of {model.name} cannot be loaded "
            f"({first_line(error)}): choose another --speculation."
        ) from error
    return mtp


@dataclass(slots=True)
class _Progress:
    """How far the modules have read one sequence."""

    place: int  # of the first state
    states: list[Tensor] = field(default_factory=list)  # the target's


@dataclass(slots=True)
class _Span:
    """Places of one sequence that the modules read together."""

    row: Sequence
    place: int
    states: Tensor  # [count, width]: the target's, then those of the module before
    drafted: list[int] = field(default_factory=list)

    def tokens(self, ahead: int) -> list[int]:
        """The token `ahead` of each place: written, drafted or unknown."""
        text = self.row.ids + self.drafted
        places = range(self.place + ahead, self.place + ahead + len(self.states))
        return [text[place] if place < len(text) else UNKNOWN for place in places]


class MtpDrafter:
    """As many tokens as there are modules; a single module reads its own drafts for more."""

    def __init__(self, mtp: MtpModel, model: LanguageModel, cache: KVCache) -> None:
        self._mtp = mtp.eval().requires_grad_(False)
        self._model = model
        self._cache = cache
        self._modules = len(mtp.layers)
        for number, layer in enumerate(mtp.layers):
            layer.mtp_block.self_attn.layer_idx = model.layers + number
        self._progress: dict[str, _Progress] = {}

    def read(self, row: Sequence, start: int, hidden: Tensor) -> None:
        """The target's states of the row's tokens from `start` on, `[tokens, width]`."""
        progress = self._progress.setdefault(row.request.id, _Progress(start))
        progress.states.append(hidden)
        if row.unread:  # a prompt is read on at once: its beginning may be kept for others
            spans = self._spans([row])
            for number in range(self._modules if spans else 0):
                self._read_on(number, spans)

    @torch.no_grad()
    def propose(self, rows: Items[Sequence], width: int) -> list[Draft]:
        """The likeliest tokens, one after the other."""
        spans = self._spans(rows)
        assert len(spans) == len(rows)  # each wrote a token since
        longest = max(len(row.ids) for row in rows)
        depth = min(width, self._cache.capacity + 2 - longest)
        for step in range(depth if self._modules == 1 else min(depth, self._modules)):
            if step < self._modules:
                self._read_on(step, spans)
            else:
                self._read_drafted(spans)
            ends = torch.stack([span.states[-1] for span in spans])
            for span, token in zip(spans, self._model.logits(ends).argmax(dim=-1), strict=True):
                span.drafted.append(int(token))
        for number in range(depth, self._modules):  # later modules fall behind otherwise
            self._read_on(number, spans)
        return [Draft(tuple(span.drafted)) for span in spans]

    def judged(self, row: Sequence, draft: Draft, accepted: int) -> None:
        """What was drafted is read again as it was written."""

    def move(self, row: Sequence, target: int) -> None:
        """Its keys move with the target's."""

    def leave(self, row: Sequence) -> None:
        """Forget how far it was read."""
        self._progress.pop(row.request.id, None)

    def _spans(self, rows: Items[Sequence]) -> list[_Span]:
        """The places whose next token is written; rows without any are left out.

        The last ones are read again next time, as later modules saw tokens that were drafted.
        """
        spans = []
        for row in rows:
            progress = self._progress[row.request.id]
            states, place = torch.cat(progress.states), progress.place
            count = min(len(states), len(row.ids) - 1 - place)
            if count > 0:
                spans.append(_Span(row, place, states[:count]))
            progress.place = max(place, min(place + count, len(row.ids) - self._modules))
            progress.states = [states[progress.place - place :]]
        return spans

    def _read_on(self, number: int, spans: list[_Span]) -> None:
        """Module `number` over all places: its states take the place of those that it read."""
        pieces = [Piece(span.row.slot, span.place, len(span.states)) for span in spans]
        ids = [span.tokens(number + 1) for span in spans]
        states = self._forward(number, [span.states for span in spans], ids, pieces)
        for span, own in zip(spans, states, strict=True):
            span.states = own

    def _read_drafted(self, spans: list[_Span]) -> None:
        """The only module goes on from its own state and draft, one place for each row."""
        pieces = [
            Piece(span.row.slot, len(span.row.ids) - 2 + len(span.drafted), 1) for span in spans
        ]
        ids = [span.drafted[-1:] for span in spans]
        states = self._forward(0, [span.states[-1:] for span in spans], ids, pieces)
        for span, own in zip(spans, states, strict=True):
            span.states = own

    @torch.no_grad()
    def _forward(
        self, number: int, states: list[Tensor], ids: list[list[int]], pieces: list[Piece]
    ) -> tuple[Tensor, ...]:
        self._cache.reserve(max(piece.start + piece.count for piece in pieces))
        layout = Layout(pieces, self._model.device)
        tokens = torch.tensor([token for part in ids for token in part], device=layout.slots.device)
        out: Tensor = self._mtp.forward_layer(
            number,
            torch.cat(states)[None],
            layout.positions[None] + number + 1,  # of the tokens; places are those of the states
            None,
            inputs_embeds=self._model.embed(tokens)[None],
            packed=Packed(layout, self._cache),
        )
        return out[0].split([piece.count for piece in pieces])
