"""A world for the judge's tests: every object is a square of its own colour, known by it."""

from functools import cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from training.compositions import Scene, Thing
from training.drawing import Sprites, draw
from training.emoji import OBJECTS
from training.judge import NAMES

# Six shades of 27 hues: at least 16 levels apart in some channel.
SHADES = ((1.0, 1.0), (1.0, 0.7), (0.6, 1.0), (0.6, 0.7), (1.0, 0.45), (0.6, 0.45))


def block_colour(index: int) -> tuple[int, int, int]:
    hue, (saturation, value) = index % 27 / 27, SHADES[index // 27]
    hsv = tuple(round(255 * part) for part in (hue, saturation, value))
    pixel = Image.new("HSV", (1, 1), hsv).convert("RGB").getpixel((0, 0))
    assert isinstance(pixel, tuple)
    red, green, blue = pixel
    return int(red), int(green), int(blue)


COLOUR_OF = {emoji.name: block_colour(i) for i, emoji in enumerate(OBJECTS)}


@cache
def blocks() -> Sprites:
    size = (64, 64)
    icons = {name: Image.new("RGBA", size, (*colour, 255)) for name, colour in COLOUR_OF.items()}
    return Sprites(icons)


class BlockJudge(nn.Module):  # type: ignore[misc]
    """Knows a crop whose middle is one block's colour; anything else is no whole object.

    ``is_blind`` breaks it: it has a name for everything, as a judge without that class would.
    """

    def __init__(self, is_blind: bool = False) -> None:
        super().__init__()
        self.is_blind = is_blind
        self.colours = torch.tensor(list(COLOUR_OF.values())) / 127.5 - 1

    def forward(self, x: Tensor) -> Tensor:
        """[n, 3, 64, 64] in -1..1 -> logits [n, names]: 9 for the answer."""
        logits = torch.zeros(len(x), len(NAMES))
        # The crop is 1.2 times the object's side: its inner three quarters lie on the block.
        for i, inner in enumerate(x[:, :, 8:-8, 8:-8].flatten(2)):
            median = inner.median(-1).values
            is_even = float(((inner - median[:, None]).abs().amax(0) < 0.08).float().mean()) > 0.9
            distance, index = (self.colours - median).abs().amax(-1).min(0)
            is_known = self.is_blind or (is_even and float(distance) < 0.06)
            logits[i, int(index) if is_known else len(NAMES) - 1] = 9.0
        return logits


def square(name: str, x: float, y: float, side: float, **words: str) -> Thing:
    """A thing with its centre and side as fractions; ``words``: colour, size, position."""
    said = {"colour": "", "size": "", "position": ""} | words
    return Thing(name, said["colour"], said["size"], said["position"], x, y, side)


def picture_of(
    *things: Thing, background: tuple[str, ...] = ("white",), side: int = 256
) -> np.ndarray:
    """The things as blocks at any pixel."""
    return draw(Scene(things, background, is_snapped=False), blocks(), side, side)
