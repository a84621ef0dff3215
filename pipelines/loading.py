"""From a model's name to its modules on the device, component by component."""

import logging
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
from torch import nn
from transformers import (
    AutoTokenizer,
    CLIPTextModel,
    Mistral3ForConditionalGeneration,
    PreTrainedTokenizerBase,
    Qwen3ForCausalLM,
    T5EncoderModel,
)
from transformers.utils import logging as transformers_logging

from pipelines import schedule
from pipelines.chat_prompts import MISTRAL, QWEN, Chat, ChatPrompts, shortened
from pipelines.clip_t5 import ClipT5
from pipelines.compiling import compile_blocks
from pipelines.devices import check_dtype, default_dtype, find_device
from pipelines.errors import LoadFailed
from pipelines.flux import Flux, PromptReader
from pipelines.flux1 import Flux1
from pipelines.flux2 import Flux2
from pipelines.hub import OnProgress, download
from pipelines.placement import Placement, bytes_of_weights, free_bytes, place, put
from pipelines.specs import Memory, ModelSpec, read_json

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
log = logging.getLogger(__name__)
BROKEN = (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError)


def load(
    model_spec: ModelSpec,
    *,
    device: torch.device | str = "auto",
    dtype: torch.dtype | None = None,
    token: str | None = None,
    memory: Memory = "auto",
    compiles: bool = False,
    on_progress: OnProgress,
) -> Flux:
    """The model ready to draw; `on_progress` hears what is loading and the share done, 0 to 1.

    Raises DeviceUnusable before anything is read; ModelGated, ModelNotFound or HubOffline where a
    repository cannot be had; LoadFailed, naming the file, where a folder is broken or holds another
    family; OutOfMemory where the device cannot hold it.
    """
    transformers_logging.disable_progress_bar()  # `on_progress` is the one that people see
    device = find_device(str(device))
    way = Way(device, dtype or default_dtype(device))
    check_dtype(device, way.dtype)
    folder = Path(model_spec.source).expanduser()
    if not folder.is_dir():
        folder = download(model_spec.source, token, on_progress)
    family = FAMILIES[model_spec.family]
    check_folder(folder, family)
    sizes = {name: bytes_of_weights(folder / name, way.dtype) for name in family.modules}
    placement = place(model_spec.name, sizes, free_bytes(device), memory)
    if placement.reason:
        log.warning(placement.reason)
    parts = _load_parts(folder, family, way, placement, on_progress)
    model = family.model(
        model_spec,
        transformer=parts["transformer"],
        vae=parts["vae"],
        prompts=family.prompts(parts, model_spec, way),
        scheduler_config=read_json(folder / "scheduler" / "scheduler_config.json"),
        device=device,
    )
    if compiles and "transformer" in placement.streamed:
        log.warning("The transformer is streamed layer by layer, so it is not compiled.")
    elif compiles:
        compile_blocks(model)
    on_progress("Ready", 1.0)
    return model


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
    folder: Path, family: Family, way: Way, placement: Placement, on_progress: OnProgress
) -> dict[str, Any]:
    """Share of progress by bytes, because the transformer takes most of the time."""
    parts: dict[str, Any] = {name: _tokenizer(folder / name) for name in family.tokenizers}
    sizes = {name: _weights_bytes(folder / name) for name in family.modules}
    done = 0
    for name, module_class in family.modules.items():
        on_progress(f"Loading {name} ({sizes[name] / 1e9:.2f} GB)", done / sum(sizes.values()))
        module = _module(module_class, folder / name, way.dtype)
        used = family.encoder_part(module) if name.startswith("text_encoder") else module
        parts[name] = put(used, way.device, name in placement.streamed).eval()
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
