"""The picture of a scene: background or setting, then each thing's icon."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from training.compositions import COLOURS, Scene, Thing
from training.emoji import load_sprites
from training.recolour import recolour

# A token of the transformer covers 32x32 pixels. Things that begin on its grid look the same in
# every token that holds the same part of them: far fewer patches to learn than at any pixel.
GRID_PX = 32
STAR_PX = 6
# Setting -> colours of its sky at the top and at the horizon, and of its ground; where it begins.
_SKIES = {
    "night sky": ((16, 20, 58), (40, 46, 108), (40, 46, 108), 1.0),
    "grass": ((150, 206, 246), (196, 230, 250), (96, 178, 74), 0.625),
    "sea": ((176, 222, 250), (214, 238, 252), (36, 112, 190), 0.5),
    "snow": ((170, 196, 222), (198, 216, 234), (246, 248, 252), 0.625),
    "desert": ((252, 222, 160), (254, 238, 196), (226, 180, 108), 0.625),
}
_SPECKLED = ("night sky", "snow")


class Sprites:
    """The icons in any colour and size; each form is made once."""

    def __init__(self, icons: Mapping[str, Image.Image]) -> None:
        self._icons = icons
        self.sized = lru_cache(maxsize=20_000)(self._sized)
        self._painted = lru_cache(maxsize=None)(self._paint)

    def _paint(self, name: str, colour: str) -> Image.Image:
        return recolour(self._icons[name], COLOURS[colour]) if colour else self._icons[name]

    def _sized(self, name: str, colour: str, side: int) -> Image.Image:
        """RGBA of ``side`` squared; ``colour`` is one of ``COLOURS``, or "" for the icon's own."""
        return self._painted(name, colour).resize((side, side), Image.Resampling.BILINEAR)


def load(icons_json: Path) -> Sprites:
    """The sprites of the npm package's ``icons.json``."""
    return Sprites(load_sprites(icons_json))


def paint_background(background: tuple[str, ...], width: int, height: int) -> np.ndarray:
    """uint8 picture [height, width, 3]: one colour, or a vertical gradient of two."""
    top, bottom = (COLOURS[colour] for colour in (background[0], background[-1]))
    return np.repeat(_gradient(top, bottom, height)[:, None], width, axis=1)


def paint_setting(setting: str, width: int, height: int) -> np.ndarray:
    """uint8 picture [height, width, 3]: a sky, and the ground from a line of the grid down."""
    top, low, ground, begins = _SKIES[setting]
    horizon = round(begins * height / GRID_PX) * GRID_PX
    rows = np.concatenate([_gradient(top, low, horizon), _gradient(ground, ground, height)])
    picture = np.repeat(rows[:height, None], width, axis=1)
    if setting in _SPECKLED:
        _speckle(picture[:horizon])
    if setting == "sea":
        picture[horizon + 32 : horizon + 38] = picture[horizon + 80 : horizon + 86] = (90, 158, 220)
    return picture


def _gradient(top: tuple[int, ...], bottom: tuple[int, ...], height: int) -> np.ndarray:
    """uint8 [height, 3]."""
    t = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    first, last = np.array(top, np.float32), np.array(bottom, np.float32)
    rows: np.ndarray = (first * (1 - t) + last * t).round().astype(np.uint8)
    return rows


def _speckle(sky: np.ndarray) -> None:
    """Stars or snowflakes: a dot in the middle of some cells of the grid, always the same ones."""
    for row in range(sky.shape[0] // GRID_PX):
        for column in range(sky.shape[1] // GRID_PX):
            if (row * 5 + column * 7 + row * column) % 4 == 0:
                y, x = (cell * GRID_PX + GRID_PX // 2 - STAR_PX // 2 for cell in (row, column))
                sky[y : y + STAR_PX, x : x + STAR_PX] = (255, 250, 230)


def draw(scene: Scene, sprites: Sprites, width: int = 256, height: int = 256) -> np.ndarray:
    """The scene as uint8 [height, width, 3]."""
    if scene.setting:
        picture = Image.fromarray(paint_setting(scene.setting, width, height))
    else:
        picture = Image.fromarray(paint_background(scene.background, width, height))
    grid = GRID_PX if scene.is_snapped else 1
    for thing in scene.things:
        x, y, side = pixels_of(thing, width, height, grid)
        sprite = sprites.sized(thing.name, thing.colour, side)
        picture.paste(sprite, (x, y), sprite)
    return np.asarray(picture)


def pixels_of(thing: Thing, width: int, height: int, grid: int = 1) -> tuple[int, int, int]:
    """Left, top and side in pixels, in multiples of ``grid``, inside the picture."""
    side = max(grid, _snap(thing.side * min(width, height), grid), 8)
    left, top = (
        min(max(_snap(centre * room - side / 2, grid), 0), room - side)
        for centre, room in ((thing.x, width), (thing.y, height))
    )
    return left, top, side


def _snap(value: float, grid: int) -> int:
    return int(value / grid + 0.5) * grid
