"""Attention of packed tokens over the cache of their sequences, for every model of transformers.

transformers asks the function that `attn_implementation` names; `packed_attention` is registered as
`"studio"`. The layout and the cache arrive as keyword arguments of the model's forward. No mask is
registered for the name, so transformers builds none: the groups know what each token sees.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, PreTrainedModel

from pipelines.text.kv_cache import KVCache
from pipelines.text.layout import Group, Layout
from pipelines.text.sparse_attention import IndexQuery

NAME = "studio"


@dataclass(frozen=True, slots=True)
class Packed:
    """What attention needs beside the tokens: where they stand, and where keys are kept."""

    layout: Layout
    cache: KVCache


def attend(
    query: Tensor,  # [tokens, heads, width]
    key: Tensor,  # [tokens, key heads, width]
    value: Tensor,  # [tokens, key heads, value width]
    layer: int,
    packed: Packed,
    *,
    scale: float | None = None,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,  # [heads]
    index: IndexQuery | None = None,
) -> Tensor:  # [tokens, heads * value width]
    """Keep keys and values, and let each token see its own sequence up to itself.

    `sinks` are logits that take part in the softmax and carry no value (GPT-OSS). `index` chooses
    the tokens that are seen (DeepSeek V3.2); it comes with no window.
    """
    packed.cache.write(layer, key, value, packed.layout)
    if index is not None:
        index.keep(layer, packed.layout, packed.cache)
    parts = []
    for group in packed.layout.groups:
        keys, values = packed.cache.read(layer, group, query.dtype)
        part = query[group.first : group.first + group.rows * group.count]
        fold = query.shape[1] // keys.shape[1]
        mask = group.mask(window, fold, query.device)
        if index is not None and group.length > index.keeps:
            mask = index.mask(layer, group, packed.cache).repeat(1, 1, fold, 1)
        parts.append(_attend_group(part, keys, values, group, mask, scale, softcap, sinks))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attend_group(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    group: Group,
    mask: Tensor | None,
    scale: float | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    rows, count, (heads, width) = group.rows, group.count, query.shape[1:]
    shared = keys.shape[1]
    fold = heads // shared
    # Heads that share a key become more queries of it: no key is copied, and a quarter of the time
    # of `enable_gqa` on a CPU (29 against 174 us: 9 heads over 3, 256 keys, one thread).
    folded = query.view(rows, count, shared, fold, width).permute(0, 2, 3, 1, 4)
    folded = folded.reshape(rows, shared, fold * count, width)
    if sinks is None and softcap is None:
        out = functional.scaled_dot_product_attention(
            folded, keys, values, attn_mask=mask, scale=scale
        )
    else:
        out = _plain_attention(folded, keys, values, mask, scale, softcap, sinks, fold)
    out = out.view(rows, shared, fold, count, -1).permute(0, 3, 1, 2, 4)
    return out.reshape(rows * count, -1)


def _plain_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    scale: float | None,
    softcap: float | None,
    sinks: Tensor | None,
    fold: int,
) -> Tensor:
    """What `scaled_dot_product_attention` cannot: capped logits, and sinks beside the keys."""
    logits = query @ keys.transpose(-1, -2) * (scale or 1 / math.sqrt(query.shape[-1]))
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf)
    if sinks is None:
        return torch.softmax(logits, dim=-1) @ values
    rows, shared, queries, _ = logits.shape
    sink = sinks.view(1, shared, fold, 1).expand(rows, shared, fold, queries // fold)
    logits = torch.cat([logits, sink.reshape(rows, shared, queries, 1).to(logits.dtype)], dim=-1)
    return torch.softmax(logits, dim=-1)[..., :-1] @ values


def packed_attention(
    module: nn.Module,
    query: Tensor,  # [1, heads, tokens, width]
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packed: Packed,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    indices: IndexQuery | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The signature of transformers' attention functions; answers `[1, tokens, heads, width]`."""
    assert (attention_mask is None or indices is not None) and query.shape[0] == 1
    out = attend(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        int(module.layer_idx),
        packed,
        scale=scaling,
        window=sliding_window,
        softcap=softcap,
        sinks=s_aux,
        index=indices,
    )
    return out.view(1, query.shape[2], query.shape[1], -1), None


def set_attention(module: PreTrainedModel, name: str = NAME) -> None:
    """Let the decoder attend by `name`. A vision tower beside it keeps what it has."""
    module.get_decoder().set_attn_implementation(name)


AttentionInterface.register(NAME, packed_attention)
