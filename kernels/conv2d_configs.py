"""The tiles in which the convolution's kernel can be run."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from kernels.backend import triton


@dataclass(frozen=True, slots=True)
class Config:
    """A tile's output pixels, output channels and input channels; how it is run."""

    pixels: int
    channels: int
    depth: int
    warps: int
    stages: int

    @property
    def name(self) -> str:
        return f"{self.pixels}x{self.channels}x{self.depth}w{self.warps}s{self.stages}"

    def shared_bytes(self, itemsize: int) -> int:
        """Of the tiles that are loaded ahead: the least shared memory that a GPU must have."""
        return self.stages * self.depth * (self.pixels + self.channels) * itemsize


# The first is taken where nothing was measured; none spills registers on sm_80 to sm_100 (a test
# compiles all). Narrow ones are for the last layer's few channels.
CONFIGS = (
    Config(128, 128, 64, 8, 3),
    Config(64, 256, 64, 8, 3),
    Config(128, 128, 32, 8, 4),
    Config(256, 64, 64, 8, 3),
    Config(128, 64, 64, 4, 3),
    Config(64, 64, 32, 4, 3),
    Config(128, 32, 32, 4, 3),
    Config(128, 16, 64, 4, 3),
)
# float32 has tiles of twice the bytes, and its products take no tensor cores.
CONFIGS_FLOAT32 = (Config(64, 64, 32, 4, 2), Config(64, 32, 32, 4, 2), Config(64, 16, 32, 4, 2))


def configs_for(x: Tensor, out_channels: int) -> tuple[Config, ...]:
    """Those worth a try, the most likely first: no tile much wider than the output channels."""
    all_of_them = CONFIGS_FLOAT32 if x.dtype == torch.float32 else CONFIGS
    width = triton.next_power_of_2(max(16, out_channels))
    room = shared_memory(x.device)
    return tuple(
        config
        for config in all_of_them
        if config.channels <= width and config.shared_bytes(x.itemsize) <= room
    )


@cache
def shared_memory(device: torch.device) -> int:
    """Bytes that a block may have; no bound in the interpreter."""
    if device.type != "cuda":
        return sys.maxsize
    return torch.cuda.get_device_properties(device).shared_memory_per_block_optin
