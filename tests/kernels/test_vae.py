"""A VAE on the kernels against diffusers' own, and back.

Here by the kernels' PyTorch side: `interpreted_vae.py` runs a narrow one in Triton's interpreter.
"""

import copy
from unittest.mock import Mock

import pytest
import torch
from diffusers import AutoencoderKL
from diffusers.models.autoencoders.autoencoder_kl_flux2 import AutoencoderKLFlux2
from diffusers.models.resnet import ResnetBlock2D

from benchmarks.untrained import FLUX1_VAE, FLUX2_VAE
from kernels.vae import use_faster, use_kernels, use_stock
from pipelines.strip_decoder import use_strips

VAES = {"FLUX.1": (AutoencoderKL, FLUX1_VAE), "FLUX.2": (AutoencoderKLFlux2, FLUX2_VAE)}


@pytest.fixture(scope="module", params=VAES)
def pair(request):
    """The same random weights in a stock VAE and in one on the kernels."""
    torch.manual_seed(0)
    kind, config = VAES[request.param]
    stock = kind.from_config(config).eval().requires_grad_(False)
    ours = copy.deepcopy(stock)
    use_kernels(ours)
    return stock, ours


def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours.double() - theirs.double()).norm() / theirs.double().norm())


@torch.inference_mode()
def test_decoder_and_encoder_answer_as_diffusers(pair):
    stock, ours = pair
    latents = torch.randn(2, stock.config["latent_channels"], 8, 8)
    pictures = torch.rand(1, 3, 64, 64) * 2 - 1
    assert difference(ours.decoder(latents), stock.decoder(latents)) <= 1e-5
    assert difference(ours.encoder(pictures), stock.encoder(pictures)) <= 1e-5
    assert difference(ours.decode(latents).sample, stock.decode(latents).sample) <= 1e-5


@torch.inference_mode()
def test_bfloat16_is_no_farther_from_float32_than_diffusers_own(pair):
    """Random weights: diffusers' own is 2e-2 off, and as far from itself in another layout."""
    stock = pair[0]
    latents = torch.randn(2, stock.config["latent_channels"], 8, 8)
    exact = stock.decoder(latents)
    theirs, halved = (copy.deepcopy(vae.decoder).bfloat16() for vae in pair)
    error = difference(theirs(latents.bfloat16()), exact)
    assert difference(halved(latents.bfloat16()), exact) <= 1.1 * error


@torch.inference_mode()
def test_everything_stays_channels_last(pair):
    _, ours = pair
    found = []
    hooks = [
        module.register_forward_hook(lambda m, x, y: found.append((type(m).__name__, y)))
        for module in ours.decoder.modules()
        if isinstance(module, ResnetBlock2D) or type(module).__name__ in ("Attention", "Upsample2D")
    ]
    ours.decoder(torch.randn(1, ours.config["latent_channels"], 4, 8))
    for hook in hooks:
        hook.remove()
    layouts = {(name, y.is_contiguous(memory_format=torch.channels_last)) for name, y in found}
    assert layouts == {("ResnetBlock2D", True), ("Attention", True), ("Upsample2D", True)}


@torch.inference_mode()
def test_the_reverse_swap_gives_diffusers_own(pair):
    stock, _ = pair
    back = copy.deepcopy(stock)
    use_kernels(back)
    assert "forward" in back.decoder.mid_block.resnets[0].__dict__
    use_stock(back)
    assert not any("forward" in module.__dict__ for module in back.modules())
    latents = torch.randn(1, stock.config["latent_channels"], 4, 4)
    assert torch.equal(back.decoder(latents), stock.decoder(latents))
    assert back.decoder.conv_in.weight.is_contiguous()


@pytest.mark.parametrize("seconds", [(2.0, 1.0), (1.0, 2.0)])
def test_the_faster_of_both_stays(pair, seconds, monkeypatch):
    times = iter(seconds)
    monkeypatch.setattr("kernels.vae.measure", lambda run, device: (run(), next(times))[1])
    vae = copy.deepcopy(pair[0])
    is_ours = use_faster(vae, torch.zeros(1, vae.config["latent_channels"], 4, 4))
    assert is_ours == (seconds[1] < seconds[0])
    assert is_ours == any("forward" in module.__dict__ for module in vae.modules())


def test_without_memory_for_a_decode_nothing_is_swapped(pair, monkeypatch):
    monkeypatch.setattr("kernels.vae.measure", Mock(side_effect=torch.OutOfMemoryError))
    vae = copy.deepcopy(pair[0])
    assert not use_faster(vae, torch.zeros(1, vae.config["latent_channels"], 4, 4))
    assert not any("forward" in module.__dict__ for module in vae.modules())


@torch.inference_mode()
def test_another_activation_is_left_as_it_is():
    config = {**FLUX1_VAE, "block_out_channels": (32, 32, 32, 32), "act_fn": "gelu"}
    stock = AutoencoderKL.from_config(config).eval()
    ours = copy.deepcopy(stock)
    use_kernels(ours)
    latents = torch.randn(1, 16, 4, 4)
    assert difference(ours.decoder(latents), stock.decoder(latents)) <= 1e-5


def test_the_weights_are_those_that_were_there(pair):
    stock, ours = (dict(vae.state_dict()) for vae in pair)
    assert stock.keys() == ours.keys()
    assert all(torch.equal(ours[name], stock[name]) for name in stock)


@torch.inference_mode()
def test_strips_run_on_the_kernels_too(pair):
    stock, ours = pair
    latents = torch.randn(1, stock.config["latent_channels"], 8, 8)
    whole = stock.decode(latents).sample
    striped = copy.deepcopy(ours)
    strips = use_strips(striped, max_plain_px=1)
    assert strips is not None
    strips.strip_elements = 2**16
    assert difference(striped.decode(latents).sample, whole) <= 1e-5
