"""Group norm of channels-last pictures with the SiLU behind it.

PyTorch's own is slow in this layout. Here each of many programs takes a stretch of pixels with all
their channels, which lie together, and leaves its groups' mean and squared deviation; these are
merged by Chan's formula (Chan, Golub, LeVeque 1983), so that a large mean costs no digits; then
every value is read once more and written once. The stretches fill the chip at one picture, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.autotune import choose, size_class
from kernels.backend import choice, fits, jit, runs_kernel, tl, triton

PROGRAMS = (
    1024  # that a picture's pixels are shared among at most: some eight for each multiprocessor
)
TILE = 4096  # values that a program holds at once
MERGED = 1024  # stretches that the merge reads at once


@jit
def moments_kernel(
    x,
    means,
    deviations,
    pixels,
    channels,
    group_channels,
    STEPS: tl.constexpr,
    GROUPS: tl.constexpr,
    GROUPS_TILE: tl.constexpr,
    CHANNELS_TILE: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """Means and squared deviations [pictures, stretches, groups] of a stretch of pixels."""
    part, picture = tl.program_id(0), tl.program_id(1)
    group = tl.arange(0, GROUPS_TILE)
    inner = tl.arange(0, CHANNELS_TILE)
    channel = group[:, None] * group_channels + inner[None, :]
    is_channel = (group < GROUPS)[:, None] & (inner < group_channels)[None, :]
    start = part * STEPS * PIXELS
    end = tl.minimum(start + STEPS * PIXELS, pixels)
    x_picture = x + picture.to(tl.int64) * pixels * channels
    mean = tl.zeros((GROUPS_TILE,), dtype=tl.float32)
    deviation = tl.zeros((GROUPS_TILE,), dtype=tl.float32)
    count = 0.0
    for step in range(STEPS):
        first = start + step * PIXELS
        pixel = first + tl.arange(0, PIXELS)
        is_value = (pixel < end)[:, None, None] & is_channel[None, :, :]
        at = pixel.to(tl.int64)[:, None, None] * channels + channel[None, :, :]
        values = tl.load(x_picture + at, mask=is_value, other=0.0).to(tl.float32)
        added = tl.maximum(tl.minimum(end - first, PIXELS), 0) * group_channels * 1.0
        share = added / (count + added)  # all of the first, none of those beyond the end
        own = tl.sum(tl.sum(values, 2), 0) / tl.maximum(added, 1.0)
        off = tl.where(is_value, values - own[None, :, None], 0.0)
        change = own - mean
        deviation += tl.sum(tl.sum(off * off, 2), 0) + change * change * (count * share)
        mean += change * share
        count += added
    at_part = (picture * tl.num_programs(0) + part) * GROUPS + group
    tl.store(means + at_part, mean, mask=group < GROUPS)
    tl.store(deviations + at_part, deviation, mask=group < GROUPS)


@jit
def merge_kernel(
    means,
    deviations,
    mean,
    scale,
    pixels,
    group_channels,
    stretch,
    parts,
    eps,
    GROUPS: tl.constexpr,
    PARTS: tl.constexpr,
    STEPS: tl.constexpr,
):
    """Mean and 1 / sqrt(variance + eps) [pictures, groups] of all stretches."""
    group, picture = tl.program_id(0), tl.program_id(1)
    first = picture * parts * GROUPS + group
    weighted = 0.0
    for step in range(STEPS):
        part = step * PARTS + tl.arange(0, PARTS)
        count = (tl.minimum(part * stretch + stretch, pixels) - part * stretch) * 1.0
        own = tl.load(means + first + part * GROUPS, mask=part < parts, other=0.0)
        weighted += tl.sum(tl.where(part < parts, own * count, 0.0), 0)
    total = pixels * 1.0
    whole = weighted / total
    squares = 0.0
    for step in range(STEPS):
        part = step * PARTS + tl.arange(0, PARTS)
        count = (tl.minimum(part * stretch + stretch, pixels) - part * stretch) * 1.0
        own = tl.load(means + first + part * GROUPS, mask=part < parts, other=0.0)
        inside = tl.load(deviations + first + part * GROUPS, mask=part < parts, other=0.0)
        off = own - whole
        squares += tl.sum(
            tl.where(part < parts, inside + off * off * count * group_channels, 0.0), 0
        )
    variance = squares / (total * group_channels)
    tl.store(mean + picture * GROUPS + group, whole)
    tl.store(scale + picture * GROUPS + group, tl.rsqrt(variance + eps))


@jit
def apply_kernel(
    x,
    weight,
    bias,
    residual,
    mean,
    scale,
    y,
    values,
    channels,
    group_channels,
    GROUPS: tl.constexpr,
    HAS_WEIGHT: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    SILU: tl.constexpr,
    TILE: tl.constexpr,
):
    """``values``: of one picture."""
    picture = tl.program_id(1)
    at = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    is_value = at < values
    channel = (at % channels).to(tl.int32)
    at_group = picture * GROUPS + channel // group_channels
    at += picture.to(tl.int64) * values
    value = tl.load(x + at, mask=is_value, other=0.0).to(tl.float32)
    value = (value - tl.load(mean + at_group, mask=is_value, other=0.0)) * tl.load(
        scale + at_group, mask=is_value, other=0.0
    )
    if HAS_WEIGHT:
        value *= tl.load(weight + channel, mask=is_value, other=0.0).to(tl.float32)
    if HAS_BIAS:
        value += tl.load(bias + channel, mask=is_value, other=0.0).to(tl.float32)
    if SILU:
        value = value * tl.sigmoid(value)
    if HAS_RESIDUAL:
        value += tl.load(residual + at, mask=is_value, other=0.0).to(tl.float32)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=is_value)


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    activation: Literal["silu"] | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """``activation(group_norm(x)) + residual``, moments in float32.

    x and residual: [n, c, h, w], in channels-last memory as the result is; weight and bias: [c].
    Tensors that Triton cannot take go to PyTorch, whose messages those of wrong shapes are.
    """
    task = Task(num_groups, eps, activation)
    said = choice()
    if not runs_kernel(x, said) or not _is_plain(task, x, (weight, bias), residual):
        return by_torch(task, x, weight, bias, residual)
    x = x.contiguous(memory_format=torch.channels_last)
    if residual is not None:
        residual = residual.contiguous(memory_format=torch.channels_last)
    given = (x, weight, bias, residual)
    if said == "triton":
        return by_triton(task, *given)
    key = ("group_norm", num_groups, activation, x.shape[1], size_class(x), residual is not None)
    return choose(
        key,
        x,
        {"torch": partial(by_torch, task, *given), "triton": partial(by_triton, task, *given)},
    )


@dataclass(frozen=True, slots=True)
class Task:
    groups: int
    eps: float
    activation: Literal["silu"] | None


def by_torch(
    task: Task, x: Tensor, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None
) -> Tensor:
    """The same by PyTorch's own operations."""
    y = F.group_norm(x, task.groups, weight, bias, task.eps)
    if task.activation == "silu":
        y = F.silu(y, inplace=True)
    return y if residual is None else y.add_(residual)


