"""Kept beginnings: the longest shared one is found, the least used is forgotten."""

import torch

from pipelines.text.kv_cache import Kept
from pipelines.text.prefixes import MIN_TOKENS, PrefixStore

TEXT = list(range(100, 120))


def kept(tokens: int) -> Kept:
    return Kept({0: (torch.zeros(tokens, 1, 4), torch.zeros(tokens, 1, 4))})


def test_the_longest_shared_beginning_is_found() -> None:
    store = PrefixStore(10**6)
    store.keep([*TEXT[:12], 1, 2, 3], None, kept(15))
    store.keep([*TEXT[:16], 4], None, kept(17))
    match = store.find(TEXT, None)
    assert match is not None and match.tokens == 16
    assert store.has(TEXT[:16], None) and not store.has(TEXT[:17], None)


def test_another_adapter_read_it_otherwise() -> None:
    store = PrefixStore(10**6)
    store.keep(TEXT, "expansion", kept(20))
    assert store.find(TEXT, None) is None
    assert store.find(TEXT, "expansion") is not None


def test_a_few_tokens_are_not_worth_it() -> None:
    store = PrefixStore(10**6)
    store.keep(TEXT[: MIN_TOKENS - 1], None, kept(MIN_TOKENS - 1))
    assert store._bytes == 0
    store.keep(TEXT, None, kept(20))
    assert store.find(TEXT[: MIN_TOKENS - 1], None) is None


def test_a_text_that_goes_on_replaces_its_beginning() -> None:
    store = PrefixStore(10**6)
    store.keep(TEXT[:10], None, kept(10))
    store.keep(TEXT, None, kept(20))
    assert store._bytes == kept(20).bytes


def test_the_least_recently_used_goes_first() -> None:
    store = PrefixStore(4 * kept(10).bytes)
    for start in (0, 1000, 2000, 2500):
        store.keep(range(start, start + 10), None, kept(10))
    store.find(range(10), None)
    store.keep(range(3000, 3010), None, kept(10))
    assert store.find(range(1000, 1010), None) is None
    assert all(store.find(range(start, start + 10), None) for start in (0, 2000, 2500, 3000))
    store.keep(range(9000, 9011), None, kept(11))  # more than a quarter of all
    assert store.find(range(9000, 9011), None) is None and store._bytes == 4 * kept(10).bytes


def test_no_room_keeps_nothing() -> None:
    store = PrefixStore(0)
    store.keep(TEXT, None, kept(20))
    assert store.find(TEXT, None) is None
