"""`python app.py doctor`: whether the studio could start with these settings, without starting it.

Reads no weights and downloads nothing. Each line is one finding; the exit status is 0 where all
are fine.
"""

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import diffusers
import huggingface_hub
import torch
from huggingface_hub.errors import LocalEntryNotFoundError

from pipelines.devices import check_dtype, check_kernels, default_dtype, find_device
from pipelines.errors import PipelineError
from pipelines.families import FAMILIES
from pipelines.loading import check_folder, held_sizes
from pipelines.placement import free_bytes, place
from pipelines.specs import ModelSpec, find_spec
from pipelines.text import embedded
from pipelines.text.packed import can_pack
from pipelines.text.packed_folder import is_packed_folder
from studio.engine.text_http.refusals import site_of
from studio.errors import CannotStart
from studio.serving import bind, lock_folder
from studio.settings import Settings


@dataclass(frozen=True, slots=True)
class Finding:
    name: str
    is_fine: bool
    message: str

    def __str__(self) -> str:
        return f"{'fine' if self.is_fine else 'NOT '}  {self.name:8} {self.message}"


def main(settings: Settings) -> int:
    """Print the findings; 0 where all are fine, else 1."""
    findings = list(examine(settings))
    print(*findings, sep="\n")
    return 0 if all(finding.is_fine for finding in findings) else 1


def examine(settings: Settings) -> Iterator[Finding]:
    """Every check, whatever the others say."""
    versions = f"PyTorch {torch.__version__}, diffusers {diffusers.__version__}"
    yield Finding("software", True, f"Python {platform.python_version()}, {versions}")
    yield _tried("device", lambda: _device(settings))
    for model in settings.model:
        yield _tried("model", partial(_model, model))
        yield _tried("memory", partial(_memory, settings, model))
    yield _tried("text", lambda: _text(settings))
    yield _tried("data", lambda: _data(settings.data_dir))
    yield _tried("address", lambda: _address(settings))


def _tried(name: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, check())
    except (PipelineError, CannotStart) as error:
        return Finding(name, False, str(error))


def _device(settings: Settings) -> str:
    device = find_device(settings.device)
    dtype = _dtype(settings, device)
    check_dtype(device, dtype)
    return f"{device} computes in {str(dtype).removeprefix('torch.')}, kernels: {check_kernels()}"


def _dtype(settings: Settings, device: torch.device) -> torch.dtype:
    chosen = settings.dtype
    return default_dtype(device) if chosen == "auto" else getattr(torch, chosen)


def _model(model: str) -> str:
    spec = find_spec(model)
    folder = _folder(spec)
    if folder is None:
        return f"{spec.name} is not on this machine yet: the first start downloads it"
    check_folder(folder, FAMILIES[spec.family])
    return f"{spec.name} is whole in {folder}"


def _folder(spec: ModelSpec) -> Path | None:
    """Of the model's files; None where they would have to be downloaded."""
    folder = Path(spec.source).expanduser()
    if folder.is_dir():
        return folder
    try:
        return Path(huggingface_hub.snapshot_download(spec.source, local_files_only=True))
    except LocalEntryNotFoundError:
        return None


def _memory(settings: Settings, model: str) -> str:
    spec = find_spec(model)
    device, folder = find_device(settings.device), _folder(spec)
    if folder is None:
        return f"its weights take about {spec.weights_gb:.0f} GB in bfloat16"
    sizes = held_sizes(folder, FAMILIES[spec.family], _dtype(settings, device))
    placement = place(spec.name, sizes, free_bytes(device), settings.memory)
    return placement.reason or f"the weights take {sum(sizes.values()) / 1e9:.2f} GB on {device}"


def _text(settings: Settings) -> str:
    if settings.text_engine == "off":
        return "nobody writes text"
    if settings.text_engine == "http":
        site = site_of(settings.text_url or "", settings.text_key)
        return f"{site.url} writes text: the studio looks for it once it runs"
    if settings.text_model is not None:
        return f"{settings.text_model} writes text: it is looked at when it is loaded"
    products = "4-bit products" if can_pack() else "bfloat16: this torch has no 4-bit products"
    folder = settings.data_dir / "text" / embedded.NAME
    if not is_packed_folder(folder):
        return f"{embedded.NAME} is not here yet: the first start fetches 93 MB; {products}"
    return f"{embedded.NAME} is whole in {folder}; {products}"


def _data(folder: Path) -> str:
    lock_folder(folder).release()
    return f"{folder} can be written"


def _address(settings: Settings) -> str:
    bind(settings.host, settings.port).close()
    return f"{settings.host}:{settings.port} is free"
