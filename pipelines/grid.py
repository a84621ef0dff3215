"""Tokens of a picture: 2 x 2 latents each, row by row, in every FLUX checkpoint."""

from typing import NamedTuple

import torch
from torch import Tensor

PATCH = 2


class Grid(NamedTuple):
    """Tokens of a picture, down and across."""

    height: int
    width: int

    @property
    def tokens(self) -> int:
        return self.height * self.width


def places(grid: Grid) -> tuple[Tensor, Tensor]:
    """Row and column of every token of a grid, each `[tokens]`."""
    down, across = torch.meshgrid(
        torch.arange(grid.height), torch.arange(grid.width), indexing="ij"
    )
    return down.flatten(), across.flatten()


def pack(latents: Tensor) -> Tensor:
    """`[channels, height, width]` to tokens `[tokens, channels * 4]`, each of 2 x 2 latents."""
    channels, height, width = latents.shape
    x = latents.view(channels, height // PATCH, PATCH, width // PATCH, PATCH)
    return x.permute(1, 3, 0, 2, 4).reshape(-1, channels * PATCH * PATCH)


def unpack(latents: Tensor, grid: Grid) -> Tensor:
    """Tokens `[rows, tokens, channels * 4]` to `[rows, channels, height, width]`."""
    x = latents.unflatten(1, grid).unflatten(3, (-1, PATCH, PATCH))
    return x.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
