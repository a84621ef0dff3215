"""Turns and scales a trained autoencoder's latents, so that shapes weigh as much as colours.

    python -m training.balance

A trained encoder spreads its latents as the pixels are spread: of 32 principal directions the 3 of
the mean colour hold 85 % of the variance, and the noise of rectified flow hides outlines until the
last few steps. Here each direction gets a variance near 1. The change is linear: it goes into the
encoder's last convolution and the decoder's ``post_quant_conv``, and no picture changes.
Writes ``runs/vae-balanced.pt``; a transformer must be trained on the latents it will meet.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from diffusers import AutoencoderKL
from torch import Tensor

from training import autoencoder, budget
from training.emoji import ICONS

STRONG = 0.04  # share of the whole variance from which a direction counts as colour
COLOUR = 0.6  # variance of those: the colour is not settled long before the shape
TAPER = 0.25  # exponent of the others' variance, the largest being 1: what matters little stays low
PICTURES = 256


def balance(vae: AutoencoderKL, latents: Tensor) -> None:
    """Change ``vae`` in place; ``latents``: encoded means [n, channels, h, w] to fit it by."""
    flat = latents.movedim(1, -1).flatten(0, -2)
    mean = flat.mean(0)
    variance, axes = torch.linalg.eigh(torch.cov(flat.T))
    scale = (wanted_variance(variance) / variance).sqrt()
    forward, back = scale[:, None] * axes.T, axes / scale
    channels = len(mean)
    last, first = vae.encoder.conv_out, vae.post_quant_conv
    with torch.no_grad():
        last.weight[:channels] = torch.einsum("kc,cihw->kihw", forward, last.weight[:channels])
        last.bias[:channels] = forward @ (last.bias[:channels] - mean)
        matrix = first.weight[..., 0, 0]
        first.bias += matrix @ mean
        first.weight.copy_((matrix @ back)[..., None, None])


def wanted_variance(variance: Tensor) -> Tensor:
    """What each direction's variance [channels] becomes."""
    is_colour = variance > STRONG * variance.sum()
    rest = (variance / variance[~is_colour].max()).clamp(max=1.0)
    return torch.where(is_colour, COLOUR, rest**TAPER)


def main() -> None:
    parser = argparse.ArgumentParser(description="Balance the autoencoder's latents")
    parser.add_argument("--icons", type=Path, default=ICONS, help="icons.json of the npm package")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=autoencoder.RUNS)
    args = parser.parse_args()
    vae = autoencoder.load(args.runs)
    pictures = autoencoder.draw_pool(args.icons, PICTURES, args.seed)
    with torch.no_grad():
        parts = [vae.encode(autoencoder.to_model(p)).latent_dist.mean for p in pictures.split(8)]
    before = autoencoder.psnr(vae, pictures[:32])
    balance(vae, torch.cat(parts))
    print(
        f"whole pictures {before:.2f} dB before, {autoencoder.psnr(vae, pictures[:32]):.2f} after"
    )
    budget.save(args.runs / "vae-balanced.pt", {"vae": vae.state_dict(), "spent_s": 0.0})


if __name__ == "__main__":
    main()
