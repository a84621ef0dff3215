"""Peak memory of one piece of work, over what the process or the device held before."""

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")


def peak_bytes(device: torch.device, work: Callable[[], object]) -> int:
    """CUDA: of the allocator. CPU: of the process as the kernel sees it, so on Linux only."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - before
    ctypes.CDLL(None).malloc_trim(0)  # freed memory that the allocator kept would hide the rise
    Path("/proc/self/clear_refs").write_text("5")  # sets the high-water mark back
    before = _status_bytes("VmRSS")
    work()
    return _status_bytes("VmHWM") - before


def _status_bytes(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024
