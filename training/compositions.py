"""Scenes: what a picture shows and where, as data. ``drawing.py`` makes the picture of one.

A scene is drawn from a seeded generator; the caption (``captions.py``) and the picture both follow
from the scene alone. Combinations that ``is_held_out`` names are never drawn for training: the
evaluation asks for exactly those.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, replace

from training.emoji import COUNTABLE, OBJECTS, PAINTABLE, Emoji

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
SETTINGS = ("night sky", "grass", "sea", "snow", "desert")
# Centre of the object as a fraction of width and height.
POSITIONS: dict[str, tuple[float, float]] = {
    "": (0.5, 0.5),
    "centre": (0.5, 0.5),
    "left": (0.25, 0.5),
    "right": (0.75, 0.5),
    "top": (0.5, 0.25),
    "bottom": (0.5, 0.75),
    "top left": (0.25, 0.25),
    "top right": (0.75, 0.25),
    "bottom left": (0.25, 0.75),
    "bottom right": (0.75, 0.75),
}
# Side of the object as a fraction of the picture's shorter side: lowest and highest. On the grid of
# the tokens only three sides are drawn (``drawing.cells_of``); where nothing is said, two of them.
SIZES: dict[str, tuple[float, float]] = {
    "": (0.40, 0.72),
    "small": (0.20, 0.27),
    "medium": (0.40, 0.50),
    "large": (0.62, 0.72),
}
AT_EDGE = (0.40, 0.50)  # an object without a size word that stands at a side
IN_PAIR = (0.36, 0.46)  # each of two objects
IN_TRIO = (0.33, 0.42)  # each of three
PAIR_SIZES = {"": IN_PAIR, "small": (0.20, 0.26), "large": (0.44, 0.48)}
# How the things stand, and their centres. "some": two or three of one kind.
ARRANGEMENTS = ("single", "beside", "above", "some")
BESIDE = ((0.25, 0.5), (0.75, 0.5))
ABOVE = ((0.5, 0.25), (0.5, 0.75))
TRIO = ((0.5, 0.25), (0.25, 0.75), (0.75, 0.75))
JITTER = 0.04


@dataclass(frozen=True, slots=True)
class Thing:
    """One object; ``x``, ``y`` (its centre) and ``side`` are fractions (``side``: of the shorter).

    ``colour`` is "" for the icon's own, ``size`` and ``position`` are "" where nothing is said.
    """

    name: str
    colour: str
    size: str
    position: str
    x: float
    y: float
    side: float


@dataclass(frozen=True, slots=True)
class Scene:
    """Things before a setting, or on one colour, or on a gradient from the first to the second.

    "above": the first of two things is the upper one; "beside": it is the left one.
    ``is_snapped``: drawn on the grid of the transformer's tokens (``drawing.GRID_PX``).
    """

    things: tuple[Thing, ...]
    background: tuple[str, ...]  # empty where there is a setting
    setting: str = ""
    arrangement: str = "single"
    is_snapped: bool = True


@dataclass(frozen=True, slots=True)
class Mix:
    """How often a scene has more than one thing, or a word for this and that."""

    pair: float = 0.0
    some: float = 0.0
    position: float = 0.0
    size: float = 0.0
    gradient: float = 0.0
    setting: float = 0.0
    paint: float = 0.0
    free: float = 0.0  # share drawn off the grid


FULL = Mix(0.3, 0.1, 0.3, 0.3, 0.15, 0.12, 0.3)


def is_held_out(*parts: str) -> bool:
    """Whether training never shows this combination; one in ten. What the parts may be:

    object and background (colour or setting), "paint", object and its colour, "pair" and both
    objects in alphabetical order.
    """
    digest = hashlib.sha256("|".join(parts).encode()).digest()
    return digest[0] % 10 == 0


def combinations(scene: Scene) -> list[tuple[str, ...]]:
    """Everything in the scene that ``is_held_out`` may name."""
    names = sorted({thing.name for thing in scene.things})
    behind = [*scene.background, *([scene.setting] if scene.setting else [])]
    found: list[tuple[str, ...]] = [(name, colour) for name in names for colour in behind]
    found += [("paint", thing.name, thing.colour) for thing in scene.things if thing.colour]
    return [*found, ("pair", *names)] if len(names) == 2 else found


def random_scene(rng: random.Random, mix: Mix) -> Scene:
    """A scene for training: none of its combinations is held out."""
    while True:
        scene = any_scene(rng, mix)
        if not any(is_held_out(*parts) for parts in combinations(scene)):
            return scene


def any_scene(rng: random.Random, mix: Mix) -> Scene:
    """A scene of the mix, held out or not."""
    setting = rng.choice(SETTINGS) if rng.random() < mix.setting else ""
    colours = 2 if rng.random() < mix.gradient else 1
    background = () if setting else tuple(rng.sample(sorted(COLOURS), colours))
    things, arrangement = _things(rng, background, mix)
    return Scene(things, background, setting, arrangement, rng.random() >= mix.free)


def _things(
    rng: random.Random, background: tuple[str, ...], mix: Mix
) -> tuple[tuple[Thing, ...], str]:
    chance = rng.random()
    if chance < mix.pair:
        return _pair(rng, background, mix)
    if chance < mix.pair + mix.some:
        return _some(rng, background, mix), "some"
    emoji, colour = _painted(rng, OBJECTS, background, mix)
    position = rng.choice(list(POSITIONS)[1:]) if rng.random() < mix.position else ""
    size = rng.choice(["small", "medium", "large"]) if rng.random() < mix.size else ""
    if position not in ("", "centre") and size in ("medium", "large"):
        size = ""
    return (place(rng, emoji.name, position, size, colour),), "single"


def _painted(
    rng: random.Random, choices: tuple[Emoji, ...], background: tuple[str, ...], mix: Mix
) -> tuple[Emoji, str]:
    """An object and the colour to paint it in; "" mostly. Never that of the background."""
    if rng.random() >= mix.paint:
        return rng.choice(choices), ""
    emoji = rng.choice(PAINTABLE)
    colours = [c for c in COLOURS if c != emoji.colour and c not in background]
    return emoji, rng.choice(colours)


def place(rng: random.Random, name: str, position: str, size: str, colour: str = "") -> Thing:
    """A single thing at a named position and size, with the jitter that training shows."""
    at_edge = position not in ("", "centre")
    span = AT_EDGE if at_edge and not size else SIZES[size]
    return _at(rng, Thing(name, colour, size, position, *POSITIONS[position], 0.0), span)


def _at(rng: random.Random, thing: Thing, span: tuple[float, float]) -> Thing:
    """The thing a little moved and of a side within the span."""
    x, y = (centre + rng.uniform(-JITTER, JITTER) for centre in (thing.x, thing.y))
    return replace(thing, x=x, y=y, side=rng.uniform(*span))


def _pair(
    rng: random.Random, background: tuple[str, ...], mix: Mix
) -> tuple[tuple[Thing, ...], str]:
    arrangement = "above" if rng.random() < 0.35 else "beside"
    names: set[str] = set()
    things = []
    for x, y in ABOVE if arrangement == "above" else BESIDE:
        emoji, colour = _painted(rng, OBJECTS, background, mix)
        while emoji.name in names:
            emoji, colour = _painted(rng, OBJECTS, background, mix)
        names.add(emoji.name)
        size = rng.choice(["small", "large"]) if rng.random() < mix.size / 2 else ""
        thing = Thing(emoji.name, colour, size, "", x, y, 0.0)
        things.append(_at(rng, thing, PAIR_SIZES[size]))
    return tuple(things), arrangement


def _some(rng: random.Random, background: tuple[str, ...], mix: Mix) -> tuple[Thing, ...]:
    """Two or three of one kind, of one size and colour."""
    emoji, colour = _painted(rng, COUNTABLE, background, mix)
    while not emoji.is_countable:
        emoji, colour = _painted(rng, COUNTABLE, background, mix)
    centres, span = rng.choice([(BESIDE, IN_PAIR), (TRIO, IN_TRIO)])
    side = rng.uniform(*span)
    things = (Thing(emoji.name, colour, "", "", x, y, side) for x, y in centres)
    return tuple(_at(rng, thing, (side, side)) for thing in things)
