"""Kernels in Triton's interpreter against float64 PyTorch. `test_interpreted.py` runs this file.

Not collected by itself: ``TRITON_INTERPRET`` has to be set before a kernel is decorated. Fresh
memory is filled with NaN, so a value that is not written fails. With ``KERNELS_DEVICE=cuda`` the
same cases run on a GPU (without the broken kernels, which may read anywhere).
"""

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from kernels import conv2d as conv_module
from kernels import group_norm as norm_module
from kernels.conv2d import conv2d
from kernels.conv2d_configs import CONFIGS, CONFIGS_FLOAT32
from kernels.group_norm import group_norm

# Relative to the largest value. float16 and bfloat16 round the result once.
TOLERANCE = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
DTYPES = tuple(TOLERANCE)
DEVICE = os.environ.get("KERNELS_DEVICE", "cpu")
# x: pictures, channels, height, width; weight: channels, window; what differs from a plain call.
CONVS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "first channels of one": ((1, 1, 7, 7), (4, 3, 3), {"padding": 1}),
    "a picture's three": ((1, 3, 7, 2), (16, 3, 3), {"padding": 1}),
    "latents of four": ((1, 4, 2, 2), (17, 3, 3), {"padding": 1}),
    "latents of sixteen": ((1, 16, 7, 7), (3, 3, 3), {"padding": 1}),
    "odd channels": ((1, 17, 7, 7), (17, 3, 3), {"padding": 1}),
    "more than a tile's depth": ((1, 130, 2, 7), (16, 3, 3), {"padding": 1}),
    "more than a tile's width": ((1, 16, 2, 2), (130, 3, 3), {"padding": 1}),
    "channels of no power of two": ((1, 96, 7, 2), (32, 1, 1), {}),
    "one pixel": ((1, 16, 1, 1), (16, 3, 3), {"padding": 1}),
    "one row": ((1, 16, 1, 31), (16, 3, 3), {"padding": 1}),
    "a tile and one more pixel": ((1, 4, 33, 31), (4, 1, 1), {}),
    "pictures side by side": ((3, 16, 7, 7), (16, 3, 3), {"padding": 1}),
    "1 x 1": ((2, 32, 7, 7), (64, 1, 1), {}),
    "a wide window": ((1, 4, 7, 7), (4, 5, 2), {"padding": (2, 1)}),
    "no padding": ((1, 16, 7, 7), (16, 3, 3), {}),
    "stride": ((1, 16, 7, 7), (16, 3, 3), {"stride": 2, "padding": 1}),
    "strides of two kinds": ((1, 4, 7, 7), (4, 3, 3), {"stride": (1, 3), "padding": 1}),
    "the encoder's padding": ((1, 16, 7, 8), (16, 3, 3), {"stride": 2, "padding": (0, 1, 0, 1)}),
    "dilation": ((1, 16, 7, 7), (16, 3, 3), {"padding": 2, "dilation": 2}),
    "dilations of two kinds": ((1, 4, 7, 9), (4, 3, 3), {"padding": (1, 3), "dilation": (1, 3)}),
    "two groups": ((1, 32, 7, 2), (34, 3, 3), {"padding": 1, "groups": 2}),
    "a group for each channel": ((1, 17, 7, 2), (17, 3, 3), {"padding": 1, "groups": 17}),
    "doubled": ((1, 16, 7, 2), (16, 3, 3), {"padding": 1, "upsample": 2}),
    "doubled, and a stride": ((1, 4, 7, 2), (4, 3, 3), {"stride": 2, "padding": 1, "upsample": 2}),
    "SiLU": ((2, 16, 7, 2), (17, 3, 3), {"padding": 1, "activation": "silu"}),
    "no bias": ((1, 16, 7, 2), (17, 3, 3), {"padding": 1, "bias": False}),
    "residual": ((2, 16, 7, 2), (17, 3, 3), {"padding": 1, "residual": True}),
    "all of the end": (
        (2, 16, 7, 2),
        (17, 3, 3),
        {"padding": 1, "upsample": 2, "activation": "silu", "residual": True},
    ),
}
# x; groups; then what differs from a plain call.
NORMS: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "a channel a group": ((1, 32, 7, 7), 32, {}),
    "the decoder's widths": ((1, 128, 7, 2), 32, {}),
    "groups of three": ((1, 96, 7, 7), 32, {}),
    "groups of five": ((1, 130, 2, 7), 26, {}),
    "one group": ((2, 17, 7, 7), 1, {}),
    "one pixel": ((2, 64, 1, 1), 32, {}),
    "several stretches": ((1, 64, 31, 33), 32, {}),
    "pictures side by side": ((3, 16, 7, 7), 4, {}),
    "no weight": ((1, 16, 7, 7), 4, {"weight": False}),
    "no bias": ((1, 16, 7, 7), 4, {"bias": False}),
    "SiLU and residual": ((2, 64, 7, 7), 32, {"activation": "silu", "residual": True}),
}


