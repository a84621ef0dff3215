"""From a model's name to its modules on the device, component by component."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.autoencoders.autoencoder_kl_flux2 import AutoencoderKLFlux2
from diffusers.models.modeling_utils import ModelMixin
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
from diffusers.models.transformers.transformer_flux2 import Flux2Transformer2DModel
from safetensors import SafetensorError
from transformers import (
    AutoTokenizer,
    CLIPTextModel,
    Mistral3ForConditionalGeneration,
    PreTrainedTokenizerBase,
    Qwen3ForCausalLM,
    T5EncoderModel,
)
from transformers.utils import logging

from pipelines import schedule
from pipelines.chat_prompts import MISTRAL, QWEN, Chat, ChatPrompts
from pipelines.clip_t5 import ClipT5
from pipelines.errors import LoadFailed
from pipelines.flux import Flux, PromptReader
from pipelines.flux1 import Flux1
from pipelines.flux2 import Flux2
from pipelines.hub import OnProgress, download
from pipelines.specs import ModelSpec, read_json

Parts = Mapping[str, Any]  # component -> module or tokenizer


@dataclass(frozen=True, slots=True)
class Family:
    """The components of a family's folder, and what is made of them."""

    model: type[Flux]
    modules: Mapping[str, Any]  # component -> class, in the order of loading
    tokenizers: tuple[str, ...]
    prompts: Callable[[Parts, ModelSpec, torch.dtype], PromptReader]


def _clip_t5(parts: Parts, spec: ModelSpec, dtype: torch.dtype) -> PromptReader:
    return ClipT5(
        clip=parts["text_encoder"],
        t5=parts["text_encoder_2"],
        clip_tokenizer=parts["tokenizer"],
        t5_tokenizer=parts["tokenizer_2"],
        limit=spec.max_sequence_length,
        dtype=dtype,
    )


def _mistral(parts: Parts, spec: ModelSpec, dtype: torch.dtype) -> PromptReader:
    decoder = parts["text_encoder"].model.language_model
    return _chat(MISTRAL, decoder, parts, spec, dtype)


def _qwen(parts: Parts, spec: ModelSpec, dtype: torch.dtype) -> PromptReader:
    return _chat(QWEN, parts["text_encoder"].model, parts, spec, dtype)


def _chat(
    chat: Chat, decoder: torch.nn.Module, parts: Parts, spec: ModelSpec, dtype: torch.dtype
) -> PromptReader:
    limit, tokenizer = spec.max_sequence_length, parts["tokenizer"]
    return ChatPrompts(chat, decoder=decoder, tokenizer=tokenizer, limit=limit, dtype=dtype)


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
        _mistral,
    ),
    "flux2-klein": Family(
        Flux2,
        {
            "text_encoder": Qwen3ForCausalLM,
            "vae": AutoencoderKLFlux2,
            "transformer": Flux2Transformer2DModel,
        },
        ("tokenizer",),
        _qwen,
    ),
}
BROKEN = (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError)


def default_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where there are units for it; on a CPU float32 is exact and not slower."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def load(
    model_spec: ModelSpec,
    *,
    device: torch.device | str,
    dtype: torch.dtype | None = None,
    token: str | None = None,
    on_progress: OnProgress,
) -> Flux:
    """The model ready to draw; `on_progress` hears what is loading and the share done, 0 to 1.

    Raises ModelGated, ModelNotFound or HubOffline where a repository cannot be had, and LoadFailed,
    naming the file, where a folder is broken or holds another family.
    """
    logging.disable_progress_bar()  # `on_progress` is the one that people see
    device = torch.device(device)
    folder = Path(model_spec.source).expanduser()
    if not folder.is_dir():
        folder = download(model_spec.source, token, on_progress)
    family = FAMILIES[model_spec.family]
    check_folder(folder, family)
    dtype = dtype or default_dtype(device)
    parts = _load_parts(folder, family, device, dtype, on_progress)
    on_progress("Ready", 1.0)
    return family.model(
        model_spec,
        transformer=parts["transformer"],
        vae=parts["vae"],
        prompts=family.prompts(parts, model_spec, dtype),
        scheduler_config=read_json(folder / "scheduler" / "scheduler_config.json"),
    )


def check_folder(folder: Path, family: Family) -> None:
    """Reads every configuration and looks for every weights file, before the slow part."""
    read_json(folder / "model_index.json")
    for name in family.modules:
        read_json(folder / name / "config.json")
        _check_weights(folder / name)
    for name in family.tokenizers:
        read_json(folder / name / "tokenizer_config.json")
    path = folder / "scheduler" / "scheduler_config.json"
    if option := schedule.unsupported_option(read_json(path)):
        raise LoadFailed(f"{path} sets {option}, which no FLUX checkpoint uses.")


def _check_weights(folder: Path) -> None:
    index = next(folder.glob("*.safetensors.index.json"), None)
    if index is None:
        if not any(folder.glob("*.safetensors")):
            raise LoadFailed(f"The model's folder is incomplete: no .safetensors in {folder}.")
        return
    shards = sorted(set(read_json(index).get("weight_map", {}).values()))
    for shard in shards:
        if not (folder / shard).is_file():
            raise LoadFailed(f"The model's folder is incomplete: {folder / shard} is missing.")


def _load_parts(
    folder: Path,
    family: Family,
    device: torch.device,
    dtype: torch.dtype,
    on_progress: OnProgress,
) -> dict[str, Any]:
    """Share of progress by bytes, because the transformer takes most of the time."""
    parts: dict[str, Any] = {name: _tokenizer(folder / name) for name in family.tokenizers}
    sizes = {name: _weights_bytes(folder / name) for name in family.modules}
    done = 0
    for name, module_class in family.modules.items():
        on_progress(f"Loading {name} ({sizes[name] / 1e9:.2f} GB)", done / sum(sizes.values()))
        parts[name] = _module(module_class, folder / name, dtype).to(device).eval()
        done += sizes[name]
    return parts


def _weights_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    return _read(folder, lambda: AutoTokenizer.from_pretrained(folder, local_files_only=True))


def _module(module_class: Any, folder: Path, dtype: torch.dtype) -> torch.nn.Module:
    module, info = _read(
        folder,
        lambda: module_class.from_pretrained(
            folder,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            **_dtype_argument(module_class, dtype),
        ),
    )
    # Both libraries fill a missing tensor with random numbers and only log it.
    if missing := sorted(info["missing_keys"]):
        names = ", ".join(missing[:3])
        raise LoadFailed(f"The weights in {folder} lack {len(missing)} tensors: {names}.")
    return module.requires_grad_(False)


def _dtype_argument(module_class: Any, dtype: torch.dtype) -> dict[str, torch.dtype]:
    is_diffusers = issubclass(module_class, ModelMixin)
    return {"torch_dtype" if is_diffusers else "dtype": dtype}


def _read(folder: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except BROKEN as error:
        raise LoadFailed(f"{folder} cannot be loaded: {error}") from error
