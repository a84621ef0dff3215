"""The judge: a small classifier that names the object in a crop, or says that there is none.

    python -m training.judge --minutes 6

It is trained on pictures drawn apart from the generator's: another seed, held-out combinations
included, at any pixel; blurred, turned, noisy, shifted in colour and damaged by JPEG, so that it
recognises a soft drawing, too. Crops of several objects, of a half or of the background alone have
a class of their own: ``reading.py`` separates objects that touch by it.
"""

from __future__ import annotations

import argparse
import random
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor, nn
from torch.nn import functional as F

from training import budget, drawing
from training.autoencoder import to_model
from training.compositions import Mix, Scene, any_scene
from training.emoji import ICONS, OBJECTS
from training.finding import Box, crop
from training.latents import RUNS

SIDE_PX = 64
MARGIN = 1.2  # of the crop's side to the object's longer one
NAMES = (*(emoji.name for emoji in OBJECTS), "")  # the last: not one whole object
SCENES = Mix(0.4, 0.15, 0.2, 0.3, 0.15, 0.2, 0.4, free=1.0)
PICTURES_PX = (96, 144, 224)
TURN = 1.25  # of the crop's side, to turn it without corners of nothing
WIDE_PX = round(TURN * SIDE_PX)
RATE = 2e-3
NOTHING = 0.15  # crops without one whole object, to each with one


class Judge(nn.Module):  # type: ignore[misc]
    """Four convolutions, one linear layer: [n, 3, 64, 64] in -1..1 -> logits [n, names]."""

    def __init__(self) -> None:
        super().__init__()
        # The first convolution halves the picture: a batch takes a third of the time.
        self.body = nn.Sequential(
            *_level(3, 32, kernel=4, stride=2),
            nn.MaxPool2d(2),
            *_level(32, 64),
            *_level(64, 128),
            nn.MaxPool2d(2),
            *_level(128, 128),
            nn.MaxPool2d(2),
        )
        self.head = nn.Linear(128 * (SIDE_PX // 16) ** 2, len(NAMES))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(1)).float()


def _level(narrow: int, wide: int, kernel: int = 3, stride: int = 1) -> tuple[nn.Module, ...]:
    convolution = nn.Conv2d(narrow, wide, kernel, stride, padding=1)
    return convolution, nn.BatchNorm2d(wide), nn.ReLU()


class Examples:
    """Crops of drawings and the indices of their names, from a seed."""

    def __init__(self, icons: Path, seed: int) -> None:
        self.rng, self.noise = random.Random(seed), np.random.default_rng(seed)
        self.sprites = drawing.load(icons)

    def batch(self, count: int) -> tuple[Tensor, Tensor]:
        """[count, 3, 64, 64] in -1..1 and [count]."""
        crops: list[tuple[np.ndarray, int]] = []
        while len(crops) < count:
            crops += self._of_one_scene()
        crops = crops[:count]
        pictures = torch.from_numpy(np.stack([picture for picture, _ in crops]))
        return to_model(pictures), torch.tensor([label for _, label in crops])

    def _of_one_scene(self) -> list[tuple[np.ndarray, int]]:
        """Each thing of a scene twice, and sometimes a crop that holds no single whole thing."""
        rng, side = self.rng, self.rng.choice(PICTURES_PX)
        scene = any_scene(rng, SCENES)
        picture = drawing.draw(scene, self.sprites, side, side)
        boxes = ink_boxes(scene, self.sprites, side, side)
        wanted = [
            (shaken(box, rng), NAMES.index(thing.name))
            for box, thing in zip(boxes, scene.things, strict=True)
            for _ in range(2)
        ]
        if rng.random() < 2 * NOTHING * len(boxes):
            wanted.append((_no_whole_thing(boxes, side, rng), len(NAMES) - 1))
        return [
            (self._softened(crop(picture, box, TURN * MARGIN, WIDE_PX)), i) for box, i in wanted
        ]

    def _softened(self, picture: np.ndarray) -> np.ndarray:
        """The middle of uint8 [80, 80, 3], turned, blurred, discoloured, noisy: [64, 64, 3]."""
        rng, noise, edge = self.rng, self.noise, (WIDE_PX - SIDE_PX) // 2
        image = Image.fromarray(picture).rotate(rng.uniform(-9, 9), Image.Resampling.BILINEAR)
        image = image.crop((edge, edge, edge + SIDE_PX, edge + SIDE_PX))
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0, 1.3)))
        if rng.random() < 0.3:
            image = _through_jpeg(image, rng.randint(25, 80))
        gain, offset = noise.uniform(0.9, 1.1, 3), noise.uniform(-14, 14, 3)
        grain = noise.standard_normal((SIDE_PX, SIDE_PX, 3), np.float32) * rng.uniform(0, 9)
        pixels: np.ndarray = (np.asarray(image) * gain + offset + grain).clip(0, 255)
        return pixels.astype(np.uint8)


