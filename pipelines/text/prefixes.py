"""Beginnings of texts that were read before: a request that begins the same does not read again."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pipelines.text.kv_cache import Kept
from pipelines.text.noise import Ids

MIN_TOKENS = 8  # shorter ones are read in no time


@dataclass(frozen=True, slots=True)
class Match:
    """How many tokens a kept beginning shares, and its keys and values."""

    tokens: int
    kept: Kept


class PrefixStore:
    """Kept beginnings, the least recently used forgotten beyond `max_bytes`."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._entries: OrderedDict[tuple[str | None, bytes], tuple[Ids, Kept]] = OrderedDict()
        self._bytes = 0

    @property
    def max_entry_bytes(self) -> int:
        """Of one text: a long one must not drive out all that are used often."""
        return self._max_bytes // 4

    def find(self, ids: Sequence[int], adapter: str | None) -> Match | None:
        """The longest shared beginning of texts that were read with the same adapter."""
        asked = np.asarray(ids, dtype=np.int64)
        best: tuple[int, tuple[str | None, bytes]] | None = None
        for key, (known, _) in self._entries.items():
            if key[0] == adapter:
                tokens = _shared(asked, known)
                if tokens >= MIN_TOKENS and (best is None or tokens > best[0]):
                    best = (tokens, key)
        if best is None:
            return None
        self._entries.move_to_end(best[1])
        return Match(best[0], self._entries[best[1]][1])

    def keep(self, ids: Sequence[int], adapter: str | None, kept: Kept) -> None:
        """Remember a text; one that it goes on from is remembered within it."""
        known = np.asarray(ids, dtype=np.int64)
        if len(known) < MIN_TOKENS or kept.bytes > self.max_entry_bytes:
            return
        for key, (other, _) in list(self._entries.items()):
            if key[0] == adapter and _shared(known, other) == len(other):
                self._forget(key)
        self._entries[adapter, known.tobytes()] = (known, kept)
        self._bytes += kept.bytes
        while self._bytes > self._max_bytes:
            self._forget(next(iter(self._entries)))

    def has(self, ids: Sequence[int], adapter: str | None) -> bool:
        """Whether all of `ids` is within a kept text."""
        match = self.find(ids, adapter)
        return match is not None and match.tokens == len(ids)

    def _forget(self, key: tuple[str | None, bytes]) -> None:
        self._bytes -= self._entries.pop(key)[1].bytes


def _shared(a: Ids, b: Ids) -> int:
    """Tokens at the beginning that are the same."""
    size = min(len(a), len(b))
    differs = np.flatnonzero(a[:size] != b[:size])
    return int(differs[0]) if len(differs) else size
