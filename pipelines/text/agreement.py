"""Whether a model can be served: refused by name where that tells, else tried on a few tokens.

Our attention stands in for transformers' own. A model that does without it, or wants of it what it
cannot, would not fail: it would write nonsense. So a model is asked both ways before it serves.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from pipelines.errors import LoadFailed
from pipelines.text.attention import set_attention
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel, Read

SERVED_LAYERS = {"full_attention", "sliding_attention"}
NARROW = 5  # tokens: a window as short as this shows within a dozen

# Mean over the tokens of |ours - theirs| / |theirs|. Tiny random models: 6e-7, 0.003 and 0.02, with
# a choice of tokens that a rounding turns (DeepSeek V3.2 narrowed) up to 0.015 and 0.09; a wrong
# window or choice gives 0.5 to 0.8.
TOLERANCE = {torch.float32: 1e-3, torch.float16: 0.05, torch.bfloat16: 0.2}

# What a module raises that is called as it does not expect.
FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


class NotServed(LoadFailed):
    """The weights may be fine, but this engine does not run such a model."""


def not_served(name: str, because: str) -> NotServed:
    """The sentence for all of them."""
    return NotServed(
        f"{name} cannot be served by this engine yet: {because}. Serve it with another one (vLLM, "
        "llama.cpp, …) and name that by --text-engine http, or choose another --text-model."
    )


def check_architecture(
    name: str, config: PreTrainedConfig, module_class: type[PreTrainedModel]
) -> None:
    """Raises `NotServed` for what can be told without weights."""
    text = config.get_text_config()
    if getattr(config, "is_encoder_decoder", False):
        raise not_served(name, "it is an encoder with a decoder, not a causal language model")
    if module_class._is_stateful:
        raise not_served(name, f"{text.model_type} has layers that keep a recurrent state")
    served = SERVED_LAYERS | ({"indexed_attention"} if text.model_type == "deepseek_v32" else set())
    if others := sorted(set(getattr(text, "layer_types", None) or ()) - served):
        raise not_served(name, f"its attention has layers of the kind {', '.join(others)}")
    if not module_class._supports_attention_backend:
        raise not_served(name, f"the attention of {text.model_type} cannot be exchanged")


@torch.no_grad()
def check_agreement(model: LanguageModel) -> None:
    """Raises `NotServed` where our logits are not those of transformers' own attention."""
    one, other = _ids(model, 15, 3), _ids(model, 10, 5)
    try:
        with _narrowed(model.module):
            ours = _packed(model, one, other)
            theirs = [_stock(model.module, ids) for ids in (one, other)]
    except FAILURES as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise not_served(model.name, f"its attention is not as we know it ({said})") from error
    expected = torch.cat(theirs)
    apart = ((torch.cat(ours) - expected).norm(dim=-1) / expected.norm(dim=-1)).mean()
    allowed = TOLERANCE[model.dtype]
    if not apart <= allowed:  # NaN fails, too
        raise not_served(
            model.name,
            f"its attention does not agree with transformers' own (logits differ by {apart:.2g} of "
            f"their size, where {allowed} is rounding)",
        )


def _ids(model: LanguageModel, count: int, stride: int) -> list[int]:
    """Low numbers: bytes and letters in most vocabularies, no markers of pictures."""
    size = min(int(model.config.vocab_size), 256)
    return [(11 + stride * place) % size for place in range(count)]


def _packed(model: LanguageModel, one: list[int], other: list[int]) -> list[Tensor]:
    """Two sequences as the engine reads them: a piece, a further one, both, both by a token."""
    cache = KVCache(2, len(one))
    first = model.read([Read(0, 0, one[:8])], cache)
    second = model.read([Read(0, 8, one[8:12])], cache)
    third = model.read([Read(0, 12, one[12:-1]), Read(1, 0, other[:-1])], cache)
    last = model.read([Read(0, len(one) - 1, one[-1:]), Read(1, len(other) - 1, other[-1:])], cache)
    count = len(one) - 13
    parts = ([first, second, third[:count], last[:1]], [third[count:], last[1:]])
    return [model.logits(torch.cat(part)) for part in parts]


def _stock(module: PreTrainedModel, ids: list[int]) -> Tensor:  # float32 [tokens, vocabulary]
    set_attention(module, "eager")
    try:
        tokens = torch.tensor([ids], device=module.device)
        logits: Tensor = module(input_ids=tokens, use_cache=False).logits
    finally:
        set_attention(module)
    return logits[0].float()


@contextmanager
def _narrowed(module: PreTrainedModel) -> Iterator[None]:
    """Windows of `NARROW` tokens, so that few tokens show whether they are heeded."""
    kept: list[tuple[Any, str, int]] = []
    for holder in (module.config.get_text_config(), *module.modules()):
        for field in ("sliding_window", "index_topk"):
            size = getattr(holder, field, None)
            if isinstance(size, int) and size > NARROW:
                kept.append((holder, field, size))
                setattr(holder, field, NARROW)
    try:
        yield
    finally:
        for holder, field, size in kept:
            setattr(holder, field, size)
