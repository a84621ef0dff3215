"""Every shipped configuration compiles for the GPUs in use, without spills, within their memory."""

import pytest

pytest.importorskip("triton")

from kernels import conv2d, conv2d_configs, group_norm
from tests.kernels.compiled import SHARED, compiled

POINTERS = ("x", "weight", "bias", "residual", "y")
# Of the decoder's layers: window, input and output channels of a group, doubling, residual.
CONVS = {
    "residual 3x3": {"ROWS": 3, "GROUP_CHANNELS": 512, "UPSAMPLE": 1, "HAS_RESIDUAL": True},
    "doubling 3x3": {"ROWS": 3, "GROUP_CHANNELS": 256, "UPSAMPLE": 2, "HAS_RESIDUAL": False},
    "shortcut 1x1": {"ROWS": 1, "GROUP_CHANNELS": 512, "UPSAMPLE": 1, "HAS_RESIDUAL": False},
}
SIZES = (
    *("pixels", "height", "width", "channels"),
    *("out_height", "out_width", "out_channels", "group_out_channels"),
)
STEPS = ("stride_y", "stride_x", "above", "left", "dilation_y", "dilation_x")
NORMS = {
    "moments": (group_norm.moments_kernel, ("x",), ("means", "deviations")),
    "merge": (group_norm.merge_kernel, (), ("means", "deviations", "mean", "scale")),
    "apply": (group_norm.apply_kernel, POINTERS, ("mean", "scale")),
}


@pytest.mark.parametrize("architecture", SHARED)
@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize(
    ("dtype", "config"),
    [
        *(("bf16", config) for config in conv2d_configs.CONFIGS),
        *(("fp32", config) for config in conv2d_configs.CONFIGS_FLOAT32),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_convolutions_compile(architecture, conv, dtype, config):
    if config.shared_bytes(4 if dtype == "fp32" else 2) > SHARED[architecture]:
        pytest.skip("left out on this GPU, as conv2d leaves it out")
    shape = CONVS[conv]
    constants = {
        **shape,
        "COLUMNS": shape["ROWS"],
        **dict.fromkeys(STEPS, 1),
        "HAS_BIAS": True,
        "SILU": False,
        "PIXELS": config.pixels,
        "CHANNELS": config.channels,
        "DEPTH": config.depth,
    }
    made = compiled(
        conv2d.conv2d_kernel,
        architecture,
        dict.fromkeys(POINTERS, f"*{dtype}"),
        constants,
        divisible=(*POINTERS, *SIZES),
        warps=config.warps,
        stages=config.stages,
    )
    assert made.stack_bytes == 0
    assert made.shared_bytes <= min(SHARED[architecture], config.shared_bytes(4) + 64)
    if dtype == "bf16":
        unit = {80: "mma.sync", 89: "mma.sync", 90: "wgmma.mma_async"}.get(architecture, "mma")
        assert unit in made.ptx


@pytest.mark.parametrize("architecture", SHARED)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_group_norms_compile(architecture, norm, dtype):
    kernel, values, floats = NORMS[norm]
    types = dict.fromkeys(values, f"*{dtype}") | dict.fromkeys(floats, "*fp32") | {"eps": "fp32"}
    everything = {
        "GROUPS": 32,
        "GROUPS_TILE": 32,
        "CHANNELS_TILE": 16,
        "PIXELS": 8,
        "PARTS": 1024,
        "STEPS": 2,
        "HAS_WEIGHT": True,
        "HAS_BIAS": True,
        "HAS_RESIDUAL": True,
        "SILU": True,
        "TILE": group_norm.TILE,
    }
    constants = {name: value for name, value in everything.items() if name in kernel.arg_names}
    divisible = (*values, *floats, *({"channels", "pixels", "values"} & set(kernel.arg_names)))
    made = compiled(kernel, architecture, types, constants, divisible=divisible, warps=8)
    assert made.stack_bytes == 0 and made.shared_bytes <= SHARED[architecture]


def test_a_spill_would_be_seen():
    """The largest tile on too few threads."""
    constants = {
        **CONVS["residual 3x3"],
        "COLUMNS": 3,
        "HAS_BIAS": True,
        "SILU": False,
        "PIXELS": 128,
        "CHANNELS": 256,
        "DEPTH": 64,
    }
    types = dict.fromkeys(POINTERS, "*bf16")
    assert compiled(conv2d.conv2d_kernel, 90, types, constants, warps=4).stack_bytes > 0
