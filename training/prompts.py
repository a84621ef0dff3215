"""What the evaluation asks for: held-out scenes in words, and the prompts of strangers."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from pathlib import Path

from training.captions import write
from training.compositions import (
    COLOURS,
    Mix,
    Scene,
    any_scene,
    combinations,
    is_held_out,
)
from training.grammar import vocabulary

STRANGERS = Path(__file__).parent / "strangers.txt"
# Each axis draws scenes of one kind; ``COUNTS`` of them, and the values that take turns.
AXES = {
    "plain": Mix(),
    "gradient": Mix(gradient=1.0),
    "setting": Mix(setting=1.0),
    "position": Mix(position=1.0),
    "size": Mix(size=1.0),
    "count": Mix(some=1.0),
    "pair": Mix(pair=1.0),
    "paint": Mix(paint=1.0),
}
COUNTS = {axis: 20 if axis == "plain" else 40 for axis in AXES}
SIDES = ("left", "right", "top", "bottom")
CORNERS = ("top left", "top right", "bottom left", "bottom right")
VALUES: dict[str, tuple[object, ...]] = {
    "position": (*SIDES, *CORNERS, "centre"),
    "size": ("small", "large"),
    "count": (2, 3),
    "pair": ("beside", "above"),
}
KNOWN = frozenset(vocabulary())
COUNTED = re.compile(r"\b([23]x?|two|three|pair|couple|trio)\b")  # "some cats" may be any number
# Words as people write them around what they want; none is in the vocabulary.
UNKNOWN = (
    *("gorgeous", "whimsical", "vibrant", "tranquil", "ferocious", "mysterious", "quirky"),
    *("majestic", "retro", "glossy", "pixelated", "isometric", "trending", "unreal", "octane"),
    *("volumetric", "bokeh", "hyperrealism", "cinematic", "ethereal", "fluffy", "zorblat"),
    *("quixel", "mxyzptlk", "skibidi", "krungle", "blorp", "wibbly", "sproingy", "yeet"),
)


@dataclass(frozen=True, slots=True)
class Wish:
    """A prompt, the scene that it tells of, and the axis that it was drawn for."""

    text: str
    scene: Scene
    axis: str

    @property
    def background(self) -> tuple[str, ...]:
        return self.scene.background or (self.scene.setting,)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(thing.name for thing in self.scene.things)


def held_out_wishes(seed: int) -> list[Wish]:
    """300 wishes of all axes in turn; each holds what training never showed together."""
    rng = random.Random(seed)
    return [wish_of(axis, i, rng) for axis in AXES for i in range(COUNTS[axis])]


def wish_of(axis: str, number: int, rng: random.Random) -> Wish:
    """A scene of the axis with a held-out combination, and a caption that says all of it."""
    values = VALUES.get(axis, (None,))
    while True:
        scene = any_scene(rng, AXES[axis])
        is_of_turn = _value(axis, scene) == values[number % len(values)]
        if is_of_turn and _is_held_out(axis, scene) and (text := caption(scene, rng)):
            return Wish(text, scene, axis)


def _value(axis: str, scene: Scene) -> object:
    thing = scene.things[0]
    by_axis = {
        "position": thing.position,
        "size": thing.size,
        "count": len(scene.things),
        "pair": scene.arrangement,
    }
    return by_axis.get(axis)


def _is_held_out(axis: str, scene: Scene) -> bool:
    """Pairs and paints are asked for by themselves; else it is an object and its background."""
    kinds = {"pair": "pair", "paint": "paint"}
    wanted = [
        parts
        for parts in combinations(scene)
        if (parts[0] if parts[0] in kinds.values() else "") == kinds.get(axis, "")
    ]
    return any(is_held_out(*parts) for parts in wanted)


def caption(scene: Scene, rng: random.Random) -> str:
    """A caption in known words that says background and count; "" where this draw gave none."""
    seed = rng.randrange(2**32)
    text = write(scene, random.Random(seed))
    has_background = text != write(_elsewhere(scene), random.Random(seed))
    has_count = scene.arrangement != "some" or COUNTED.search(text.lower())
    is_known = set(re.findall("[a-z]+", text.lower())) <= KNOWN | {"x"}
    return text if has_background and has_count and is_known else ""


def _elsewhere(scene: Scene) -> Scene:
    """The scene before another background of the same kind: its captions differ if they say so."""
    if scene.setting:
        return replace(scene, setting="sea" if scene.setting != "sea" else "grass")
    others = [colour for colour in COLOURS if colour not in scene.background]
    return replace(scene, background=tuple(others[: len(scene.background)]))


def with_unknown_words(text: str, rng: random.Random) -> str:
    """The prompt with two words that mean nothing here, between any two of its own."""
    words = text.split(" ")
    for word in rng.sample(UNKNOWN, 2):
        words.insert(rng.randint(0, len(words)), word)
    return " ".join(words)


@dataclass(frozen=True, slots=True)
class Stranger:
    """A prompt from outside, the object that it names and its background; () where none is said."""

    text: str
    name: str
    background: tuple[str, ...]


def strangers() -> list[Stranger]:
    """The prompts of ``strangers.txt``."""
    lines = STRANGERS.read_text().splitlines()
    rows = [[part.strip() for part in line.split("|")] for line in lines if line[0] != "#"]
    return [Stranger(text, name, _background(said)) for text, name, said in rows]


def _background(said: str) -> tuple[str, ...]:
    return () if said == "-" else tuple(said.split(" to "))
