"""What a checkpoint's own files say of it: its context, its ends, the number format to serve in."""

from collections.abc import Iterable
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

UNKNOWN_CONTEXT = 2048  # where no file says: what the oldest models have
LARGE_BYTES = 1e9

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def context_tokens(config: PreTrainedConfig) -> int:
    """Tokens that prompt and answer may have together.

    Yarn's factor widens what the model was trained for; files name one of both or the product.
    LongRoPE turns all tokens by other angles once a text is longer than the first range: texts
    that share a forward cannot, so they stay within it. Dynamic scaling begins beyond the context
    alone and never comes to act.
    """
    text = config.get_text_config()
    most = getattr(text, "max_position_embeddings", None)
    if not most:
        return UNKNOWN_CONTEXT
    widths = [int(most)]
    for rope in _ropes(text):
        trained = rope.get("original_max_position_embeddings")
        if rope.get("rope_type") == "longrope":
            trained = trained or getattr(text, "original_max_position_embeddings", None)
            return min(int(most), int(trained or most))
        if rope.get("rope_type") == "yarn" and trained and rope.get("factor"):
            widths.append(int(trained * rope["factor"]))
    return max(widths)


def _ropes(config: PreTrainedConfig) -> list[dict[str, Any]]:
    """The rotary settings: one, or one for each kind of layer."""
    rope = getattr(config, "rope_parameters", None) or {}
    nested = [value for value in rope.values() if isinstance(value, dict)]
    return nested or [rope]


def end_ids(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Tokens that end a text. A chat model has several: one of a turn, one of a document."""
    generation = module.generation_config
    named = (
        getattr(generation, "eos_token_id", None),
        getattr(module.config.get_text_config(), "eos_token_id", None),
        tokenizer.eos_token_id,
    )
    return tuple(sorted({token for ids in named for token in _listed(ids)}))


def _listed(ids: int | Iterable[int] | None) -> list[int]:
    if ids is None:
        return []
    return [ids] if isinstance(ids, int) else list(ids)


def choose_dtype(
    asked: str, device: torch.device, kept: torch.dtype | None, weights_bytes: int
) -> torch.dtype:
    """The number format to serve in; `kept` is that of the files.

    Writing reads every weight for each token, so half the bytes are twice the speed, on a CPU as
    well (44 against 66 ms a token, 135M, two threads of a Zen 4). A small model in float32 was left
    so for its precision, and is fast anyway. float16 is not chosen: weights made in bfloat16
    overflow in it.
    """
    if asked != "auto":
        return DTYPES[asked]
    is_half = kept in (torch.float16, torch.bfloat16)
    if device.type == "cuda" or is_half or weights_bytes > LARGE_BYTES:
        return torch.bfloat16
    return torch.float32
