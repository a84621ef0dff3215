"""A FLUX.2 of random weights in diffusers' folder format: dev with Mistral, klein with Qwen."""

import json
from pathlib import Path

import torch
from diffusers.models.autoencoders.autoencoder_kl_flux2 import AutoencoderKLFlux2
from diffusers.models.transformers.transformer_flux2 import Flux2Transformer2DModel
from diffusers.pipelines.flux2.pipeline_flux2 import Flux2Pipeline
from diffusers.pipelines.flux2.pipeline_flux2_klein import Flux2KleinPipeline
from diffusers.schedulers.scheduling_flow_match_euler_discrete import (
    FlowMatchEulerDiscreteScheduler,
)
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    Mistral3Config,
    Mistral3ForConditionalGeneration,
    MistralConfig,
    PixtralVisionConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

MAX_SEQUENCE_LENGTH = 200  # the system message of FLUX.2-dev alone is most of it
HIDDEN = 16

# What the published templates do with one message of each role.
MISTRAL_TEMPLATE = (
    "<s>{% for message in messages %}{% set text = message['content'][0]['text'] %}"
    "{% if message['role'] == 'system' %}[SYSTEM_PROMPT]{{ text }}[/SYSTEM_PROMPT]"
    "{% else %}[INST]{{ text }}[/INST]{% endif %}{% endfor %}"
)
QWEN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
SPECIAL = {
    "mistral": ["<pad>", "<s>", "</s>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]"],
    "qwen": ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"],
}


def make_tiny_flux2(folder: Path) -> Path:
    """Like FLUX.2-dev: guidance embedding, a chat model of 32 layers of which 30 are read."""
    torch.manual_seed(0)
    tokenizer = _tokenizer("mistral", MISTRAL_TEMPLATE)
    Flux2Pipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=_vae(),
        text_encoder=_mistral(len(tokenizer)),
        tokenizer=tokenizer,
        transformer=_transformer(guidance_embeds=True),
    ).save_pretrained(folder)
    return _with_settings(folder, "tiny-flux2")


def make_tiny_klein(folder: Path, *, is_distilled: bool) -> Path:
    """Like FLUX.2-klein: no guidance embedding, a chat model of 29 layers of which 27 are read."""
    torch.manual_seed(0)
    tokenizer = _tokenizer("qwen", QWEN_TEMPLATE)
    Flux2KleinPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True),
        vae=_vae(),
        text_encoder=_qwen(len(tokenizer)),
        tokenizer=tokenizer,
        transformer=_transformer(guidance_embeds=False),
        is_distilled=is_distilled,
    ).save_pretrained(folder)
    return _with_settings(folder, "tiny-klein" if is_distilled else "tiny-klein-base")


def _with_settings(folder: Path, name: str) -> Path:
    settings = {
        "name": name,
        "native_size": [64, 64],
        "min_side_px": 32,
        "max_pixels": 512 * 512,
        "max_sequence_length": MAX_SEQUENCE_LENGTH,
        "licence": "Apache-2.0",
    }
    (folder / "studio.json").write_text(json.dumps(settings))
    return folder


def _tokenizer(kind: str, template: str) -> PreTrainedTokenizerFast:
    """Every byte a token; the special ones before them."""
    special = SPECIAL[kind]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: id_ for id_, token in enumerate([*special, *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=special[0],
        additional_special_tokens=special[1:],
        padding_side="left" if kind == "mistral" else "right",
        model_max_length=4096,
    )
    fast.chat_template = template
    return fast


def _decoder_shape(layers: int, vocabulary: int) -> dict[str, int]:
    return {
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "max_position_embeddings": 512,
    }


def _mistral(vocabulary: int) -> Mistral3ForConditionalGeneration:
    vision = PixtralVisionConfig(
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        image_size=32,
        patch_size=16,
        head_dim=8,
    )
    text = MistralConfig(**_decoder_shape(32, vocabulary))
    return Mistral3ForConditionalGeneration(
        Mistral3Config(text_config=text, vision_config=vision, image_token_index=0)
    )


def _qwen(vocabulary: int) -> Qwen3ForCausalLM:
    return Qwen3ForCausalLM(Qwen3Config(**_decoder_shape(29, vocabulary)))


def _vae() -> AutoencoderKLFlux2:
    vae = AutoencoderKLFlux2(
        block_out_channels=(8, 8, 8, 8),
        layers_per_block=1,
        latent_channels=8,
        norm_num_groups=4,
        mid_block_add_attention=False,
        sample_size=64,
    )
    norm = vae.bn  # as if it had seen latents: a fresh one would do nothing
    norm.running_mean.uniform_(-0.5, 0.5)
    norm.running_var.uniform_(0.2, 3.0)
    return vae


def _transformer(*, guidance_embeds: bool) -> Flux2Transformer2DModel:
    return Flux2Transformer2DModel(
        in_channels=32,
        num_layers=2,
        num_single_layers=3,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=3 * HIDDEN,
        timestep_guidance_channels=32,
        axes_dims_rope=(4, 4, 4, 4),
        guidance_embeds=guidance_embeds,
    )
