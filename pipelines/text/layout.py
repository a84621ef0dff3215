"""Tokens of many sequences in one row: which cache slot each belongs to, and what each may see.

A forward takes the new tokens of all sequences side by side, `[1, tokens]`: the linear layers see
one matrix, whatever each sequence brings (one token, a draft to verify, a piece of a prompt).
Attention alone is taken apart, by groups of sequences with equally many new tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

LONG_TOKENS = 512  # up to here, sequences of any length share a group


@dataclass(frozen=True, slots=True)
class Piece:
    """New tokens of one sequence: `count` of them, the first at `start` of cache slot `slot`."""

    slot: int
    start: int
    count: int


@dataclass(slots=True)
class Group:
    """Sequences with equally many new tokens, side by side in the packed row."""

    first: int  # place of its first token in the packed row
    count: int  # new tokens of each
    slots: list[int]
    starts: list[int]
    _masks: dict[tuple[int | None, int], Tensor | None] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Sequences in it."""
        return len(self.slots)

    @property
    def length(self) -> int:
        """Cached tokens that its longest sequence sees."""
        return max(self.starts) + self.count

    @property
    def span(self) -> slice | None:
        """The slots as a slice where they follow one another: a view and no copy."""
        first = self.slots[0]
        follows = self.slots == list(range(first, first + self.rows))
        return slice(first, first + self.rows) if follows else None

    def mask(self, window: int | None, fold: int, device: torch.device) -> Tensor | None:
        """True where a query sees a key, `[rows, 1, fold * count, length]`; None: all of them.

        `window` is how many tokens a query sees, itself among them; `fold` repeats the queries for
        the heads that share a key.
        """
        key = (window, fold)
        if key not in self._masks:
            self._masks[key] = self._make_mask(window, fold, device)
        return self._masks[key]

    def _make_mask(self, window: int | None, fold: int, device: torch.device) -> Tensor | None:
        length = self.length
        if self.rows == 1 and self.count == 1 and (window is None or window >= length):
            return None
        at = torch.tensor(self.starts, device=device)[:, None] + torch.arange(
            self.count, device=device
        )
        keys = torch.arange(length, device=device)
        seen = keys <= at[..., None]  # [rows, count, length]
        if window is not None:
            seen &= keys > at[..., None] - window
        return seen[:, None].repeat(1, 1, fold, 1)


class Layout:
    """One forward's tokens, in the order of its pieces."""

    def __init__(self, pieces: Sequence[Piece], device: torch.device) -> None:
        self.pieces = tuple(pieces)
        self.tokens = sum(piece.count for piece in pieces)
        self.positions = torch.tensor(
            [place for p in pieces for place in range(p.start, p.start + p.count)], device=device
        )
        self.slots = torch.tensor([p.slot for p in pieces for _ in range(p.count)], device=device)
        self.groups = _groups(pieces)


def _differ(group: Group, piece: Piece) -> bool:
    """Whether one is so much longer that reading as far for all would cost more than a group."""
    lengths = [start + group.count for start in (*group.starts, piece.start)]
    return max(lengths) > max(LONG_TOKENS, 2 * min(lengths))


def _groups(pieces: Sequence[Piece]) -> list[Group]:
    groups: list[Group] = []
    at = 0
    for piece in pieces:
        last = groups[-1] if groups else None
        if last is None or last.count != piece.count or _differ(last, piece):
            groups.append(Group(at, piece.count, [piece.slot], [piece.start]))
        else:
            last.slots.append(piece.slot)
            last.starts.append(piece.start)
        at += piece.count
    return groups
