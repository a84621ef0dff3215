"""A causal language model of transformers, asked for packed tokens over our own cache."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pipelines.text.adapters import AdapterSwitch, masks_of
from pipelines.text.attention import Packed
from pipelines.text.kv_cache import KVCache
from pipelines.text.layout import Layout, Piece
from pipelines.text.packed import Int8Linear
from pipelines.text.pictures import open_reader
from pipelines.text.requests import Message
from pipelines.text.sparse_attention import pack_indexers
from pipelines.text.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Read:
    """What one sequence brings to a forward: tokens, and where they stand."""

    slot: int
    start: int
    ids: Sequence[int]
    adapter: str | None = None


class LanguageModel:
    """The model with its tokenizer. `model` was loaded with `attn_implementation="studio"`."""

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        tokens: Tokens,
        *,
        context_tokens: int,
        switch: AdapterSwitch | None = None,
        adapters: tuple[str, ...] = (),
    ) -> None:
        self.name = name
        self.tokens = tokens
        self.context_tokens = context_tokens
        self.adapters = adapters
        self.module = model
        self.config = model.config.get_text_config()
        self._decoder = model.get_decoder()
        self._head = model.get_output_embeddings()
        self._embedding = model.get_input_embeddings()
        self._pictures = open_reader(model)
        self._arguments = pack_indexers(model)
        self._switch = switch or AdapterSwitch()
        self.device = self._embedding.weight.device
        self.dtype = self._embedding.weight.dtype
        self.packs = isinstance(self._head, Int8Linear)  # 4-bit layers and an 8-bit head

    @property
    def layers(self) -> int:
        """Of the decoder: the cache's layers 0 to this are taken."""
        return int(self.config.num_hidden_layers)

    @property
    def vocabulary(self) -> int:
        """Tokens that it gives logits for; some are no token of the tokenizer."""
        return int(self.config.vocab_size)

    @property
    def width(self) -> int:
        """Of a hidden state."""
        return int(self.config.hidden_size)

    def encode(self, prompt: str | Sequence[Message]) -> list[int]:
        """Token ids, and numbers below zero for the rows of pictures.

        Raises `ValueError` for turns that the template does not take, and for pictures that the
        model does not.
        """
        turns = () if isinstance(prompt, str) else prompt
        pictures = [picture for message in turns for picture in message.pictures]
        if not pictures:
            return self.tokens.encode(prompt)
        if self._pictures is None:
            raise ValueError(f"{self.name} sees no pictures: send text alone")
        return self._pictures.place(self.tokens.encode(prompt), pictures)

    @torch.no_grad()
    def embed(self, ids: Tensor) -> Tensor:  # [tokens] -> [tokens, width]
        """What the first layer reads."""
        embedded: Tensor = self._embedding(ids if self._pictures is None else ids.clamp(min=0))
        if self._pictures is None or not bool((ids < 0).any()):
            return embedded
        places = (ids < 0).nonzero()[:, 0]
        rows = self._pictures.rows(ids[places].tolist())
        return embedded.index_copy(0, places, rows.to(embedded))

    @torch.no_grad()
    def read(self, reads: Sequence[Read], cache: KVCache) -> Tensor:
        """The last hidden states of all new tokens side by side, `[tokens, width]`."""
        longest = max(read.start + len(read.ids) for read in reads)
        cache.reserve(longest, 1 + max(read.slot for read in reads))
        pieces = [Piece(read.slot, read.start, len(read.ids)) for read in reads]
        layout = Layout(pieces, self.device)
        adapters = [read.adapter for read in reads]
        self._switch.masks = masks_of(adapters, [piece.count for piece in pieces], self.device)
        hidden: Tensor = self._decoder(
            **self._seen([token for read in reads for token in read.ids]),
            position_ids=layout.positions[None],
            use_cache=False,
            packed=Packed(layout, cache),
            **self._arguments,
        ).last_hidden_state
        return hidden[0]

    def _seen(self, ids: list[int]) -> dict[str, Tensor]:
        """What the decoder reads: tokens, or embedded ones where pictures stand among them."""
        row = torch.tensor(ids, device=self.device)
        if min(ids) >= 0:
            return {"input_ids": row[None]}
        if self._pictures is None:  # it drafts for one that sees
            return {"input_ids": row.clamp(min=0)[None]}
        return {"inputs_embeds": self.embed(row)[None]}

    @torch.no_grad()
    def logits(self, hidden: Tensor) -> Tensor:  # [rows, width] -> float32 [rows, vocabulary]
        """The head's answer."""
        logits: Tensor = self._head(hidden)
        return logits.float()
