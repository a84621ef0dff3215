"""Balanced latents have the wanted spread, and the pictures stay what they were."""

import torch
from diffusers import AutoencoderKL

from training import autoencoder
from training.balance import COLOUR, balance, wanted_variance


def skewed() -> AutoencoderKL:
    """Random weights, whose latents lie mostly along one direction of all channels."""
    torch.manual_seed(0)
    vae = autoencoder.build().eval().requires_grad_(False)
    last = vae.encoder.conv_out
    last.weight[: autoencoder.LATENT_CHANNELS] += 3 * last.weight[:1]
    last.bias[: autoencoder.LATENT_CHANNELS] = 0.7
    return vae


def test_balancing_changes_the_latents_and_no_picture() -> None:
    vae, pictures = skewed(), torch.rand(6, 3, 64, 64) * 2 - 1
    before = vae.encode(pictures).latent_dist
    wanted = vae.decode(before.mean).sample
    balance(vae, before.mean)
    after = vae.encode(pictures).latent_dist
    assert torch.allclose(vae.decode(after.mean).sample, wanted, atol=1e-3)
    assert torch.equal(after.std, before.std)
    flat = after.mean.movedim(1, -1).flatten(0, -2)
    assert torch.allclose(flat.mean(0), torch.zeros(len(flat[0])), atol=1e-3)
    covariance = torch.cov(flat.T)
    assert torch.allclose(covariance, covariance.diagonal().diag(), atol=1e-2)
    assert covariance.diagonal().max() < 1.01


def test_a_second_balance_turns_nothing_but_scales() -> None:
    """The map goes on top of the one that is there."""
    vae, pictures = skewed(), torch.rand(6, 3, 64, 64) * 2 - 1
    wanted = vae.decode(vae.encode(pictures).latent_dist.mean).sample
    for _ in range(2):
        balance(vae, vae.encode(pictures).latent_dist.mean)
    assert torch.allclose(
        vae.decode(vae.encode(pictures).latent_dist.mean).sample, wanted, atol=1e-3
    )


def test_colour_is_held_down_and_weak_directions_are_lifted() -> None:
    variance = torch.tensor([0.01, 0.16, 1.0, 40.0])
    wanted = wanted_variance(variance)
    assert torch.allclose(wanted, torch.tensor([0.01**0.25, 0.16**0.25, 1.0, COLOUR]), atol=1e-6)
