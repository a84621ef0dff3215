"""2-D convolution of channels-last pictures as an implicit matrix product, with what surrounds it.

Rows of the product are output pixels, columns output channels, and the sum runs over the window and
the input channels of a group: no patches are written. Nearest doubling before it is an index shift,
so the doubled picture is never written either; bias, SiLU and a residual are applied to the sum
before it leaves the registers.

Tensors are logical NCHW in ``channels_last`` memory, the weight, too: that is [K, R, S, C], as the
kernel reads it, so a weight that was put into ``channels_last`` at load is never copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from kernels.autotune import Candidate, choose, size_class
from kernels.backend import choice, fits, jit, runs_kernel, tl, triton
from kernels.conv2d_configs import Config, configs_for

Activation = Literal["silu"]
Pair = tuple[int, int]
# Rows above, below, columns left, right.
Padding = tuple[int, int, int, int]


@jit
def conv2d_kernel(
    x,
    weight,
    bias,
    residual,
    y,
    pixels,
    height,
    width,
    channels,
    out_height,
    out_width,
    out_channels,
    group_out_channels,
    stride_y,
    stride_x,
    above,
    left,
    dilation_y,
    dilation_x,
    GROUP_CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    UPSAMPLE: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    SILU: tl.constexpr,
    PIXELS: tl.constexpr,
    CHANNELS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """One tile of PIXELS x CHANNELS of one group. ``height``, ``width``: of x as it is stored."""
    group = tl.program_id(1)
    tiles = tl.cdiv(group_out_channels, CHANNELS)
    m = tl.program_id(0) // tiles * PIXELS + tl.arange(0, PIXELS)
    k = tl.program_id(0) % tiles * CHANNELS + tl.arange(0, CHANNELS)
    c = tl.arange(0, DEPTH)
    is_pixel = m < pixels
    is_channel = k < group_out_channels
    out_x = m % out_width
    out_y = m // out_width % out_height
    picture = m // (out_width * out_height)
    first_y = out_y * stride_y - above
    first_x = out_x * stride_x - left
    x_group = x + group * GROUP_CHANNELS
    w_row = weight + (group * group_out_channels + k).to(tl.int64) * (
        ROWS * COLUMNS * GROUP_CHANNELS
    )
    CHUNKS: tl.constexpr = (GROUP_CHANNELS + DEPTH - 1) // DEPTH
    total = tl.zeros((PIXELS, CHANNELS), dtype=tl.float32)
    for step in range(ROWS * COLUMNS * CHUNKS):
        place = step // CHUNKS
        depth = step % CHUNKS * DEPTH + c
        in_y = first_y + place // COLUMNS * dilation_y
        in_x = first_x + place % COLUMNS * dilation_x
        is_inside = (
            (in_y >= 0) & (in_y < height * UPSAMPLE) & (in_x >= 0) & (in_x < width * UPSAMPLE)
        )
        if UPSAMPLE == 2:
            in_y = in_y >> 1
            in_x = in_x >> 1
        at = ((picture * height + in_y) * width + in_x).to(tl.int64) * channels
        is_depth = depth < GROUP_CHANNELS
        patch = tl.load(
            x_group + at[:, None] + depth[None, :],
            mask=(is_pixel & is_inside)[:, None] & is_depth[None, :],
            other=0.0,
        )
        factors = tl.load(
            w_row[None, :] + (place * GROUP_CHANNELS + depth)[:, None],
            mask=is_depth[:, None] & is_channel[None, :],
            other=0.0,
        )
        total = tl.dot(patch, factors, total, input_precision="ieee")
    k += group * group_out_channels
    if HAS_BIAS:
        total += tl.load(bias + k, mask=is_channel, other=0.0).to(tl.float32)[None, :]
    if SILU:
        total = total * tl.sigmoid(total)
    at_out = m.to(tl.int64)[:, None] * out_channels + k[None, :]
    is_out = is_pixel[:, None] & is_channel[None, :]
    if HAS_RESIDUAL:
        total += tl.load(residual + at_out, mask=is_out, other=0.0).to(tl.float32)
    tl.store(y + at_out, total.to(y.dtype.element_ty), mask=is_out)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Pair = 1,
    padding: int | Pair | Padding = 0,
    dilation: int | Pair = 1,
    groups: int = 1,
    *,
    activation: Activation | None = None,
    residual: Tensor | None = None,
    upsample: Literal[1, 2] = 1,
) -> Tensor:
    """``activation(conv2d(up(x), weight) + bias) + residual``, summed in float32.

    x: [n, c, h, w]; weight: [k, c / groups, r, s]; bias: [k]; residual: like the result, in
    channels-last memory as the result is. ``padding`` of four: above, below, left, right.
    ``upsample`` 2 doubles x by repetition first. Tensors that Triton cannot take go to PyTorch,
    whose messages those of wrong shapes are.
    """
    task = Task(_pair(stride), _four(padding), _pair(dilation), groups, activation, upsample)
    said = choice()
    if not runs_kernel(x, said) or not _is_plain(task, x, weight, bias, residual):
        return by_torch(task, x, weight, bias, residual)
    x, weight = (each.contiguous(memory_format=torch.channels_last) for each in (x, weight))
    if residual is not None:
        residual = residual.contiguous(memory_format=torch.channels_last)
    given = (x, weight, bias, residual)
    by_name: Mapping[str, Candidate] = {
        config.name: partial(by_triton, config, task, *given)
        for config in configs_for(x, weight.shape[0] // groups)
    }
    if said == "triton":
        return next(iter(by_name.values()))()
    key = (
        "conv2d",
        *task.key,
        *weight.shape,
        size_class(x),
        bias is not None,
        residual is not None,
    )
    return choose(key, x, {"torch": partial(by_torch, task, *given), **by_name})


@dataclass(frozen=True, slots=True)
class Task:
    stride: Pair
    padding: Padding
    dilation: Pair
    groups: int
    activation: Activation | None
    upsample: int

    @property
    def key(self) -> tuple[object, ...]:
        return (
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.activation,
            self.upsample,
        )

    def out_size(self, x: Tensor, weight: Tensor) -> Pair:
        """Height and width of the result."""
        above, below, left, right = self.padding
        sides = (
            x.shape[2] * self.upsample + above + below,
            x.shape[3] * self.upsample + left + right,
        )
        height, width = (
            (side - dilation * (window - 1) - 1) // stride + 1
            for side, window, stride, dilation in zip(
                sides, weight.shape[2:], self.stride, self.dilation, strict=True
            )
        )
        return height, width


def by_torch(
    task: Task, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None
) -> Tensor:
    """The same by PyTorch's own operations."""
    if task.upsample == 2:
        x = F.interpolate(x, scale_factor=2.0, mode="nearest")
    above, below, left, right = task.padding
    if (above, left) != (below, right):
        x, above, left = F.pad(x, (left, right, above, below)), 0, 0
    y = F.conv2d(x, weight, bias, task.stride, (above, left), task.dilation, task.groups)
    if task.activation == "silu":
        y = F.silu(y, inplace=True)
    return y if residual is None else y.add_(residual)