@pytest.fixture(autouse=True)
def poisoned(monkeypatch):
    monkeypatch.setenv("STUDIO_KERNELS", "triton")
    before = torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = before


@pytest.fixture(autouse=True, scope="session")
def bfloat16_products():
    """Triton 3.6's interpreter multiplies bfloat16 as the 16-bit integers that it keeps them in."""
    plain = InterpreterBuilder.create_dot

    def create_dot(self, a, b, *rest):
        return plain(self, _as_float32(a), _as_float32(b), *rest)

    InterpreterBuilder.create_dot = create_dot
    yield
    InterpreterBuilder.create_dot = plain


def _as_float32(handle):
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    bits = handle.data.astype(np.uint32) << 16
    return TensorHandle(bits.view(np.float32), tl.float32)


def random(shape, dtype, seed=0, offset=0.0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64) + offset
    x = x.to(DEVICE, dtype)
    return x.to(memory_format=torch.channels_last) if x.ndim == 4 else x


def error(ours, exact):
    """Largest difference, of the largest value; infinite where something is not finite."""
    assert ours.shape == exact.shape
    assert ours.is_contiguous(memory_format=torch.channels_last)
    difference = (ours.cpu().double() - exact).abs().max() / exact.abs().max()
    return float(difference) if torch.isfinite(difference) else float("inf")


def _double(x):
    """For the exact result, which a CPU computes."""
    return None if x is None else x.cpu().double()


def conv_error(case, dtype):
    shape, (out, *window), options = CONVS[case]
    options = {**options}
    groups, upsample = options.get("groups", 1), options.get("upsample", 1)
    x = random(shape, dtype)
    weight = random((out, shape[1] // groups, *window), dtype, 1)
    bias = random((out,), dtype, 2) if options.pop("bias", True) else None
    wants_residual = options.pop("residual", False)
    doubled = _double(x).repeat_interleave(upsample, 2).repeat_interleave(upsample, 3)
    padding = options.get("padding", 0)
    if isinstance(padding, tuple) and len(padding) == 4:
        above, below, left, right = padding
        doubled, padding = F.pad(doubled, (left, right, above, below)), 0
    named = {name: options[name] for name in ("stride", "dilation", "groups") if name in options}
    exact = F.conv2d(doubled, _double(weight), _double(bias), padding=padding, **named)
    if options.get("activation"):
        exact = exact * torch.sigmoid(exact)
    residual = random(exact.shape, dtype, 3) if wants_residual else None
    if residual is not None:
        exact = exact + _double(residual)
    return error(conv2d(x, weight, bias, residual=residual, **options), exact)


def norm_error(case, dtype, offset=0.0):
    shape, groups, options = NORMS[case]
    options = {**options}
    x = random(shape, dtype, offset=offset)
    weight = random((shape[1],), dtype, 1) if options.pop("weight", True) else None
    bias = random((shape[1],), dtype, 2) if options.pop("bias", True) else None
    residual = random(shape, dtype, 3) if options.pop("residual", False) else None
    exact = F.group_norm(_double(x), groups, _double(weight), _double(bias), 1e-6)
    if options.get("activation"):
        exact = exact * torch.sigmoid(exact)
    if residual is not None:
        exact = exact + _double(residual)
    return error(group_norm(x, groups, weight, bias, 1e-6, residual=residual, **options), exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CONVS)
def test_conv2d(case, dtype):
    assert conv_error(case, dtype) <= TOLERANCE[dtype]


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        *((config, torch.bfloat16) for config in CONFIGS),
        *((config, torch.float32) for config in CONFIGS_FLOAT32),
    ],
)
def test_each_configuration_of_conv2d(config, dtype, monkeypatch):
    monkeypatch.setattr(conv_module, "configs_for", lambda *_: (config,))
    assert conv_error("more than a tile's depth", dtype) <= TOLERANCE[dtype]
    assert conv_error("all of the end", dtype) <= TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", NORMS)
def test_group_norm(case, dtype):
    assert norm_error(case, dtype) <= TOLERANCE[dtype]


@pytest.mark.parametrize("programs", [1, 3])
def test_stretches_of_several_tiles_are_merged(programs, monkeypatch):
    monkeypatch.setattr(norm_module, "PROGRAMS", programs)
    monkeypatch.setattr(norm_module, "TILE", 512)
    monkeypatch.setattr(norm_module, "MERGED", 2)
    assert norm_error("several stretches", torch.float32) <= TOLERANCE[torch.float32]


