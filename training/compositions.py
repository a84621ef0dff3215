"""Scenes: what a picture shows and where, as data, and the drawing of it.

A scene is drawn from a seeded generator; the caption (``captions.py``) and the picture both follow
from the scene alone. Combinations of object and background colour that ``is_held_out`` names are
never drawn for training: the evaluation asks for exactly those.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image

from training.emoji import OBJECTS

COLOURS: dict[str, tuple[int, int, int]] = {
    "white": (250, 250, 250),
    "black": (26, 26, 30),
    "grey": (150, 150, 156),
    "red": (222, 52, 52),
    "orange": (245, 140, 40),
    "yellow": (250, 214, 70),
    "green": (70, 168, 80),
    "teal": (38, 166, 166),
    "blue": (50, 110, 224),
    "purple": (132, 72, 190),
    "pink": (245, 152, 192),
    "brown": (130, 86, 56),
}
# Centre of the object as a fraction of width and height.
POSITIONS: dict[str, tuple[float, float]] = {
    "": (0.5, 0.5),
    "centre": (0.5, 0.5),
    "left": (0.26, 0.5),
    "right": (0.74, 0.5),
    "top": (0.5, 0.27),
    "bottom": (0.5, 0.73),
}
# Side of the object as a fraction of the picture's shorter side: lowest and highest.
SIZES: dict[str, tuple[float, float]] = {
    "": (0.62, 0.74),
    "small": (0.26, 0.34),
    "medium": (0.46, 0.54),
    "large": (0.80, 0.90),
}
AT_EDGE = (0.40, 0.48)  # an object without a size word that stands at a side
IN_PAIR = (0.40, 0.47)  # each of two objects
PAIR_SIZES = {"": IN_PAIR, "small": (0.22, 0.27), "large": (0.46, 0.50)}


@dataclass(frozen=True, slots=True)
class Thing:
    """One object; ``x``, ``y`` and ``side`` are fractions (``side``: of the shorter side)."""

    name: str
    size: str
    position: str
    x: float
    y: float
    side: float


@dataclass(frozen=True, slots=True)
class Scene:
    """One or two things on one colour, or on a gradient from ``background[0]`` down to ``[1]``."""

    things: tuple[Thing, ...]
    background: tuple[str, ...]
    is_stacked: bool = False


@dataclass(frozen=True, slots=True)
class Mix:
    """How often a scene has two objects, a word for place or size, or a gradient."""

    pair: float = 0.0
    position: float = 0.0
    size: float = 0.0
    gradient: float = 0.0


FULL = Mix(pair=0.35, position=0.25, size=0.25, gradient=0.2)


def is_held_out(name: str, colour: str) -> bool:
    """Whether training never shows this object on this colour (one combination in ten)."""
    digest = hashlib.sha256(f"{name}|{colour}".encode()).digest()
    return digest[0] % 10 == 0


def random_scene(rng: random.Random, mix: Mix) -> Scene:
    """A scene for training: no held-out combination of object and (any) background colour."""
    while True:
        scene = _any_scene(rng, mix)
        pairs = [(thing.name, colour) for thing in scene.things for colour in scene.background]
        if not any(is_held_out(*pair) for pair in pairs):
            return scene


def _any_scene(rng: random.Random, mix: Mix) -> Scene:
    colours = 2 if rng.random() < mix.gradient else 1
    background = tuple(rng.sample(sorted(COLOURS), colours))
    if rng.random() < mix.pair:
        return _pair(rng, background, mix)
    return Scene((_single(rng, mix),), background)


def _single(rng: random.Random, mix: Mix) -> Thing:
    names = sorted(POSITIONS)[1:]
    position = rng.choice(names) if rng.random() < mix.position else ""
    size = rng.choice(["small", "medium", "large"]) if rng.random() < mix.size else ""
    at_edge = position not in ("", "centre")
    if at_edge and size == "large":
        size = ""
    return place(rng, rng.choice(OBJECTS).name, position, size)


def place(rng: random.Random, name: str, position: str, size: str) -> Thing:
    """A single thing at a named position and size, with the jitter that training shows."""
    at_edge = position not in ("", "centre")
    span = AT_EDGE if at_edge and not size else SIZES[size]
    x, y = POSITIONS[position]
    jitter = 0.02
    return Thing(
        name,
        size,
        position,
        x + rng.uniform(-jitter, jitter),
        y + rng.uniform(-jitter, jitter),
        rng.uniform(*span),
    )


def _pair(rng: random.Random, background: tuple[str, ...], mix: Mix) -> Scene:
    first, second = rng.sample(OBJECTS, 2)
    stacked = rng.random() < 0.15
    places = ((0.5, 0.27), (0.5, 0.74)) if stacked else ((0.27, 0.5), (0.73, 0.5))
    things = []
    for emoji, (x, y) in zip((first, second), places, strict=True):
        size = rng.choice(["small", "large"]) if rng.random() < mix.size else ""
        thing = place(rng, emoji.name, "", size)
        side = rng.uniform(*PAIR_SIZES[size])
        jitter = (thing.x - 0.5, thing.y - 0.5)
        things.append(replace(thing, x=x + jitter[0], y=y + jitter[1], side=side))
    return Scene(tuple(things), background, stacked)


def paint_background(background: tuple[str, ...], width: int, height: int) -> np.ndarray:
    """uint8 picture [height, width, 3]: one colour, or a vertical gradient of two."""
    top, bottom = (np.array(COLOURS[c], np.float32) for c in (background[0], background[-1]))
    t = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    rows = top * (1 - t) + bottom * t
    return np.repeat(rows.round().astype(np.uint8)[:, None], width, axis=1)


def draw(
    scene: Scene, sprites: Mapping[str, Image.Image], width: int = 256, height: int = 256
) -> np.ndarray:
    """The scene as uint8 [height, width, 3]."""
    picture = Image.fromarray(paint_background(scene.background, width, height))
    for thing in scene.things:
        side = max(8, round(thing.side * min(width, height)))
        sprite = sprites[thing.name].resize((side, side), Image.Resampling.BILINEAR)
        corner = (round(thing.x * width - side / 2), round(thing.y * height - side / 2))
        picture.paste(sprite, corner, sprite)
    return np.asarray(picture)
