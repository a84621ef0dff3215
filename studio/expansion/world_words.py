"""The words of a model's world, found in a text: each stretch with what it can mean.

The text becomes a `Skeleton`, a line in which every phrase of the world is one capital letter and
every other word stands as it is: "two small red apples on grass" is "N S C M W". Rules of grammar
are regular expressions over that line (`world_reading`).
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from studio.world import Thing, World

# What the letters stand for.
THING: Final = "T"
THINGS: Final = "M"  # a plural
COLOUR: Final = "C"
SIZE: Final = "S"
COUNT: Final = "N"
STYLE: Final = "Y"
PLACE: Final = "P"
SETTING: Final = "W"

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*|[^\w\s]|_")

Meaning = tuple[str, str]  # letter and the name in the world


@dataclass(frozen=True, slots=True)
class Token:
    """A phrase of the world (`letter` and `name`), or one other word or sign (its own text)."""

    letter: str
    name: str
    start: int  # characters of the text
    end: int

    @property
    def is_known(self) -> bool:
        return bool(self.name)


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The line with a space between its words, and the token that begins at each place of it."""

    line: str
    tokens: tuple[Token, ...]
    places: tuple[int, ...]  # where each token begins in the line

    def within(self, start: int, end: int) -> tuple[Token, ...]:
        """The tokens of a stretch of the line."""
        pairs = zip(self.tokens, self.places, strict=True)
        return tuple(token for token, place in pairs if start <= place < end)


class Phrases:
    """All phrases of one world, the longest found first."""

    def __init__(self, world: World) -> None:
        self.things = {thing.name: thing for thing in world.objects}
        self._meanings: dict[tuple[str, ...], Meaning] = {}
        # Later ones win: a thing's name is never read as a style.
        for style in world.styles:
            self._add(style, STYLE, style)
        for setting in world.settings:
            for phrase in setting.phrases:
                self._add(re.sub("^(?:an?|the) ", "", phrase), SETTING, setting.name)
                self._add(phrase, SETTING, setting.name)
        for position in world.positions:
            for phrase in position.phrases:
                self._add(phrase, PLACE, position.name)
        for size in world.sizes:
            for word in size.words:
                self._add(word, SIZE, size.name)
        for count in world.counts:
            for word in count.words:
                self._add(word, COUNT, str(count.count))
        for colour in world.colours:
            for name in (colour.name, *colour.synonyms):
                self._add(name, COLOUR, colour.name)
        for thing in world.objects:
            self._add_thing(thing)
        self._longest = max(map(len, self._meanings))

    def find(self, text: str) -> Skeleton:
        """The text's skeleton."""
        words = [(m[0].lower().replace("’", "'"), m.start(), m.end()) for m in _WORD.finditer(text)]
        tokens: list[Token] = []
        while words:
            length, meaning = self._longest_at(words)
            letter, name = meaning or (words[0][0], "")
            tokens.append(Token(letter, name, words[0][1], words[length - 1][2]))
            words = words[length:]
        places = []
        line = ""
        for token in tokens:
            places.append(len(line))
            line += f"{token.letter} "
        return Skeleton(line, tuple(tokens), tuple(places))

    def _longest_at(self, words: list[tuple[str, int, int]]) -> tuple[int, Meaning | None]:
        for length in range(min(self._longest, len(words)), 0, -1):
            found = self._meanings.get(tuple(word for word, _, _ in words[:length]))
            if found:
                return length, found
        return 1, None

    def _add_thing(self, thing: Thing) -> None:
        for name in (thing.name, *thing.synonyms):
            if thing.is_countable:
                self._add(plural_of(name, thing), THINGS, thing.name)
        for name in (thing.name, *thing.synonyms):
            self._add(name, THING, thing.name)

    def _add(self, phrase: str, letter: str, name: str) -> None:
        key = tuple(word.lower() for word in _WORD.findall(phrase))
        self._meanings[key] = (letter, name)


def plural_of(name: str, thing: Thing) -> str:
    """The plural of one of a countable thing's names; a world tells only that of the first."""
    if name.endswith(thing.name):  # "maple leaf"
        return name.removesuffix(thing.name) + thing.plural
    head, of, rest = name.partition(" of ")
    if re.search(r"(s|x|z|ch|sh)$", head):
        head = f"{head}es"
    elif re.search(r"[^aeiou]y$", head):
        head = f"{head[:-1]}ies"
    else:
        head = f"{head}s"
    return f"{head}{of}{rest}"


@lru_cache(maxsize=16)
def phrases_of(world: World) -> Phrases:
    """The phrases of a world, made once."""
    return Phrases(world)
