"""Captions: English phrasings of a scene, chosen by a seeded generator."""

from __future__ import annotations

import random

from training.compositions import COLOURS, Scene, Thing
from training.emoji import BY_NAME, OBJECTS

SYNONYMS = {"grey": "gray", "purple": "violet", "teal": "turquoise"}
PLACES = {
    "left": ("on the left", "at the left", "on the left side"),
    "right": ("on the right", "at the right", "on the right side"),
    "top": ("at the top", "near the top", "in the upper part"),
    "bottom": ("at the bottom", "near the bottom", "in the lower part"),
    "centre": ("in the centre", "in the middle", "in the center"),
}
SIZE_WORDS = {
    "small": ("small", "tiny", "little"),
    "medium": ("medium-sized", "medium"),
    "large": ("large", "big", "huge"),
}
PLAIN = (
    "{thing} on a {colour} background",
    "{thing} on a {colour} background",
    "{thing} on {colour}",
    "{thing} on a {colour} backdrop",
    "{thing} in front of a {colour} background",
    "{thing}, {colour} background",
    "a {colour} background with {thing}",
    "a picture of {thing} on a {colour} background",
    "{thing} with a {colour} background",
)
GRADIENT = (
    "{thing} on a gradient from {colour} to {second}",
    "{thing} on a {colour} to {second} gradient",
    "{thing}, {colour} to {second} gradient background",
    "a gradient from {colour} to {second} with {thing}",
)
PAIRS = (
    "{a} next to {b}",
    "{a} and {b}",
    "{a} beside {b}",
    "{a} on the left and {b} on the right",
    "{a} to the left of {b}",
)
STACKS = ("{a} above {b}", "{a} over {b}", "{a} at the top and {b} at the bottom")
NO_BACKGROUND = 0.04  # share of captions that say nothing of the background


def write(scene: Scene, rng: random.Random) -> str:
    """One caption of the scene; one in ten begins with a capital and ends with a full stop."""
    text = _sentence(scene, rng)
    return f"{text[0].upper()}{text[1:]}." if rng.random() < 0.1 else text


def _sentence(scene: Scene, rng: random.Random) -> str:
    subject = _subject(scene, rng)
    if rng.random() < NO_BACKGROUND:
        return subject
    colours = [_colour(name, rng) for name in scene.background]
    template = rng.choice(PLAIN if len(colours) == 1 else GRADIENT)
    text = template.format(thing=subject, colour=colours[0], second=colours[-1])
    return _articles(text)


def _subject(scene: Scene, rng: random.Random) -> str:
    phrases = [_phrase(thing, rng) for thing in scene.things]
    if len(phrases) == 2:
        template = rng.choice(STACKS if scene.is_stacked else PAIRS)
        return template.format(a=phrases[0], b=phrases[1])
    position = scene.things[0].position
    return f"{phrases[0]} {rng.choice(PLACES[position])}" if position else phrases[0]


def _phrase(thing: Thing, rng: random.Random) -> str:
    emoji = BY_NAME[thing.name]
    words = [emoji.name]
    if emoji.colour and rng.random() < 0.5:
        words.insert(0, emoji.colour)
    if thing.size:
        words.insert(0, rng.choice(SIZE_WORDS[thing.size]))
    if not emoji.is_plural and rng.random() < 0.92:
        words.insert(0, "the" if rng.random() < 0.06 else "a")
    return _articles(" ".join(words))


def _colour(name: str, rng: random.Random) -> str:
    return SYNONYMS[name] if name in SYNONYMS and rng.random() < 0.2 else name


def _articles(text: str) -> str:
    """``a orange`` -> ``an orange``, in the whole text."""
    words = text.split(" ")
    for i in range(len(words) - 1):
        if words[i] == "a" and words[i + 1][:1] in "aeiou" and words[i + 1] != "unicorn":
            words[i] = "an"
    return " ".join(words)


def vocabulary() -> list[str]:
    """Every word that a caption can hold, sorted: the tokenizers keep each of them whole."""
    texts = [*PLAIN, *GRADIENT, *PAIRS, *STACKS, *COLOURS, *SYNONYMS.values(), "a", "an", "the"]
    texts += [word for words in (*PLACES.values(), *SIZE_WORDS.values()) for word in words]
    texts += [emoji.name for emoji in OBJECTS]
    bare = " ".join(texts).replace(",", " , ").replace("-", " ")
    return sorted({word for word in bare.split() if "{" not in word})