def ink_boxes(scene: Scene, sprites: drawing.Sprites, width: int, height: int) -> list[Box]:
    """What each thing of the drawing covers."""
    boxes = []
    for thing in scene.things:
        x, y, side = drawing.pixels_of(thing, scene, width, height)
        ink = sprites.sized(thing.name, thing.colour, side).getchannel("A").getbbox()
        assert ink is not None, thing
        boxes.append(Box(x + ink[0], y + ink[1], x + ink[2], y + ink[3]))
    return boxes


def shaken(box: Box, rng: random.Random) -> Box:
    """Each edge moved by up to a twelfth, as the finder may miss it."""
    reach = box.side / 12
    edges = (box.left, box.top, box.right, box.bottom)
    return Box(*(round(edge + rng.uniform(-reach, reach)) for edge in edges))


def _no_whole_thing(boxes: list[Box], side: int, rng: random.Random) -> Box:
    """Several things at once, the half of one, or a place beside all of them."""
    box = rng.choice(boxes)
    if len(boxes) > 1 and rng.random() < 0.5:
        return box.joined(rng.choice([other for other in boxes if other != box]))
    if rng.random() < 0.5:
        return rng.choice(box.cut(0.5, is_across=rng.random() < 0.5))
    return _empty_place(boxes, side, rng)


def _empty_place(boxes: list[Box], side: int, rng: random.Random) -> Box:
    """An eighth of the picture's side, apart from the boxes where ten tries find such a place."""
    reach = side // 8
    for _ in range(10):
        x, y = rng.randrange(side - reach), rng.randrange(side - reach)
        place = Box(x, y, x + reach, y + reach)
        if all(place.distance(box) > 0 for box in boxes):
            break
    return place


def _through_jpeg(image: Image.Image, quality: int) -> Image.Image:
    file = BytesIO()
    image.save(file, "jpeg", quality=quality)
    return Image.open(file)


def train(icons: Path, minutes: float, seed: int, count: int = 64) -> tuple[Judge, float]:
    """A trained judge and its accuracy on 2,000 fresh crops."""
    torch.manual_seed(seed)
    examples, judge = Examples(icons, seed), Judge().to(memory_format=torch.channels_last)
    optimiser = torch.optim.AdamW(judge.parameters(), lr=RATE, weight_decay=0.05)
    clock = budget.Budget(minutes)
    while not clock.is_over:
        x, wanted = examples.batch(count)
        with torch.autocast("cpu", torch.bfloat16):
            logits = judge(x.contiguous(memory_format=torch.channels_last))
        loss = F.cross_entropy(logits, wanted, label_smoothing=0.05)
        optimiser.zero_grad()
        loss.backward()
        optimiser.param_groups[0]["lr"] = RATE * budget.learning_rate(clock.progress, flat=0.3)
        optimiser.step()
        clock.tick()
    judge.eval()
    return judge, accuracy(judge, Examples(icons, seed + 1), 2000)


def accuracy(judge: Judge, examples: Examples, count: int) -> float:
    """Share of fresh crops that get their name."""
    x, wanted = examples.batch(count)
    with torch.no_grad():
        named = torch.cat([judge(part).argmax(-1) for part in x.split(100)])
    return float((named == wanted).float().mean())


def save(runs: Path, judge: Judge, right: float) -> None:
    """``right``: its accuracy."""
    weights = judge.state_dict()
    budget.save(runs / "judge.pt", {"judge": weights, "names": list(NAMES), "accuracy": right})


def load(runs: Path) -> Judge:
    """Raises ValueError where the saved judge was trained on other objects."""
    state = budget.load(runs / "judge.pt")
    if state.get("names") != list(NAMES):
        raise ValueError(f"{runs / 'judge.pt'} knows other objects; run python -m training.judge.")
    judge = Judge()
    judge.load_state_dict(state["judge"])
    return judge.requires_grad_(False).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the judge of the evaluation")
    parser.add_argument("--icons", type=Path, default=ICONS, help="icons.json of the npm package")
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--seed", type=int, default=1000)
    parser.add_argument("--runs", type=Path, default=RUNS)
    args = parser.parse_args()
    judge, right = train(args.icons, args.minutes, args.seed)
    print(f"right on 2,000 fresh crops: {right:.3f}")
    save(args.runs, judge, right)


if __name__ == "__main__":
    main()
