"""Which parts of a model stay on the device and which are streamed to it layer by layer.

Text encoders are streamed first: they run once a prompt. The transformer, which runs in every step,
only where it does not fit without them. The VAE always stays.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from diffusers.hooks import apply_group_offloading
from torch import nn

from pipelines.errors import LoadFailed, OutOfMemory
from pipelines.specs import Memory

# What steps and decodes of pictures at native size need beside the weights; both are bounded by
# what is left when the weights are there.
WORKING_BYTES = 4 * 10**9
SPARE = 1.5  # times its weights that a model needs in main memory: it is read beside its files
GB = 10**9


@dataclass(frozen=True, slots=True)
class Placement:
    streamed: frozenset[str] = frozenset()  # components
    reason: str = ""  # a sentence, where something is streamed


def free_bytes(device: torch.device) -> int | None:
    """What can be allocated on a CUDA device; None elsewhere: nothing to choose there."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def fits_beside(weights: int, device: torch.device) -> bool:
    """Whether these bytes can be held beside what is loaded, on the device or in main memory."""
    free = free_bytes(device)
    if free is None:
        return weights * SPARE <= psutil.virtual_memory().available
    return weights + WORKING_BYTES <= free


def place(name: str, sizes: Mapping[str, int], free: int | None, memory: Memory) -> Placement:
    """`sizes`: bytes of each component as it will be held.

    Raises OutOfMemory where the VAE and what works beside streamed parts have no room.
    """
    encoders = frozenset(each for each in sizes if each.startswith("text_encoder"))
    everything = encoders | {"transformer"}
    if free is None or memory == "full":
        return Placement()
    if memory == "offload":
        return Placement(everything, f"{name} is streamed to the device layer by layer, as asked.")
    needs = f"{name} needs {_gb(sum(sizes.values()))} and {_gb(free)} are free"
    room = free - WORKING_BYTES
    if _left(sizes, frozenset()) <= room:
        return Placement()
    if _left(sizes, encoders) <= room:
        return Placement(encoders, f"{needs}: its text encoders are streamed, layer by layer.")
    if _left(sizes, everything) <= room:
        reason = "its text encoders and its transformer are streamed, layer by layer, in every step"
        return Placement(everything, f"{needs}: {reason}.")
    least = _left(sizes, everything) + WORKING_BYTES
    raise OutOfMemory(
        f"{needs}; streamed it still needs {_gb(least)}. Free memory on the device, or serve a "
        "smaller model."
    )


def _left(sizes: Mapping[str, int], streamed: Iterable[str]) -> int:
    return sum(size for name, size in sizes.items() if name not in streamed)


def _gb(size: int) -> str:
    return f"{size / GB:.1f} GB"


def put(module: nn.Module, device: torch.device, is_streamed: bool) -> nn.Module:
    """On the device, or in main memory with hooks that bring each layer when it runs."""
    if not is_streamed:
        return module.to(device)
    # Copies on a stream of their own keep the weights in main memory: nothing is copied back.
    apply_group_offloading(
        module, device, offload_type="leaf_level", use_stream=device.type == "cuda"
    )
    return module


def bytes_of_weights(folder: Path, dtype: torch.dtype) -> int:
    """What the tensors of a component's safetensors take in `dtype`, by the files' headers.

    Raises LoadFailed for a file without one.
    """
    elements = sum(_elements(path) for path in folder.glob("*.safetensors"))
    return elements * dtype.itemsize


def _elements(path: Path) -> int:
    """https://github.com/huggingface/safetensors#format: its length, then JSON."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        return sum(
            math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__"
        )
    except (OSError, ValueError, KeyError, AttributeError, OverflowError, MemoryError) as error:
        raise LoadFailed(f"{path} cannot be loaded: it is no safetensors file.") from error