def test_a_large_mean_costs_no_digits():
    """float32 holds 1000 to 6e-5; E[x²] - E[x]² would leave an error of the order of 1."""
    assert norm_error("several stretches", torch.float32, offset=1000.0) <= 1e-4


def test_what_is_not_channels_last_is_taken_as_well():
    x, weight = (torch.randn(shape, device=DEVICE) for shape in ((2, 16, 7, 7), (17, 16, 3, 3)))
    exact = F.conv2d(_double(x), _double(weight), padding=1)
    assert error(conv2d(x, weight, padding=1), exact) <= TOLERANCE[torch.float32]
    exact = F.group_norm(_double(x), 4)
    assert error(group_norm(x, 4), exact) <= TOLERANCE[torch.float32]


def test_a_bias_that_lies_apart_is_taken_as_it_lies():
    x, weight = random((1, 16, 7, 7), torch.float32), random((8, 16, 3, 3), torch.float32, 1)
    bias = random((16,), torch.float32, 2)[::2]
    exact = F.conv2d(_double(x), _double(weight), _double(bias))
    assert error(conv2d(x, weight, bias), exact) <= TOLERANCE[torch.float32]
    scale = random((32,), torch.float32, 2)[::2]
    assert error(group_norm(x, 4, scale), F.group_norm(_double(x), 4, _double(scale))) <= 2e-6


def test_wrong_shapes_are_explained_by_pytorch():
    with pytest.raises(RuntimeError, match="bias"):
        conv2d(torch.randn(1, 3, 7, 7), torch.randn(8, 3, 3, 3), torch.randn(4))
    with pytest.raises(RuntimeError, match="expected input"):
        conv2d(torch.randn(1, 3, 7, 7), torch.randn(4, 5, 3, 3))
    with pytest.raises(RuntimeError, match="divisible"):
        group_norm(torch.randn(1, 5, 7, 7), 2)


# A place of the source, what stands there instead, the case that must fail.
BROKEN_CONVS = [
    ("x + group * GROUP_CHANNELS", "x + 0 * GROUP_CHANNELS", "two groups"),
    ("(in_y < height * UPSAMPLE)", "(in_y < height * UPSAMPLE + 1)", "pictures side by side"),
    ("(in_x >= 0)", "(in_x >= -1)", "pictures side by side"),
    ("is_depth = depth < GROUP_CHANNELS", "is_depth = depth < 9999", "odd channels"),
    ("in_x = in_x >> 1", "in_x = in_x", "doubled"),
    ("place // COLUMNS * dilation_y", "place // COLUMNS", "dilation"),
    ("out_y * stride_y", "out_y", "stride"),
    ("total.to(y.dtype.element_ty), mask=is_out", "total, mask=is_out & (m > 0)[:, None]", "1 x 1"),
]
BROKEN_NORMS = [
    ("is_value = (pixel < end)", "is_value = (pixel <= end)", "several stretches"),
    ("channel // group_channels", "channel % GROUPS", "groups of three"),
    ("change * change * (count * share)", "0.0", "several stretches"),
    ("mean += change * share", "mean += change", "several stretches"),
    ("off * off * count * group_channels", "0.0", "several stretches"),
    ("mask=is_value)\n\n\ndef", "mask=is_value & (at > 0))\n\n\ndef", "one group"),
]


def break_kernels(module, before, after, folder, monkeypatch):
    """The module's kernels are those of its source with one place changed."""
    text = Path(module.__file__).read_text()
    assert text.count(before) == 1
    path = folder / "broken.py"
    path.write_text(text.replace(before, after))
    spec = importlib.util.spec_from_file_location("broken", path)
    assert spec is not None and spec.loader is not None
    other = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "broken", other)  # dataclasses look it up
    spec.loader.exec_module(other)
    for name in vars(module):
        if name.endswith("_kernel"):
            monkeypatch.setattr(module, name, getattr(other, name))


@pytest.mark.parametrize(("before", "after", "case"), BROKEN_CONVS)
def test_a_broken_conv2d_fails(before, after, case, tmp_path, monkeypatch):
    break_kernels(conv_module, before, after, tmp_path, monkeypatch)
    assert conv_error(case, torch.float32) > TOLERANCE[torch.float32]


@pytest.mark.parametrize(("before", "after", "case"), BROKEN_NORMS)
def test_a_broken_group_norm_fails(before, after, case, tmp_path, monkeypatch):
    break_kernels(norm_module, before, after, tmp_path, monkeypatch)
    monkeypatch.setattr(norm_module, "PROGRAMS", 3)
    monkeypatch.setattr(norm_module, "TILE", 512)
    assert norm_error(case, torch.float32, offset=3.0) > TOLERANCE[torch.float32]
