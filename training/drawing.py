"""The picture of a scene: background or setting, then each thing's icon."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from training.compositions import COLOURS, POSITIONS, SIZES, Scene, Thing
from training.emoji import OBJECTS, load_sprites
from training.recolour import recolour

# A token of the transformer covers 32x32 pixels. Things that begin on its grid look the same in
# every token that holds the same part of them: far fewer patches to learn than at any pixel.
GRID_PX = 32
# Sides in tokens of what is drawn on the grid. Each side of an object is learnt by itself: with six
# of them (2 to 7 tokens) an object has 139 patches, with three 56.
SMALL, MEDIUM, LARGE = 2, 4, 6
PARTS = {SMALL: 1, MEDIUM: 1 + SMALL**2, LARGE: 1 + SMALL**2 + MEDIUM**2}  # the first of each side
MIDDLE = sum(SIZES[""]) / 2  # of the sides where nothing is said: above it is LARGE
ICON = 0.9  # of those tokens' side: neighbours do not touch
WIDE = 10  # tokens of a shorter side at which an object of no said size is a large one
STAR_PX = 6
NUMBERS = {emoji.name: number for number, emoji in enumerate(OBJECTS)}
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
    for thing in scene.things:
        x, y, side = pixels_of(thing, scene, width, height)
        sprite = sprites.sized(thing.name, thing.colour, side)
        picture.paste(sprite, (x, y), sprite)
    return np.asarray(picture)


def pixels_of(thing: Thing, scene: Scene, width: int, height: int) -> tuple[int, int, int]:
    """Left, top and side in pixels of one of the scene's things, inside the picture."""
    if not scene.is_snapped:
        side = max(8, round(thing.side * min(width, height)))
        return _start(thing.x, width, side), _start(thing.y, height, side), side
    columns, rows = width // GRID_PX, height // GRID_PX
    cells = cells_of(thing, scene, columns, rows)
    side = round(ICON * cells * GRID_PX)
    margin = (cells * GRID_PX - side) // 2
    left, top = (
        _start(centre, room, cells) * GRID_PX + margin
        for centre, room in ((thing.x, columns), (thing.y, rows))
    )
    return left, top, side


def cells_of(thing: Thing, scene: Scene, columns: int, rows: int) -> int:
    """Side in tokens of a thing on the grid of a picture of so many: the words decide, then room.

    One object of which no size is said is drawn in either of the two upper sides; one at a side is
    small where the other half of the picture would not stay free.
    """
    shorter = min(columns, rows)
    if len(scene.things) > 1:
        is_across = scene.arrangement != "above"
        is_down = scene.arrangement == "above" or len(scene.things) > 2
        needed = (MEDIUM * (1 + is_across), MEDIUM * (1 + is_down))
        is_room = columns >= needed[0] and rows >= needed[1]
        return MEDIUM if is_room and thing.size != "small" else SMALL
    is_aside = [centre != 0.5 for centre in POSITIONS[thing.position]]
    rooms = [room for room, is_off in zip((columns, rows), is_aside, strict=True) if is_off]
    if any(room < 2 * MEDIUM for room in rooms):
        return SMALL
    is_open = not thing.size and thing.position in ("", "centre")
    is_large = thing.size == "large" or (is_open and (thing.side > MIDDLE or shorter >= WIDE))
    wanted = SMALL if thing.size == "small" else LARGE if is_large else MEDIUM
    return max(cells for cells in (SMALL, MEDIUM, LARGE) if cells <= min(wanted, shorter))


def parts_of(scene: Scene, width: int, height: int) -> np.ndarray:
    """Which part of what each token shows: uint8 [tokens, 2], 0 where there is no thing.

    The object counts from 1 in ``OBJECTS``' order; the part numbers the tokens of all three sides,
    from 1 too. Only for scenes on the grid.
    """
    assert scene.is_snapped, "a thing off the grid has no parts"
    columns, rows = width // GRID_PX, height // GRID_PX
    parts = np.zeros((rows, columns, 2), np.uint8)
    for thing in scene.things:
        cells = cells_of(thing, scene, columns, rows)
        left, top = _start(thing.x, columns, cells), _start(thing.y, rows, cells)
        place = parts[top : top + cells, left : left + cells]
        place[..., 0] = 1 + NUMBERS[thing.name]
        place[..., 1] = PARTS[cells] + np.arange(cells * cells).reshape(cells, cells)
    return parts.reshape(-1, 2)


def _start(centre: float, room: int, side: int) -> int:
    """Where a side begins that has its middle at this share of the room, kept inside."""
    return min(max(int(centre * room - side / 2 + 0.5), 0), room - side)
