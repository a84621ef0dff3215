"""Whether a picture shows its wish: one yes or no for each thing asked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from training.drawing import Sprites, draw
from training.finding import Box
from training.judge import Judge
from training.measures import arrangement_of, background_of, paint_of, place_of, size_of
from training.prompts import Stranger, Wish
from training.reading import Reader, Seen

SIDED = re.compile(r"\b(left|right)\b")  # "next to" asks for no order


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was asked, what the picture shows, and the marks: name of a score -> right or not."""

    text: str
    axis: str
    asked: str
    seen: str
    marks: Mapping[str, bool]

    @property
    def wrong(self) -> list[str]:
        return [name for name, is_right in self.marks.items() if not is_right]


class Critic:
    """Gives marks by the judge's names and by rules on the pixels."""

    def __init__(self, judge: Judge, sprites: Sprites) -> None:
        self.judge, self.sprites = judge, sprites

    def verdict(self, wish: Wish, pixels: np.ndarray) -> Verdict:
        """Of the picture, uint8 [h, w, 3]."""
        reader = Reader(self.judge, pixels)
        seen, behind = reader.read(), background_of(reader.rows)
        marks = {"background": behind == wish.background, "count": len(seen) == len(wish.names)}
        if wish.axis in ("gradient", "setting"):
            marks[wish.axis] = marks["background"]
        if wish.axis == "count":
            marks["count_many"] = marks["count"]
        if wish.axis == "pair":
            marks |= pair_marks(wish, seen)
        else:
            marks |= self._single_marks(wish, seen, pixels)
        asked = _in_words(wish.names, wish.background)
        return Verdict(wish.text, wish.axis, asked, _in_words(_names(seen), behind), marks)

    def stranger_verdict(self, stranger: Stranger, pixels: np.ndarray) -> Verdict:
        """The object, and the background where the prompt names one."""
        reader = Reader(self.judge, pixels)
        seen, behind = reader.read(), background_of(reader.rows)
        marks = {"strangers_object": _names(seen[:1]) == (stranger.name,)}
        if stranger.background:
            marks["strangers_background"] = behind == stranger.background
        asked = _in_words((stranger.name,), stranger.background)
        return Verdict(stranger.text, "strangers", asked, _in_words(_names(seen), behind), marks)

    def name(self, pixels: np.ndarray) -> str:
        """Of the largest thing in the picture; "" where the judge knows none."""
        seen = Reader(self.judge, pixels).read()
        return seen[0].name if seen else ""

    def verdicts(self, wishes: Iterable[Wish], pictures: Iterable[np.ndarray]) -> list[Verdict]:
        return [self.verdict(w, pixels) for w, pixels in zip(wishes, pictures, strict=True)]

    def drawn(self, wishes: Iterable[Wish]) -> list[Verdict]:
        """Of drawings of the wishes' scenes: what this critic can tell at best."""
        return [self.verdict(wish, draw(wish.scene, self.sprites)) for wish in wishes]

    def _single_marks(self, wish: Wish, seen: list[Seen], pixels: np.ndarray) -> dict[str, bool]:
        """Of one object, or of several of a kind; of several all must be named right."""
        height, width = pixels.shape[:2]
        thing, box = wish.scene.things[0], seen[0].box if seen else Box(0, 0, 1, 1)
        things = seen if wish.axis == "count" else seen[:1]
        marks = {"object": bool(seen) and all(each.name == thing.name for each in things)}
        if thing.position:
            marks["position"] = bool(seen) and place_of(box, width, height) == thing.position
        if thing.size in ("small", "large"):
            marks["size"] = bool(seen) and size_of(box, width, height) == thing.size
        if wish.axis == "paint":
            paint = paint_of(pixels, box, thing.name, self.sprites) if marks["object"] else ""
            marks["recolouring"] = paint == thing.colour
        return marks


def _names(seen: Iterable[Seen]) -> tuple[str, ...]:
    return tuple(each.name or "?" for each in seen)


def _in_words(names: tuple[str, ...], background: tuple[str, ...]) -> str:
    return f"{', '.join(names) or 'nothing'} on {' to '.join(background) or 'anything'}"


def pair_marks(wish: Wish, seen: list[Seen]) -> dict[str, bool]:
    """Whether both are there by name, and stand as the words ask; the second is never easier."""
    boxes = {each.name: each.box for each in seen}
    first, second = (boxes.get(name) for name in wish.names)
    if first is None or second is None:
        return {"pair_objects": False, "pair_relation": False}
    return {"pair_objects": True, "pair_relation": stands(wish, arrangement_of(first, second))}


def stands(wish: Wish, arrangement: str) -> bool:
    """Whether the first thing stands to the second as the prompt says."""
    if wish.scene.arrangement == "above":
        return arrangement == "above"
    is_beside = arrangement in ("left of", "right of")
    return arrangement == "left of" if SIDED.search(wish.text.lower()) else is_beside


def shares(verdicts: Iterable[Verdict]) -> dict[str, tuple[float, int]]:
    """Each score's share of right marks, and how many there are."""
    marks: dict[str, list[bool]] = {}
    for verdict in verdicts:
        for name, is_right in verdict.marks.items():
            marks.setdefault(name, []).append(is_right)
    return {name: (float(np.mean(values)), len(values)) for name, values in marks.items()}
