"""Sparse attention of DeepSeek V3.2: a small indexer chooses the tokens that each token sees.

DeepSeek-AI 2025, "DeepSeek-V3.2-Exp", equation 1: I = sum over heads of w · ReLU(q · k); a token
sees the `index_topk` tokens before it with the highest I. transformers' indexer wants one mask for
one sequence and a cache of its own. Here it hands over queries, keys and weights, and the choice is
made where the sequences are known: in `attention.attend`, group by group.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.deepseek_v32.modeling_deepseek_v32 import (
    DeepseekV32Indexer,
    apply_rotary_pos_emb,
)

from pipelines.text.kv_cache import KVCache
from pipelines.text.layout import Group, Layout


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """What an indexer made of the packed row."""

    query: Tensor  # [tokens, heads, width]
    key: Tensor  # [tokens, width]
    weights: Tensor  # float32 [tokens, heads], with all constant factors
    keeps: int  # tokens that a token sees

    def keep(self, layer: int, layout: Layout, cache: KVCache) -> None:
        """Keep the keys of the packed row, without values, beside those of `layer`."""
        key = self.key[:, None]
        cache.write(_beside(layer), key, key[..., :0], layout)

    def mask(self, layer: int, group: Group, cache: KVCache) -> Tensor:
        """True where a query sees a key, `[rows, 1, count, length]`."""
        keys = cache.read(_beside(layer), group, self.query.dtype)[0].float()
        part = slice(group.first, group.first + group.rows * group.count)
        query = self.query[part].float().view(group.rows, group.count, -1, keys.shape[-1])
        scores = torch.relu(query.transpose(1, 2) @ keys.transpose(-1, -2))
        weights = self.weights[part].view(group.rows, group.count, -1, 1).transpose(1, 2)
        index = (scores * weights).sum(dim=1, keepdim=True)  # [rows, 1, count, length]
        causal = group.mask(None, 1, index.device)
        if causal is not None:
            index = index.masked_fill(~causal, -math.inf)
        chosen = torch.zeros_like(index, dtype=torch.bool)
        chosen.scatter_(-1, index.topk(min(self.keeps, group.length), dim=-1).indices, True)
        return chosen if causal is None else chosen & causal


def _beside(layer: int) -> int:
    """The cache's layers that no model and no draft head counts."""
    return -1 - layer


class PackedIndexer(nn.Module):
    """transformers' indexer, which leaves the choice to the attention that is ours."""

    def __init__(self, indexer: DeepseekV32Indexer) -> None:
        super().__init__()
        self.indexer = indexer

    def forward(
        self,
        hidden_states: Tensor,  # [1, tokens, width]
        q_resid: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        *others: Any,
        **more: Any,
    ) -> IndexQuery | Tensor:
        """As the indexer; with attention that is transformers' own, its very answer."""
        theirs = self.indexer
        if theirs.config._attn_implementation != "studio":
            chosen: Tensor = theirs(hidden_states, q_resid, position_embeddings, *others, **more)
            return chosen
        turned = theirs.qk_rope_head_dim
        query = theirs.wq_b(q_resid).view(1, -1, theirs.n_heads, theirs.head_dim)
        key = theirs.k_norm(theirs.wk(hidden_states))[:, :, None]
        query_turned, key_turned = apply_rotary_pos_emb(
            query[..., :turned], key[..., :turned], *position_embeddings, unsqueeze_dim=2
        )
        weights = theirs.weights_proj(hidden_states.to(theirs.weights_proj.weight.dtype)).float()
        return IndexQuery(
            torch.cat([query_turned, query[..., turned:]], dim=-1)[0],
            torch.cat([key_turned, key[..., turned:]], dim=-1)[0, :, 0],
            weights[0] * theirs.n_heads**-0.5 * theirs.softmax_scale,
            theirs.index_topk,
        )


def pack_indexers(model: PreTrainedModel) -> dict[str, Any]:
    """Put `PackedIndexer` where the model has indexers; what its forward must be given then."""
    found = [
        module
        for module in model.modules()
        if isinstance(getattr(module, "indexer", None), DeepseekV32Indexer | PackedIndexer)
    ]
    for module in found:
        if isinstance(module.indexer, DeepseekV32Indexer) and not isinstance(module, PackedIndexer):
            module.indexer = PackedIndexer(module.indexer)
    if not found:
        return {}
    # It is cut and handed on, and nobody reads it; without one the layers fail.
    mask = torch.zeros(1, 1, 1, 1, device=model.device)
    return {"attention_mask": {"indexed_attention": mask}}