def by_triton(
    task: Task, x: Tensor, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None
) -> Tensor:
    """The same by three kernels; x and residual in channels-last memory."""
    pictures, channels, height, width = x.shape
    pixels, group_channels = height * width, channels // task.groups
    groups_tile, channels_tile = map(triton.next_power_of_2, (task.groups, group_channels))
    tile_pixels = max(1, TILE // (groups_tile * channels_tile))
    steps = triton.cdiv(triton.cdiv(pixels, tile_pixels), PROGRAMS)
    stretch = tile_pixels * steps
    parts = triton.cdiv(pixels, stretch)
    floats = partial(torch.empty, dtype=torch.float32, device=x.device)
    means, deviations = (floats(pictures, parts, task.groups) for _ in range(2))
    moments_kernel[(parts, pictures)](
        x,
        means,
        deviations,
        pixels,
        channels,
        group_channels,
        STEPS=steps,
        GROUPS=task.groups,
        GROUPS_TILE=groups_tile,
        CHANNELS_TILE=channels_tile,
        PIXELS=tile_pixels,
        num_warps=8,
    )
    parts_tile = min(MERGED, triton.next_power_of_2(parts))
    mean, scale = (floats(pictures, task.groups) for _ in range(2))
    merge_kernel[(task.groups, pictures)](
        means,
        deviations,
        mean,
        scale,
        pixels,
        group_channels,
        stretch,
        parts,
        task.eps,
        GROUPS=task.groups,
        PARTS=parts_tile,
        STEPS=triton.cdiv(parts, parts_tile),
        num_warps=4,
    )
    y = torch.empty_like(x, memory_format=torch.channels_last)
    apply_kernel[(triton.cdiv(pixels * channels, TILE), pictures)](
        x,
        x if weight is None else weight,
        x if bias is None else bias,
        x if residual is None else residual,
        mean,
        scale,
        y,
        pixels * channels,
        channels,
        group_channels,
        GROUPS=task.groups,
        HAS_WEIGHT=weight is not None,
        HAS_BIAS=bias is not None,
        HAS_RESIDUAL=residual is not None,
        SILU=task.activation == "silu",
        TILE=TILE,
        num_warps=8,
    )
    return y


def _is_plain(
    task: Task, x: Tensor, values: tuple[Tensor | None, Tensor | None], residual: Tensor | None
) -> bool:
    """Whether the shapes fit and there is something to do; PyTorch explains what does not."""
    if x.ndim != 4 or not x.numel() or x.shape[1] % task.groups:
        return False
    is_like_x = residual is None or residual.shape == x.shape
    return is_like_x and all(fits(each, x, x.shape[1]) for each in values)
