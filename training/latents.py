"""Pools of encoded pictures: chunks of latents with their captions' tokens, one size a chunk.

    python -m training.latents --icons icons.json --stage half --chunks 20
    python -m training.latents --icons icons.json --stage buckets --chunks 30 --forever

With ``--forever`` the oldest chunks give way to new ones while a training reads the folder.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from torch import Tensor

from training import autoencoder, budget
from training.captions import write
from training.compositions import Mix, draw, random_scene
from training.emoji import ICONS, load_sprites
from training.text import Text

RUNS = Path(__file__).parent / "runs"
BUCKETS = (
    *((256, 256),) * 4,
    (320, 192),
    (192, 320),
    (288, 224),
    (224, 288),
    (352, 192),
    (192, 352),
    (192, 192),
    (320, 320),
    (128, 128),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage shows: sizes (width, height), scenes, T5 tokens, spacing of ids, noise."""

    sizes: tuple[tuple[int, int], ...]
    mix: Mix
    tokens: int
    spacing: int = 1
    noise: float = 0.5


# Half resolution spaces its position ids by two, so that a place keeps its ids at full resolution.
# Captions fit in 24 tokens; the last stage pads them to the 40 that the pipeline is called with.
STAGES = {
    "half": Stage(((128, 128),), Mix(0.1, 0.1, 0.1, 0.1), 24, 2, 0.0),
    "full": Stage(((256, 256),), Mix(0.25, 0.2, 0.2, 0.15), 24),
    "buckets": Stage(BUCKETS, Mix(0.3, 0.25, 0.25, 0.2), 40),
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """latents: standardised [n, 32, h, w]; token ids [n, 40] of CLIP and T5."""

    latents: Tensor
    clip: Tensor
    t5: Tensor


def load_vae(runs: Path) -> AutoencoderKL:
    """The autoencoder of the first phase: its encoder is the one that stays."""
    state = budget.load(runs / "vae-full.pt")
    vae = autoencoder.build()
    vae.load_state_dict(state["vae"])
    vae.register_to_config(**state["factors"])
    return vae.requires_grad_(False).eval()


def encode(vae: AutoencoderKL, pictures: list[np.ndarray], device: str) -> Tensor:
    """Standardised latents, float16 [n, 32, h/16, w/16]."""
    x = autoencoder.to_model(torch.from_numpy(np.stack(pictures))).to(device)
    with torch.no_grad():
        mean = vae.encode(x).latent_dist.mean
    return ((mean - vae.config.shift_factor) * vae.config.scaling_factor).half().cpu()


class Producer:
    """Draws, captions and encodes chunks of one stage."""

    def __init__(self, icons: Path, runs: Path, stage: Stage, seed: int, device: str) -> None:
        self.rng, self.stage, self.device = random.Random(seed), stage, device
        self.sprites, self.vae, self.text = load_sprites(icons), load_vae(runs).to(device), Text()

    def chunk(self, number: int, count: int, batch: int = 20) -> dict[str, Tensor]:
        width, height = self.stage.sizes[number % len(self.stage.sizes)]
        latents, captions = [], []
        for _ in range(count // batch):
            scenes = [random_scene(self.rng, self.stage.mix) for _ in range(batch)]
            captions += [write(scene, self.rng) for scene in scenes]
            pictures = [draw(scene, self.sprites, width, height) for scene in scenes]
            latents.append(encode(self.vae, pictures, self.device))
        clip, t5 = self.text.tokenise(captions)
        return {"latents": torch.cat(latents), "clip": clip.short(), "t5": t5.short()}


class Pool:
    """The chunks of a folder; ``refresh`` takes up new ones and drops those that are gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chunks: dict[Path, Chunk] = {}
        self.refresh()

    def refresh(self) -> None:
        paths = sorted(self.folder.glob("*.pt"))
        self.chunks = {path: self.chunks.get(path) or Chunk(**budget.load(path)) for path in paths}

    def batch(self, rng: random.Random, count: int) -> Chunk:
        """``count`` rows of one random chunk."""
        chunk = self.chunks[rng.choice(list(self.chunks))]
        rows = torch.tensor(rng.sample(range(len(chunk.latents)), count))
        latents = chunk.latents[rows].float()
        return Chunk(latents, chunk.clip[rows].long(), chunk.t5[rows].long())


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw and encode pictures for a stage")
    parser.add_argument("--icons", type=Path, default=ICONS, help="icons.json of the npm package")
    parser.add_argument("--stage", choices=sorted(STAGES), required=True)
    parser.add_argument("--chunks", type=int, default=20, help="number of files")
    parser.add_argument("--pictures", type=int, default=1000, help="in each file")
    parser.add_argument("--first", type=int, default=0, help="number of the first chunk, and seed")
    parser.add_argument("--forever", action="store_true", help="go on, deleting the oldest chunks")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=Path, default=RUNS)
    args = parser.parse_args()
    folder: Path = args.runs / "pools" / args.stage
    producer = Producer(args.icons, args.runs, STAGES[args.stage], args.first, args.device)
    clock, number = budget.Budget(1e9), args.first
    while args.forever or number < args.first + args.chunks:
        budget.save(folder / f"{number:05d}.pt", producer.chunk(number, args.pictures))
        clock.tick()
        print(f"{number} {clock.spent_s:.0f} s", flush=True)
        number += 1
        for old in sorted(folder.glob("*.pt"))[: -args.chunks]:
            old.unlink()


if __name__ == "__main__":
    main()
