"""Random language models of every served architecture, small enough for one core.

Their tokens are numbers, so that a text tells its tokens. The weights are large for their size:
attention must matter, or a wrong mask would pass.
"""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    DeepseekV3Config,
    DeepseekV32Config,
    GptOssConfig,
    Kimi_K25Config,
    Kimi_K25ForConditionalGeneration,
    LlamaConfig,
    MistralConfig,
    Olmo3Config,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3MoeConfig,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from pipelines.text.attention import set_attention
from pipelines.text.language_model import LanguageModel
from pipelines.text.loading import load_text_model
from pipelines.text.tokens import Tokens

VOCABULARY = 96
CONTEXT = 128
WINDOW = 8  # shorter than any prompt of the tests
TOP_K = 8
PICTURE = 90  # the token that marks one
CHAT = (
    "{% for m in messages %}{% if m.content is string %}{{ m.content }} {% else %}"
    "{% for part in m.content %}{{ '90' if part.type == 'image' else part.text }} {% endfor %}"
    "{% endif %}{% endfor %}"
)

_SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_MLA = {
    **{name: size for name, size in _SIZES.items() if name != "head_dim"},
    "num_key_value_heads": 4,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 12,
    "kv_lora_rank": 12,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "v_head_dim": 10,
}
CONFIGS: dict[str, Callable[[], PreTrainedConfig]] = {
    "llama": lambda: LlamaConfig(**_SIZES),
    "mistral": lambda: MistralConfig(**_SIZES, sliding_window=WINDOW),
    "qwen3": lambda: Qwen3Config(**_SIZES),
    "qwen3-moe": lambda: Qwen3MoeConfig(
        **_SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16
    ),
    "olmo3": lambda: Olmo3Config(
        **_SIZES,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
    ),
    "gpt-oss": lambda: GptOssConfig(
        **_SIZES, sliding_window=WINDOW, num_local_experts=4, num_experts_per_tok=2
    ),
    "deepseek-v3": lambda: DeepseekV3Config(**_MLA, num_mtp_layers=0),
    "deepseek-v3.2": lambda: DeepseekV32Config(
        **_MLA, index_topk=TOP_K, index_n_heads=8, index_head_dim=8
    ),
}


def make_module(name: str, seed: int = 0, **changes: Any) -> PreTrainedModel:
    """transformers' model of random weights in float32, with attention that is ours."""
    config = CONFIGS[name]()
    for field, value in changes.items():
        setattr(config, field, value)
    torch.manual_seed(seed)
    module = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)](config).eval().requires_grad_(False)
    set_attention(module)
    for parameter in module.parameters():  # norms and biases, too: all must be looked at
        parameter.add_(0.1 * torch.randn(parameter.shape))
    module.generation_config.eos_token_id = None
    return module


def make_kimi() -> PreTrainedModel:
    """Kimi K2.5: a DeepSeek-V3 that sees pictures in patches of 4 pixels."""
    config = Kimi_K25Config(
        text_config=CONFIGS["deepseek-v3"]().to_dict(),
        vision_config={
            "patch_size": 4,
            "pos_emb_height": 8,
            "pos_emb_width": 8,
            "num_attention_heads": 2,
            "num_hidden_layers": 2,
            "hidden_size": 16,
            "intermediate_size": 24,
        },
        projection_hidden_size=16,
        image_token_id=PICTURE,
        video_token_id=91,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    module = Kimi_K25ForConditionalGeneration(config).eval().requires_grad_(False)
    for parameter in module.parameters():
        parameter.add_(0.1 * torch.randn(parameter.shape))
    module.lm_head.weight[PICTURE : PICTURE + 2] = 0  # marks are not written
    module.generation_config.eos_token_id = None
    set_attention(module)
    return module


def make_tokenizer(*, chats: bool = False) -> PreTrainedTokenizerFast:
    """Each number below the size of the vocabulary is a token."""
    words = {str(number): number for number in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, chat_template=CHAT if chats else None
    )


def make_model(name: str) -> LanguageModel:
    """A language model that nothing ends but the limit."""
    return language_model(make_module(name), name)


def language_model(
    module: PreTrainedModel, name: str = "tiny", *, chats: bool = False
) -> LanguageModel:
    """`module` with the tokenizer of numbers."""
    tokens = Tokens(make_tokenizer(chats=chats), ())
    return LanguageModel(name, module, tokens, context_tokens=CONTEXT)


def save(folder: Path, module: PreTrainedModel, *, chats: bool = True) -> Path:
    """A folder as people have it."""
    module.save_pretrained(folder)
    make_tokenizer(chats=chats).save_pretrained(folder)
    return folder


def load(
    source: Path | str,
    folder: Path,
    progress: Callable[[str, float | None], None] = lambda words, share: None,
    **options: Any,
) -> LanguageModel:
    """As the studio does; conversions lie in `folder` / data."""
    settings: dict[str, Any] = {"device": "cpu", "dtype": "auto", "token": None} | options
    return load_text_model(str(source), folder=folder / "data", progress=progress, **settings)


class Stock:
    """transformers' own answers for the same weights."""

    def __init__(self, module: PreTrainedModel) -> None:
        self.module = copy.deepcopy(module)
        self.module.set_attn_implementation("eager")

    @torch.no_grad()
    def generate(self, ids: Sequence[int], count: int, **more: Any) -> list[int]:
        """The likeliest tokens, one after the other."""
        prompt = torch.tensor([list(ids)])
        out = self.module.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=count,
            **more,
        )
        return list(out[0, len(ids) :].tolist())

    @torch.no_grad()
    def gap(self, ids: Sequence[int], one: int, other: int) -> float:
        """How far apart the logits of two next tokens are."""
        logits = self.module(input_ids=torch.tensor([list(ids)])).logits[0, -1]
        return abs(float(logits[one] - logits[other]))


def text_of(ids: Sequence[int]) -> str:
    """What the tokenizer reads as these tokens."""
    return " ".join(map(str, ids))


def random_ids(count: int, seed: int) -> list[int]:
    """A prompt."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCABULARY, (count,), generator=generator).tolist()
