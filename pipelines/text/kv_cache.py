"""Keys and values of all sequences: one slot a sequence, cut back to a length by forgetting it.

Nothing is erased: what stands behind a sequence's length is never seen (`layout.Group.mask`) and
is written over by the next tokens. So a rejected draft costs nothing.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pipelines.text.layout import Group, Layout

GROWTH = 2.0  # a store that is too short is made this much longer, so that copies stay rare
FIRST_TOKENS = 512
FIRST_SLOTS = 1


@dataclass(frozen=True, slots=True)
class Kept:
    """The first tokens of a sequence, by layer: keys and values, `[tokens, heads, width]` each."""

    layers: dict[int, tuple[Tensor, Tensor]]

    @property
    def bytes(self) -> int:
        """Of all layers."""
        tensors = [tensor for pair in self.layers.values() for tensor in pair]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _grown(size: int, needed: int, most: int) -> int:
    """At least `needed`; with some to spare, so that copies stay rare."""
    return size if needed <= size else min(most, max(needed, int(size * GROWTH)))


class KVCache:
    """`slots` sequences of at most `capacity` tokens; room is made as they come and grow.

    All slots are as long as the longest, so that those in use can be read as one view.
    `dtype` is what is kept; None keeps what the model computes in. float8_e4m3fn takes an eighth of
    float32 and is widened to the model's format where it is read.
    """

    def __init__(self, slots: int, capacity: int, dtype: torch.dtype | None = None) -> None:
        self.slots = slots
        self.capacity = capacity
        self._dtype = dtype
        self._tokens = min(FIRST_TOKENS, capacity)
        self._rows = FIRST_SLOTS
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}  # [rows, tokens, heads, width]

    @property
    def bytes(self) -> int:
        """Held now, in all layers."""
        return Kept(self._layers).bytes

    @property
    def bytes_per_token(self) -> int:
        """Of one sequence, in all layers that were written."""
        return self.bytes // (self._rows * self._tokens)

    def shrink(self) -> None:
        """Give back what long or many sequences took, once none is left."""
        if self._tokens > FIRST_TOKENS or self._rows > FIRST_SLOTS:
            self._tokens, self._rows = min(FIRST_TOKENS, self.capacity), FIRST_SLOTS
            self._layers.clear()

    def reserve(self, tokens: int, slots: int = 1) -> None:
        """Make room for `slots` sequences of `tokens`. Raises `ValueError` beyond the capacity."""
        if tokens > self.capacity or slots > self.slots:
            most = f"{self.slots} of {self.capacity}"
            raise ValueError(f"{slots} sequences of {tokens} tokens are more than {most}")
        if tokens <= self._tokens and slots <= self._rows:
            return
        self._tokens = _grown(self._tokens, tokens, self.capacity)
        self._rows = _grown(self._rows, slots, self.slots)
        for layer, (keys, values) in self._layers.items():
            self._layers[layer] = (self._larger(keys), self._larger(values))

    def _larger(self, old: Tensor) -> Tensor:
        new = old.new_zeros(self._rows, self._tokens, *old.shape[2:])
        new[: old.shape[0], : old.shape[1]] = old
        return new

    def write(self, layer: int, key: Tensor, value: Tensor, layout: Layout) -> None:
        """Keep the packed row's keys and values, `[tokens, heads, width]`, at their places."""
        keys, values = self._stores(layer, key, value)
        pieces = layout.pieces
        if len(pieces) == 1:  # a slice costs a third of the index
            piece = pieces[0]
            place = slice(piece.start, piece.start + piece.count)
            keys[piece.slot, place] = key.to(keys.dtype)
            values[piece.slot, place] = value.to(values.dtype)
            return
        keys[layout.slots, layout.positions] = key.to(keys.dtype)
        values[layout.slots, layout.positions] = value.to(values.dtype)

    def _stores(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        if layer not in self._layers:
            self._layers[layer] = (self._room(key), self._room(value))
        return self._layers[layer]

    def _room(self, tensor: Tensor) -> Tensor:
        # Zeros: what is masked is still multiplied, and must not be NaN.
        shape = (self._rows, self._tokens, *tensor.shape[1:])
        return torch.zeros(shape, dtype=self._dtype or tensor.dtype, device=tensor.device)

    def read(self, layer: int, group: Group, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """A group's keys and values, `[rows, heads, length, width]` each."""
        rows = group.span if group.span is not None else group.slots
        keys, values = (stored[rows, : group.length] for stored in self._layers[layer])
        return keys.to(dtype).transpose(1, 2), values.to(dtype).transpose(1, 2)

    def copy_out(self, slot: int, tokens: int) -> Kept:
        """The first `tokens` of a slot, to be used by a later sequence."""
        return Kept(
            {
                layer: (keys[slot, :tokens].clone(), values[slot, :tokens].clone())
                for layer, (keys, values) in self._layers.items()
            }
        )

    def copy_in(self, slot: int, kept: Kept, tokens: int) -> None:
        """Begin a slot with the first `tokens` of what was kept."""
        for layer, (key, value) in kept.layers.items():
            keys, values = self._stores(layer, key, value)
            keys[slot, :tokens] = key[:tokens]
            values[slot, :tokens] = value[:tokens]

    def move(self, source: int, target: int, tokens: int) -> None:
        """Let a sequence stand in another slot, so that the slots in use follow one another."""
        tokens += 1  # a draft head is one token ahead
        for keys, values in self._layers.values():
            keys[target, :tokens] = keys[source, :tokens]
            values[target, :tokens] = values[source, :tokens]
