"""The families: which components a folder holds, and what is made of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.autoencoders.autoencoder_kl_flux2 import AutoencoderKLFlux2
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
from diffusers.models.transformers.transformer_flux2 import Flux2Transformer2DModel
from torch import nn
from transformers import (
    CLIPTextModel,
    Mistral3ForConditionalGeneration,
    Qwen3ForCausalLM,
    T5EncoderModel,
)

from pipelines.chat_prompts import MISTRAL, QWEN, Chat, ChatPrompts, shortened
from pipelines.clip_t5 import ClipT5
from pipelines.flux import Flux, PromptReader
from pipelines.flux1 import Flux1
from pipelines.flux2 import Flux2
from pipelines.specs import ModelSpec

Parts = Mapping[str, Any]  # component -> module or tokenizer


@dataclass(frozen=True, slots=True)
class Way:
    """How the parts of a model compute."""

    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Family:
    """The components of a family's folder, and what is made of them."""

    model: type[Flux]
    modules: Mapping[str, Any]  # component -> class, in the order of loading
    tokenizers: tuple[str, ...]
    prompts: Callable[[Parts, ModelSpec, Way], PromptReader]
    encoder_part: Callable[[Any], nn.Module] = lambda module: module  # of it what is used


def _clip_t5(parts: Parts, spec: ModelSpec, way: Way) -> PromptReader:
    return ClipT5(
        clip=parts["text_encoder"],
        t5=parts["text_encoder_2"],
        clip_tokenizer=parts["tokenizer"],
        t5_tokenizer=parts["tokenizer_2"],
        limit=spec.max_sequence_length,
        device=way.device,
        dtype=way.dtype,
    )


def _chat(chat: Chat) -> Callable[[Parts, ModelSpec, Way], PromptReader]:
    def prompts(parts: Parts, spec: ModelSpec, way: Way) -> PromptReader:
        return ChatPrompts(
            chat,
            decoder=parts["text_encoder"],
            tokenizer=parts["tokenizer"],
            limit=spec.max_sequence_length,
            device=way.device,
            dtype=way.dtype,
        )

    return prompts


FAMILIES = {
    "flux1": Family(
        Flux1,
        {
            "text_encoder": CLIPTextModel,
            "text_encoder_2": T5EncoderModel,
            "vae": AutoencoderKL,
            "transformer": FluxTransformer2DModel,
        },
        ("tokenizer", "tokenizer_2"),
        _clip_t5,
    ),
    "flux2": Family(
        Flux2,
        {
            "text_encoder": Mistral3ForConditionalGeneration,
            "vae": AutoencoderKLFlux2,
            "transformer": Flux2Transformer2DModel,
        },
        ("tokenizer",),
        _chat(MISTRAL),
        lambda whole: shortened(whole.model.language_model, MISTRAL),
    ),
    "flux2-klein": Family(
        Flux2,
        {
            "text_encoder": Qwen3ForCausalLM,
            "vae": AutoencoderKLFlux2,
            "transformer": Flux2Transformer2DModel,
        },
        ("tokenizer",),
        _chat(QWEN),
        lambda whole: shortened(whole.model, QWEN),
    ),
}
