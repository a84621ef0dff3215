"""Pools of encoded pictures: chunks of latents with their captions' tokens, one size a chunk.

    python -m training.latents --stage buckets --chunks 28
    python -m training.latents --stage buckets --chunks 28 --forever

With ``--forever`` the oldest chunks give way to new ones while a training reads the folder.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from diffusers import AutoencoderKL
from torch import Tensor

from training import autoencoder, budget, drawing
from training.captions import write
from training.compositions import FULL, Mix, Scene, random_scene
from training.drawing import parts_of
from training.emoji import ICONS
from training.text import Text

RUNS = Path(__file__).parent / "runs"
CAPTIONS = 4  # phrasings of each picture
# Every size of the page's ratio buttons at its three areas; the native one most often, the largest
# area least, because it costs twice as much.
BUCKETS = (
    *((256, 256),) * 16,
    *((320, 224), (224, 320), (288, 224), (224, 288), (352, 192), (192, 352)),
    *((192, 192), (192, 192), (224, 160), (160, 224), (256, 128), (128, 256)),
    *((352, 352), (448, 288), (288, 448), (416, 320), (320, 416), (480, 256), (256, 480)),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage shows: sizes (width, height), scenes, T5 tokens, spacing of ids, noise."""

    sizes: tuple[tuple[int, int], ...]
    mix: Mix
    tokens: int
    spacing: int = 1
    noise: float = 0.6


# Half resolution spaces its position ids by two, so that a place keeps its ids at full resolution.
# Captions mostly fit in 24 tokens; the last stage pads them to the 40 that the pipeline uses.
STAGES = {
    "half": Stage(((128, 128),), replace(FULL, pair=0.1, some=0.05), 24, 2, -0.2),
    "full": Stage(((256, 256),), FULL, 24),
    "buckets": Stage(BUCKETS, FULL, 40),
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """A batch: latents [n, 32, h, w]; token ids [n, 40] of CLIP and T5.

    ``ink``: [n, tokens], whether a thing lies in the token's square; ``parts``: [n, tokens, 2],
    which part of which object (`drawing.parts_of`).
    """

    latents: Tensor
    ink: Tensor
    parts: Tensor
    clip: Tensor
    t5: Tensor


def encode(vae: AutoencoderKL, pictures: Sequence[np.ndarray], device: str) -> Tensor:
    """Latents, float16 [n, 32, h/16, w/16]."""
    x = autoencoder.to_model(torch.from_numpy(np.stack(pictures))).to(device)
    with torch.no_grad():
        mean = vae.encode(x).latent_dist.mean
    return mean.half().cpu()


def ink_of(picture: np.ndarray, background: np.ndarray) -> np.ndarray:
    """bool [tokens]: the squares of ``GRID_PX`` in which the two uint8 pictures differ."""
    differs = np.abs(picture.astype(np.int16) - background).max(-1) > 8
    rows, columns = (side // drawing.GRID_PX for side in differs.shape)
    squares = differs.reshape(rows, drawing.GRID_PX, columns, drawing.GRID_PX)
    ink: np.ndarray = squares.any((1, 3)).reshape(-1)
    return ink


class Producer:
    """Draws, captions and encodes chunks of one stage."""

    def __init__(self, icons: Path, runs: Path, stage: Stage, seed: int, device: str) -> None:
        self.rng, self.stage, self.device = random.Random(seed), stage, device
        self.sprites, self.text = drawing.load(icons), Text()
        self.vae = autoencoder.load(runs).to(device)

    def chunk(self, number: int, count: int, batch: int = 20) -> dict[str, Tensor]:
        """``count`` pictures: what `Chunk` holds, but token ids [n, captions, 40]."""
        width, height = self.stage.sizes[number % len(self.stage.sizes)]
        scenes = [random_scene(self.rng, self.stage.mix) for _ in range(count)]
        captions = [write(scene, self.rng) for scene in scenes for _ in range(CAPTIONS)]
        tokens = self.text.tokenise(captions)
        clip, t5 = (ids.short().unflatten(0, (count, CAPTIONS)) for ids in tokens)
        latents, ink = [], []
        for start in range(0, count, batch):
            pictures = [self._draw(s, width, height) for s in scenes[start : start + batch]]
            latents.append(encode(self.vae, [picture for picture, _ in pictures], self.device))
            ink += [ink_of(*both) for both in pictures]
        return {
            "latents": torch.cat(latents),
            "ink": torch.from_numpy(np.stack(ink)),
            "parts": torch.from_numpy(np.stack([parts_of(s, width, height) for s in scenes])),
            "clip": clip,
            "t5": t5,
        }

    def _draw(self, scene: Scene, width: int, height: int) -> tuple[np.ndarray, np.ndarray]:
        """The picture and its background alone."""
        empty = replace(scene, things=())
        whole, bare = (drawing.draw(s, self.sprites, width, height) for s in (scene, empty))
        return whole, bare


class Pool:
    """The chunks of a folder; ``refresh`` takes up new ones and drops those that are gone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chunks: dict[Path, dict[str, Tensor]] = {}
        self.refresh()

    def refresh(self) -> None:
        paths = sorted(self.folder.glob("*.pt"))
        self.chunks = {path: self.chunks.get(path) or budget.load(path) for path in paths}

    def batch(self, rng: random.Random, count: int) -> Chunk:
        """``count`` rows of one random chunk, each with one of its captions."""
        chunk = self.chunks[rng.choice(list(self.chunks))]
        rows = torch.tensor(rng.sample(range(len(chunk["latents"])), count))
        captions = torch.tensor([rng.randrange(CAPTIONS) for _ in range(count)])
        clip, t5 = (chunk[name][rows, captions].long() for name in ("clip", "t5"))
        latents, ink, parts = (chunk[name][rows] for name in ("latents", "ink", "parts"))
        return Chunk(latents.float(), ink, parts.long(), clip, t5)


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
        for old in sorted(folder.glob("*.pt"))[: -args.chunks] if args.forever else []:
            old.unlink()


if __name__ == "__main__":
    main()
