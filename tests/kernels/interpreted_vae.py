"""A narrow VAE whose every layer runs in Triton's interpreter. `test_interpreted.py` runs this."""

import copy
from unittest.mock import Mock

import pytest
import torch
from diffusers import AutoencoderKL

from benchmarks.untrained import FLUX1_VAE
from kernels.conv2d import conv2d_kernel
from kernels.vae import use_kernels

CONFIG = {
    **FLUX1_VAE,
    "block_out_channels": (8, 16),
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
    "norm_num_groups": 4,
    "layers_per_block": 1,
}


@torch.inference_mode()
@pytest.mark.parametrize("part", ["decoder", "encoder"])
def test_a_whole_vae_in_the_interpreter(part, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setenv("STUDIO_KERNELS", "triton")
    stock = AutoencoderKL.from_config(CONFIG).eval()
    ours = copy.deepcopy(stock)
    use_kernels(ours)
    runs = Mock(wraps=conv2d_kernel.run)
    monkeypatch.setattr(conv2d_kernel, "run", runs)
    x = torch.randn(1, 16, 4, 3) if part == "decoder" else torch.rand(1, 3, 16, 12) * 2 - 1
    exact = getattr(stock, part)(x)
    error = (getattr(ours, part)(x) - exact).norm() / exact.norm()
    assert runs.call_count > 5 and error <= 1e-5
