"""Slots of keys and values: growth, copies, moves, formats."""

import pytest
import torch
from torch import Tensor

from pipelines.text.kv_cache import FIRST_TOKENS, KVCache
from pipelines.text.layout import Group, Layout, Piece

CPU = torch.device("cpu")


def fill(cache: KVCache, slot: int, start: int, count: int, base: float = 0.0) -> None:
    values = (torch.arange(count).float() + base).view(-1, 1, 1).expand(count, 2, 3)
    cache.reserve(start + count, slot + 1)
    cache.write(0, values, -values, Layout([Piece(slot, start, count)], CPU))


def keys(cache: KVCache, slot: int, count: int) -> Tensor:
    read, values = cache.read(0, Group(0, 1, [slot], [count - 1]), torch.float32)
    assert torch.equal(read, -values)
    return read[0, 0, :, 0]


def test_a_slot_keeps_what_it_was_given() -> None:
    cache = KVCache(3, 64)
    fill(cache, 1, 0, 5)
    fill(cache, 1, 5, 2, base=50)
    assert keys(cache, 1, 7).tolist() == [0, 1, 2, 3, 4, 50, 51]


def test_a_longer_text_finds_room() -> None:
    cache = KVCache(2, 4 * FIRST_TOKENS)
    fill(cache, 1, 0, 5)
    before = cache.bytes
    cache.reserve(FIRST_TOKENS + 1)
    assert cache.bytes == 2 * before and cache.bytes_per_token == 2 * 2 * 3 * 4
    fill(cache, 1, FIRST_TOKENS, 1, base=9)
    assert keys(cache, 1, FIRST_TOKENS + 1)[[0, 4, FIRST_TOKENS]].tolist() == [0, 4, 9]
    for tokens, slots in ((4 * FIRST_TOKENS + 1, 1), (1, 3)):
        with pytest.raises(ValueError, match="are more than 2 of"):
            cache.reserve(tokens, slots)


def test_room_is_given_back_once_nobody_is_left() -> None:
    cache = KVCache(16, 4 * FIRST_TOKENS)
    fill(cache, 0, 0, 5)
    small = cache.bytes
    fill(cache, 9, FIRST_TOKENS, 5)
    assert cache.bytes >= 20 * small
    cache.shrink()
    fill(cache, 0, 0, 3, base=7)
    assert cache.bytes == small and keys(cache, 0, 3).tolist() == [7, 8, 9]


def test_a_beginning_is_copied_out_and_in() -> None:
    cache = KVCache(2, 64)
    fill(cache, 0, 0, 6, base=10)
    cache.reserve(4, 2)
    kept = cache.copy_out(0, 4)
    fill(cache, 0, 0, 6, base=99)  # the copy does not follow
    cache.copy_in(1, kept, 3)
    assert keys(cache, 1, 4).tolist() == [10, 11, 12, 0]
    assert kept.bytes == 2 * 4 * 2 * 3 * 4


def test_a_moved_sequence_takes_its_draft_heads_place_along() -> None:
    cache = KVCache(3, 64)
    fill(cache, 2, 0, 6)
    cache.move(2, 0, 4)
    assert keys(cache, 0, 6).tolist() == [0, 1, 2, 3, 4, 0]


@pytest.mark.parametrize(
    ("dtype", "bytes_", "error"),
    [(torch.float32, 4, 0.0), (torch.bfloat16, 2, 2**-8), (torch.float8_e4m3fn, 1, 2**-4)],
)
def test_formats(dtype: torch.dtype, bytes_: int, error: float) -> None:
    cache = KVCache(1, 64, dtype)
    fill(cache, 0, 0, 6, base=1.1)
    assert cache.bytes == 2 * 64 * 2 * 3 * bytes_
    expected = torch.arange(6).float() + 1.1
    assert ((keys(cache, 0, 6) - expected).abs() <= error * expected).all()
    assert keys(cache, 0, 6).dtype == torch.float32
