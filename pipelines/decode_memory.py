"""How many pixels one decode may hold, measured where memory is the bound."""

from collections.abc import Callable
from typing import Protocol

import torch

from pipelines.flux import Flux

# A batch gains nothing on a CPU: the embedded model's VAE took 106 ms for one picture of 256 x 256
# and 107, 171 and 211 ms each for two, four and eight; at 128 x 128 26 for one, 27 each for two to
# eight (one thread). Small ones may go together, so that a tick ends their decode at once.
CPU_MAX_PX = 256 * 256
# FLUX's widest tensor of full size has 256 channels; CUDA's kernels index 2^31 elements at most,
# and split or fall back to slower ones beyond.
INDEX_MAX_PX = (2**31 - 1) // 256
SHARE = 0.25  # of what is free once the model is loaded; steps run at the same time in the rest
PROBE_PX = 256  # a side; what does not grow with the picture makes this err to the safe side


class DeviceMemory(Protocol):
    def free_bytes(self) -> int:
        """What can be allocated now."""

    def peak_bytes(self, work: Callable[[], object]) -> int:
        """What `work` allocates at its peak, above what there is already."""


class CudaMemory:
    def __init__(self, device: torch.device) -> None:
        self._device = device

    def free_bytes(self) -> int:
        free, _ = torch.cuda.mem_get_info(self._device)
        cached = torch.cuda.memory_reserved(self._device)
        return free + cached - torch.cuda.memory_allocated(self._device)

    def peak_bytes(self, work: Callable[[], object]) -> int:
        torch.cuda.reset_peak_memory_stats(self._device)
        before = torch.cuda.memory_allocated(self._device)
        work()
        return torch.cuda.max_memory_allocated(self._device) - before


def measure_max_px(model: Flux, memory: DeviceMemory | None = None) -> int:
    """Pixels of all pictures in a plain decode. Asks `memory`, by default a CUDA device's own."""
    if memory is None and model.device.type == "cuda":
        memory = CudaMemory(model.device)
    if memory is None:
        return CPU_MAX_PX
    side = max(1, PROBE_PX // model.spec.size_multiple) * model.spec.size_multiple
    a_pixel = memory.peak_bytes(lambda: _decode_noise(model, side)) / side**2
    return min(INDEX_MAX_PX, int(SHARE * memory.free_bytes() / a_pixel))


@torch.inference_mode()
def _decode_noise(model: Flux, side: int) -> None:
    grid = model.grid(side, side)
    generator = torch.Generator("cpu").manual_seed(0)
    model.decode(model.draw_noise(grid, generator)[None].to(model.device), grid)
