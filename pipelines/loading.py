"""From a model's name to its modules on the device, component by component."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from diffusers.models.modeling_utils import ModelMixin
from diffusers.utils import logging as diffusers_logging
from safetensors import SafetensorError
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from kernels.backend import Choice
from kernels.vae import use_faster, use_kernels
from pipelines import schedule
from pipelines.compiling import compile_blocks
from pipelines.devices import check_dtype, check_kernels, default_dtype, find_device
from pipelines.errors import LoadFailed
from pipelines.families import FAMILIES, Family, Way
from pipelines.flux import Flux
from pipelines.graphs import CudaRecorder, Graphs
from pipelines.hub import OnProgress, download
from pipelines.placement import Placement, bytes_of_weights, free_bytes, place, put
from pipelines.read_ahead import has_room, read_ahead
from pipelines.specs import Memory, ModelSpec, read_json, vae_scale

log = logging.getLogger(__name__)
READ = 0.8  # of a component's progress; the rest is for its placing
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
    for library in (transformers_logging, diffusers_logging):
        library.disable_progress_bar()  # `on_progress` is the one that people see
    device = find_device(str(device))
    way = Way(device, dtype or default_dtype(device))
    check_dtype(device, way.dtype)
    kernels = check_kernels()
    family = FAMILIES[model_spec.family]
    folder = locate(model_spec, token, on_progress)
    sizes = held_sizes(folder, family, way.dtype)
    placement = place(model_spec.name, sizes, free_bytes(device), memory)
    if placement.reason:
        log.warning(placement.reason)
    parts = _load_parts(folder, family, way, placement, on_progress)
    _swap_kernels(parts["vae"], model_spec, way, kernels, on_progress)
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
        if device.type == "cuda":
            model.graphs = Graphs(model.transformer, CudaRecorder(device))
    on_progress("Ready", 1.0)
    return model


def weights_bytes(
    model_spec: ModelSpec,
    *,
    device: torch.device | str = "auto",
    dtype: torch.dtype | None = None,
    token: str | None = None,
    on_progress: OnProgress,
) -> int:
    """What all weights of a model take once loaded; downloads those that are not here.

    Raises as `load` does before it reads weights.
    """
    folder = locate(model_spec, token, on_progress)
    held = held_sizes(
        folder, FAMILIES[model_spec.family], dtype or default_dtype(find_device(str(device)))
    )
    return sum(held.values())


def locate(model_spec: ModelSpec, token: str | None, on_progress: OnProgress) -> Path:
    """A whole folder of the model, downloaded where it is not here."""
    folder = Path(model_spec.source).expanduser()
    if not folder.is_dir():
        folder = download(model_spec.source, token, on_progress)
    check_folder(folder, FAMILIES[model_spec.family])
    return folder


def held_sizes(folder: Path, family: Family, dtype: torch.dtype) -> dict[str, int]:
    """Bytes of each component's weights in `dtype`."""
    return {name: bytes_of_weights(folder / name, dtype) for name in family.modules}


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
    parts: dict[str, Any] = {name: _tokenizer(folder / name) for name in family.tokenizers}
    files = {name: _weights_files(folder / name) for name in family.modules}
    tell = Told({name: sum(p.stat().st_size for p in files[name]) for name in files}, on_progress)
    for name, module_class in family.modules.items():
        tell.loading(name)
        if has_room(files[name]):
            _read(folder / name, partial(read_ahead, files[name], partial(tell.read, name)))
        module = _module(module_class, folder / name, way.dtype)
        used = family.encoder_part(module) if name.startswith("text_encoder") else module
        parts[name] = put(used, way.device, name in placement.streamed).eval()
    return parts


@torch.inference_mode()
def _swap_kernels(
    vae: Any, model_spec: ModelSpec, way: Way, kernels: Choice, on_progress: OnProgress
) -> None:
    """Lets the VAE run on the kernels, on CUDA where a native picture is decoded faster by them."""
    if kernels == "torch":
        return
    if kernels == "triton" or way.device.type != "cuda":
        return use_kernels(vae)
    on_progress("Measuring the VAE's kernels", 1.0)
    scale = vae_scale(vae.config)
    size = (model_spec.native_height // scale, model_spec.native_width // scale)
    shape = (1, vae.config["latent_channels"], *size)
    if not use_faster(vae, torch.zeros(shape, device=way.device, dtype=way.dtype)):
        log.warning("diffusers' own VAE stays: by the kernels it is not faster on this device.")


@dataclass(frozen=True, slots=True)
class Told:
    """Progress in bytes of all components' files, which are read in the order of `sizes`."""

    sizes: Mapping[str, int]
    on_progress: OnProgress

    def loading(self, component: str) -> None:
        self._tell(f"Loading {component} ({self.sizes[component] / 1e9:.2f} GB)", component, 0)

    def read(self, component: str, count: int) -> None:
        """So many bytes of this component are read; they still have to be placed."""
        size = self.sizes[component]
        words = f"Loading {component} ({count / 1e9:.2f} of {size / 1e9:.2f} GB)"
        self._tell(words, component, READ * count)

    def _tell(self, words: str, component: str, done: float) -> None:
        names = list(self.sizes)
        before = sum(self.sizes[name] for name in names[: names.index(component)])
        self.on_progress(words, (before + done) / (sum(self.sizes.values()) or 1))


def _weights_files(folder: Path) -> list[Path]:
    """Those that are loaded: the index's where there are shards, else the one of no variant."""
    if index := next(folder.glob("*.safetensors.index.json"), None):
        return sorted({folder / shard for shard in read_json(index).get("weight_map", {}).values()})
    return [path for path in folder.glob("*.safetensors") if "." not in path.stem]


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