def by_triton(
    config: Config,
    task: Task,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
) -> Tensor:
    """The same by the kernel; x, weight and residual in channels-last memory."""
    pictures, channels, height, width = x.shape
    out_channels, group_channels, rows, columns = weight.shape
    out_height, out_width = task.out_size(x, weight)
    shape = (pictures, out_channels, out_height, out_width)
    y = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)
    pixels, group_out_channels = pictures * out_height * out_width, out_channels // task.groups
    tiles = triton.cdiv(pixels, config.pixels) * triton.cdiv(group_out_channels, config.channels)
    conv2d_kernel[(tiles, task.groups)](
        x,
        weight,
        x if bias is None else bias,
        x if residual is None else residual,
        y,
        pixels,
        height,
        width,
        channels,
        out_height,
        out_width,
        out_channels,
        group_out_channels,
        *task.stride,
        task.padding[0],
        task.padding[2],
        *task.dilation,
        GROUP_CHANNELS=group_channels,
        ROWS=rows,
        COLUMNS=columns,
        UPSAMPLE=task.upsample,
        HAS_BIAS=bias is not None,
        HAS_RESIDUAL=residual is not None,
        SILU=task.activation == "silu",
        PIXELS=config.pixels,
        CHANNELS=config.channels,
        DEPTH=config.depth,
        num_warps=config.warps,
        num_stages=config.stages,
    )
    return y


def _is_plain(
    task: Task, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None
) -> bool:
    """Whether the shapes fit and there is something to do; PyTorch explains what does not."""
    if x.ndim != 4 or weight.ndim != 4 or not x.numel() or weight.dtype != x.dtype:
        return False
    if weight.device != x.device or not fits(bias, x, weight.shape[0]):
        return False
    if x.shape[1] != weight.shape[1] * task.groups or weight.shape[0] % task.groups:
        return False
    size = task.out_size(x, weight)
    shape = (x.shape[0], weight.shape[0], *size)
    return min(size) > 0 and (residual is None or residual.shape == shape)


def _pair(value: int | Pair) -> Pair:
    return (value, value) if isinstance(value, int) else value


def _four(padding: int | Pair | Padding) -> Padding:
    if isinstance(padding, int):
        return (padding,) * 4
    return padding if len(padding) == 4 else (padding[0], padding[0], padding[1], padding[1])
