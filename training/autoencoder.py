"""The picture autoencoder: 256x256 pictures to 16x16 latents of 32 channels, and back.

    python -m training.autoencoder --minutes 18                   # both halves, on crops
    python -m training.autoencoder --phase tune --minutes 30      # both, on whole pictures
    python -m training.autoencoder --phase decoder --minutes 30   # the encoder stays as it is

``training.balance`` then gives the latents their scale, which later runs keep.
``--from assets/flux-emoji`` begins with the shipped weights.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL
from torch import Tensor, nn

from training import budget, drawing
from training.compositions import FULL, Mix, random_scene
from training.emoji import ICONS
from training.optimisers import MuonAndAdam

RUNS = Path(__file__).parent / "runs"
CHANNELS = (16, 32, 48, 64, 96)
LATENT_CHANNELS = 32
SCALE = 16  # pixels a latent
SIDE_PX = 256
PHASES = ("full", "tune", "decoder")
FORMS = (*PHASES, "balanced")  # what a checkpoint may be
LATENT_NOISE = 0.05  # deviation that the decoder learns to ignore; the encoder's fixed one, too


def build() -> AutoencoderKL:
    """Five levels, one residual block a level (two in the decoder), no attention; 1.9 M weights."""
    levels = len(CHANNELS)
    vae = AutoencoderKL(
        block_out_channels=CHANNELS,
        down_block_types=("DownEncoderBlock2D",) * levels,
        up_block_types=("UpDecoderBlock2D",) * levels,
        latent_channels=LATENT_CHANNELS,
        layers_per_block=1,
        norm_num_groups=8,
        mid_block_add_attention=False,
        use_quant_conv=False,
        use_post_quant_conv=True,
        sample_size=256,
        scaling_factor=1.0,
        shift_factor=0.0,
    )
    # The log-variance half is a constant: image-to-image samples from it.
    with torch.no_grad():
        vae.encoder.conv_out.weight[LATENT_CHANNELS:] = 0
        vae.encoder.conv_out.bias[LATENT_CHANNELS:] = 2 * np.log(LATENT_NOISE)
        vae.post_quant_conv.weight.copy_(torch.eye(LATENT_CHANNELS)[..., None, None])
        vae.post_quant_conv.bias.zero_()
    return vae


def draw_pool(icons: Path, count: int, seed: int, mix: Mix = FULL) -> Tensor:
    """uint8 [count, 256, 256, 3] of drawn scenes."""
    rng = random.Random(seed)
    sprites = drawing.load(icons)
    pictures = [drawing.draw(random_scene(rng, mix), sprites) for _ in range(count)]
    return torch.from_numpy(np.stack(pictures))


def to_model(pictures: Tensor) -> Tensor:
    """uint8 [n, h, w, 3] -> float [n, 3, h, w] in -1..1."""
    return pictures.permute(0, 3, 1, 2).float() / 127.5 - 1


def crops(pool: Tensor, count: int, side: int, rng: random.Random) -> Tensor:
    """Crops of many pictures [count, 3, side, side]; of two places the busier one is taken."""
    chosen = []
    for _ in range(count):
        picture = pool[rng.randrange(len(pool))]
        places = [_cut(picture, side, rng) for _ in range(2)]
        chosen.append(max(places, key=_busyness))
    return to_model(torch.stack(chosen))


def _cut(picture: Tensor, side: int, rng: random.Random) -> Tensor:
    """A crop on the latents' grid; borders are met more often than chance would have it."""
    rooms = [(size - side) // SCALE for size in picture.shape[:2]]
    over = side // 4 // SCALE
    y, x = (SCALE * min(max(rng.randint(-over, room + over), 0), room) for room in rooms)
    return picture[y : y + side, x : x + side]


def _busyness(crop: Tensor) -> float:
    return float(crop[::4, ::4].float().std())


def loss_of(decoded: Tensor, wanted: Tensor) -> Tensor:
    """L1 + 2·MSE + 0.3·L1 of the differences to the right and below (keeps outlines sharp)."""
    error = decoded - wanted
    across = error[..., 1:] - error[..., :-1]
    down = error[..., 1:, :] - error[..., :-1, :]
    edges = across.abs().mean() + down.abs().mean()
    return error.abs().mean() + 2 * error.square().mean() + 0.3 * edges


def reconstruct(vae: AutoencoderKL, x: Tensor) -> tuple[Tensor, Tensor]:
    """The latents' mean and the decoded picture of [n, 3, h, w], by way of a noisy latent."""
    with torch.autocast(x.device.type, torch.bfloat16):
        mean = vae.encode(x).latent_dist.mean
        decoded = vae.decode(mean + LATENT_NOISE * torch.randn_like(mean)).sample
    return mean.float(), decoded.float()


def psnr(vae: AutoencoderKL, pictures: Tensor, batch: int = 8) -> float:
    """Mean decibels of whole pictures, uint8 [n, h, w, 3], encoded and decoded."""
    values = []
    for part in pictures.split(batch):
        with torch.no_grad():
            x = to_model(part).to(next(vae.parameters()).device)
            y = vae.decode(vae.encode(x).latent_dist.mean).sample.clamp(-1, 1)
        values += (-10 * ((x - y) / 2).square().mean((1, 2, 3)).log10()).tolist()
    return float(np.mean(values))


def optimiser_of(parts: list[nn.Module], muon_rate: float, adam_rate: float) -> MuonAndAdam:
    """Muon on every inner kernel; Adam on norms, biases and the outermost convolutions."""
    named = [(n, p) for part in parts for n, p in part.named_parameters()]
    inner = {n for n, p in named if p.ndim == 4 and "conv_in" not in n and "conv_out" not in n}
    inner = inner if muon_rate > 0 else set()
    matrices = [p for n, p in named if n in inner]
    others = [p for n, p in named if n not in inner]
    return MuonAndAdam(matrices, others, muon_rate, adam_rate)


def start(args: argparse.Namespace, path: Path) -> tuple[AutoencoderKL, dict[str, Any]]:
    """The model to train and, with ``--resume``, the state to go on from."""
    vae = build()
    if args.resume:
        return vae, fill(vae, path)
    if args.from_model:
        shipped = AutoencoderKL.from_pretrained(args.from_model / "vae")
        vae.load_state_dict(shipped.state_dict())
    elif args.phase != "full":
        fill(vae, args.runs / f"{args.name}-{args.start}.pt")
    return vae, {}


def fill(vae: AutoencoderKL, path: Path) -> dict[str, Any]:
    """Load a checkpoint's weights; returns all that it holds."""
    state = budget.load(path)
    vae.load_state_dict(state["vae"])
    return state


def load(runs: Path, name: str = "vae") -> AutoencoderKL:
    """The autoencoder that was saved last."""
    vae = build()
    paths = [runs / f"{name}-{form}.pt" for form in FORMS]
    fill(vae, max((p for p in paths if p.exists()), key=lambda p: p.stat().st_mtime))
    return vae.requires_grad_(False).eval()


def shape_of_batch(args: argparse.Namespace, progress: float) -> tuple[int, int]:
    """Pictures a batch and their side: crops that grow, or whole pictures.

    Crops alone leave whole pictures some 3 dB behind: the norms see other statistics in them.
    """
    if args.phase != "full":
        return args.batch, SIDE_PX
    return (24, 64) if progress < args.small_crops else (6, 128)


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    path = args.runs / f"{args.name}-{args.phase}.pt"
    vae, state = start(args, path)
    vae.to(args.device)
    parts = [vae.decoder] if args.phase == "decoder" else [vae.encoder, vae.decoder]
    vae.encoder.requires_grad_(args.phase != "decoder")
    optimiser = optimiser_of(parts, args.muon_rate, args.adam_rate)
    if state:
        optimiser.load_state_dict(state["optimiser"])
    clock = budget.Budget(args.minutes, state.get("spent_s", 0.0))
    pool = draw_pool(args.icons, args.pool, args.seed)
    held = draw_pool(args.icons, 32, args.seed + 1)

    def checkpoint() -> None:
        weights = {k: v.cpu() for k, v in vae.state_dict().items()}
        state = {"vae": weights, "spent_s": clock.spent_s}
        budget.save(path, {**state, "optimiser": optimiser.state_dict()})
        print(f"  whole pictures {psnr(vae, held):.2f} dB", flush=True)

    step = 0
    while not clock.is_over:
        x = crops(pool, *shape_of_batch(args, clock.progress), rng).to(args.device)
        mean, decoded = reconstruct(vae, x)
        loss = loss_of(decoded, x) + 1e-4 * mean.square().mean()
        loss.backward()
        optimiser.step(budget.learning_rate(clock.progress, flat=args.flat))
        clock.tick()
        step += 1
        if step % 50 == 0:
            db = -10 * float(((decoded - x) / 2).square().mean().log10())
            print(f"{step} {clock.spent_s:.0f} s loss {loss:.4f} batch {db:.2f} dB", flush=True)
        if clock.is_save_due():
            checkpoint()
    checkpoint()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--icons", type=Path, default=ICONS, help="icons.json of the npm package")
    parser.add_argument("--phase", choices=PHASES, default="full")
    parser.add_argument("--start", choices=FORMS, default="full", help="checkpoint to go on from")
    parser.add_argument("--from", dest="from_model", type=Path, help="folder of a shipped model")
    parser.add_argument("--name", default="vae", help="name of the checkpoint")
    parser.add_argument("--minutes", type=float, default=18.0)
    parser.add_argument("--pool", type=int, default=2000, help="pictures that crops are taken from")
    parser.add_argument("--muon-rate", type=float, default=2e-3, help="0: Adam for everything")
    parser.add_argument("--adam-rate", type=float, default=1e-3)
    parser.add_argument("--flat", type=float, default=0.5, help="share of the time at full rate")
    parser.add_argument("--small-crops", type=float, default=0.7, help="share at 64x64, then 128")
    parser.add_argument("--batch", type=int, default=4, help="whole pictures a step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--resume", action="store_true")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
