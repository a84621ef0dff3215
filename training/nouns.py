"""The names of the drawn objects in a sentence: article, plural, and names written as one word."""

from __future__ import annotations

import re
from dataclasses import dataclass

from training.emoji import OBJECTS, Emoji


@dataclass(frozen=True, slots=True)
class Noun:
    """A name of an object; "_" joins its words. ``plural`` is "" for what comes in one number."""

    singular: str
    plural: str
    has_article: bool


_PLURALS = {
    "aircraft": "aircraft",
    "cactus": "cacti",
    "corn": "ears of corn",
    "fish": "fish",
    "leaf": "leaves",
    "maize": "ears of maize",
    "mouse": "mice",
    "sheep": "sheep",
    "snowman": "snowmen",
    "squid": "squid",
    "tomato": "tomatoes",
    "volcano": "volcanoes",
}
_WITHOUT_ARTICLE = ("corn", "maize", "saturn")
# Names with an article although the object's first name has none: "a flame", but "fire".
_WITH_ARTICLE = ("cup of coffee", "lightning bolt", "thunderbolt", "flame", "campfire")


def pluralise(name: str) -> str:
    """``hot dog`` -> ``hot dogs``, ``slice of pizza`` -> ``slices of pizza``."""
    head, of, rest = name.partition(" of ")
    first, space, last = head.rpartition(" ")
    return f"{first}{space}{_PLURALS.get(last) or _regular_plural(last)}{of}{rest}"


def _regular_plural(word: str) -> str:
    if re.search(r"(s|x|z|ch|sh)$", word):
        return f"{word}es"
    return f"{word[:-1]}ies" if re.search(r"[^aeiou]y$", word) else f"{word}s"


def names_of(emoji: Emoji) -> list[str]:
    """The object's names, the usual one first; one of two words also written as one."""
    joined = [emoji.name.replace(" ", "")] if emoji.name.count(" ") == 1 else []
    return list(dict.fromkeys([emoji.name, *emoji.synonyms, *joined]))


def _noun(name: str, emoji: Emoji) -> Noun:
    has_article = emoji.has_article or name in _WITH_ARTICLE
    plural = pluralise(name) if emoji.is_countable else ""
    has_article = has_article and name not in _WITHOUT_ARTICLE
    return Noun(name.replace(" ", "_"), plural.replace(" ", "_"), has_article)


# Object -> its names, the usual one first.
NOUNS: dict[str, tuple[Noun, ...]] = {
    emoji.name: tuple(_noun(name, emoji) for name in names_of(emoji)) for emoji in OBJECTS
}
