"""The judge: a small classifier that names the object in a picture.

    python -m training.judge --icons icons.json --minutes 3

It is trained on pictures drawn apart from the generator's (other seed, and jitter, blur, noise and
colour shifts that the generator never draws), so that it recognises a soft drawing, too.
"""

from __future__ import annotations

import argparse
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor, nn
from torch.nn import functional as F

from training import budget
from training.autoencoder import to_model
from training.compositions import COLOURS, Scene, Thing, draw
from training.emoji import ICONS, OBJECTS, load_sprites
from training.latents import RUNS

SIDE = 64
NAMES = [emoji.name for emoji in OBJECTS]


class Judge(nn.Module):  # type: ignore[misc]
    """Four convolution levels, one linear layer: [n, 3, 64, 64] in -1..1 -> logits [n, objects]."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, 96, 128)
        layers: list[nn.Module] = []
        for narrow, wide in pairwise(widths):
            layers += [nn.Conv2d(narrow, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU()]
            layers += [nn.MaxPool2d(2)]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(widths[-1] * (SIDE // 16) ** 2, len(NAMES))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(1))


def example(rng: random.Random, sprites: dict[str, Image.Image]) -> tuple[np.ndarray, int]:
    """A drawn object of a wide range of sizes and places, softened: uint8 [64, 64, 3], class."""
    label = rng.randrange(len(NAMES))
    side = rng.uniform(0.5, 1.0)
    x, y = (0.5 + rng.uniform(-0.08, 0.08) for _ in range(2))
    thing = Thing(NAMES[label], "", "", x, y, side)
    colours = tuple(rng.sample(sorted(COLOURS), rng.choice((1, 2))))
    picture = draw(Scene((thing,), colours), sprites, 128, 128)
    soft = Image.fromarray(picture).filter(ImageFilter.GaussianBlur(rng.uniform(0, 2.0)))
    pixels = np.asarray(soft.resize((SIDE, SIDE), Image.Resampling.BOX)).astype(np.float32)
    pixels = pixels * rng.uniform(0.9, 1.1) + rng.uniform(-12, 12)
    noise = np.random.default_rng(rng.randrange(2**32)).normal(0, rng.uniform(0, 8), pixels.shape)
    return (pixels + noise).clip(0, 255).astype(np.uint8), label


def batch_of(rng: random.Random, sprites: dict[str, Image.Image], n: int) -> tuple[Tensor, Tensor]:
    pairs = [example(rng, sprites) for _ in range(n)]
    pictures = torch.from_numpy(np.stack([picture for picture, _ in pairs]))
    return to_model(pictures), torch.tensor([label for _, label in pairs])


def train(icons: Path, minutes: float, seed: int) -> tuple[Judge, float]:
    """A trained judge and its accuracy on 1,000 fresh drawings."""
    torch.manual_seed(seed)
    rng, sprites, judge = random.Random(seed), load_sprites(icons), Judge()
    optimiser = torch.optim.AdamW(judge.parameters(), lr=2e-3, weight_decay=0.01)
    clock = budget.Budget(minutes)
    while not clock.is_over:
        x, wanted = batch_of(rng, sprites, 64)
        loss = F.cross_entropy(judge(x), wanted, label_smoothing=0.05)
        optimiser.zero_grad()
        loss.backward()
        optimiser.param_groups[0]["lr"] = 2e-3 * budget.learning_rate(clock.progress)
        optimiser.step()
        clock.tick()
    judge.eval()
    with torch.no_grad():
        x, wanted = batch_of(rng, sprites, 1000)
        accuracy = (judge(x).argmax(-1) == wanted).float().mean()
    return judge, float(accuracy)


def load(runs: Path) -> Judge:
    judge = Judge()
    judge.load_state_dict(budget.load(runs / "judge.pt")["judge"])
    judge.eval()
    return judge


def name_object(judge: Judge, picture: Image.Image) -> str:
    """The object that the picture shows, by the judge; pass a crop around the object."""
    small = picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX)
    with torch.no_grad():
        logits = judge(to_model(torch.from_numpy(np.array(small))[None]))
    return NAMES[int(logits.argmax())]


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the judge of the evaluation")
    parser.add_argument("--icons", type=Path, default=ICONS, help="icons.json of the npm package")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--runs", type=Path, default=RUNS)
    args = parser.parse_args()
    judge, accuracy = train(args.icons, args.minutes, args.seed)
    print(f"accuracy on 1,000 drawings: {accuracy:.3f}")
    budget.save(args.runs / "judge.pt", {"judge": judge.state_dict(), "accuracy": accuracy})


if __name__ == "__main__":
    main()
