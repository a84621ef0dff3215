"""Packed attention over the cache, against plain attention of each sequence."""

import math

import pytest
import torch
from torch import Tensor

from pipelines.text.attention import Packed, attend
from pipelines.text.kv_cache import KVCache
from pipelines.text.layout import Layout, Piece

CPU = torch.device("cpu")
WIDTH = 8


def reference(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """One sequence at once, in float64: query [tokens, heads, width]."""
    fold = query.shape[1] // key.shape[1]
    q, k, v = (t.double().transpose(0, 1) for t in (query, key, value))
    k, v = k.repeat_interleave(fold, 0), v.repeat_interleave(fold, 0)
    logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    at = torch.arange(logits.shape[-1])
    seen = at <= at[:, None]
    if window is not None:
        seen &= at > at[:, None] - window
    logits = logits.masked_fill(~seen, -math.inf)
    if sinks is not None:
        sink = sinks.double().view(-1, 1, 1).expand(-1, logits.shape[1], 1)
        weights = torch.cat([logits, sink], -1).softmax(-1)[..., :-1]
    else:
        weights = logits.softmax(-1)
    return (weights @ v).transpose(0, 1).flatten(1)


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"window": 5},
        {"softcap": 2.0},
        {"sinks": torch.tensor([0.3, -1.0, 2.0, 0.0, 0.7, 1.1])},
        {"window": 3, "sinks": torch.zeros(6)},
    ],
)
@pytest.mark.parametrize("slots", [(0, 1, 2), (3, 0, 2)])  # side by side: a view; else a copy
def test_pieces_of_three_sequences_equal_whole_ones(
    rules: dict[str, object], slots: tuple[int, ...]
) -> None:
    torch.manual_seed(0)
    sequences = [
        (torch.randn(16, 6, WIDTH), torch.randn(16, 2, WIDTH), torch.randn(16, 2, WIDTH))
        for _ in range(3)
    ]
    cache = KVCache(4, 64)
    cache.reserve(64, 4)
    # Prompts of 7, 9 and 9 tokens, then one token each, then 1, 4 and 4.
    rounds = [(7, 9, 9), (1, 1, 1), (1, 4, 4)]
    at, got = [0, 0, 0], [torch.empty(0) for _ in range(3)]
    for counts in rounds:
        pieces = [Piece(slot, at[i], counts[i]) for i, slot in enumerate(slots)]
        parts = [
            torch.cat([s[t][at[i] : at[i] + counts[i]] for i, s in enumerate(sequences)])
            for t in range(3)
        ]
        out = attend(*parts, 0, Packed(Layout(pieces, CPU), cache), **rules)  # type: ignore
        for i, part in enumerate(out.split(list(counts))):
            got[i] = torch.cat([got[i], part])
            at[i] += counts[i]
    for i, (q, k, v) in enumerate(sequences):
        expected = reference(q[: at[i]], k[: at[i]], v[: at[i]], **rules)  # type: ignore[arg-type]
        torch.testing.assert_close(got[i].double(), expected, atol=1e-5, rtol=1e-5)


def test_what_was_cut_back_is_not_seen() -> None:
    torch.manual_seed(1)
    q, k, v = torch.randn(8, 2, WIDTH), torch.randn(8, 2, WIDTH), torch.randn(8, 2, WIDTH)
    cache = KVCache(1, 64)

    def step(start: int, count: int, scale: float = 1.0) -> Tensor:
        part = slice(start, start + count)
        layout = Layout([Piece(0, start, count)], CPU)
        return attend(q[part], k[part] * scale, v[part] * scale, 0, Packed(layout, cache))

    step(0, 4)
    step(4, 4, scale=9.0)  # a draft that is refused
    torch.testing.assert_close(step(4, 2), reference(q[:6], k[:6], v[:6])[4:].float())


def test_values_may_be_narrower_than_keys() -> None:
    """Multi-latent attention has keys of 192 and values of 128."""
    q, k, v = torch.randn(3, 2, 12), torch.randn(3, 2, 12), torch.randn(3, 2, 5)
    layout = Layout([Piece(0, 0, 3)], CPU)
    out = attend(q, k, v, 0, Packed(layout, KVCache(1, 8)))
    torch.testing.assert_close(out, reference(q, k, v).float())


def test_an_empty_place_of_the_cache_gives_no_nan() -> None:
    cache = KVCache(2, 8)
    cache.reserve(8, 2)
    layout = Layout([Piece(0, 0, 2), Piece(1, 3, 2)], CPU)  # slot 1 begins with unwritten places
    out = attend(
        torch.ones(4, 1, 4), torch.ones(4, 1, 4), torch.ones(4, 1, 4), 0, Packed(layout, cache)
    )
    assert out.isfinite().all()
