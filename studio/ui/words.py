"""The words of a world as the page offers them: a label, and what it puts into the prompt.

`assets/world.js` writes them: it knows by a word's kind where it goes, and by the forms of all
words what stands in the prompt already.
"""

import re
from dataclasses import dataclass

from studio.expansion.worlds import with_article
from studio.world import World

# What a phrase of a place or a setting begins with; "sand dunes" alone may mean anything.
_PREPOSITIONS = frozenset(("at", "by", "during", "in", "near", "on", "to", "under"))
_INFIX = re.compile(r"\{[ab]\} ([a-z]+(?: [a-z]+)*) \{[ab]\}")


@dataclass(frozen=True, slots=True)
class Word:
    """One chip. `kind` says how its `text` goes into the prompt."""

    kind: str
    label: str
    text: str
    forms: tuple[str, ...]  # ways of saying it: found by search, replaced in a prompt
    plural: str = ""  # of a thing that can be counted
    has_article: bool = False
    is_paintable: bool = False
    hex: str = ""  # of a colour


@dataclass(frozen=True, slots=True)
class Group:
    """Words that are shown together."""

    key: str
    title: str
    note: str
    words: tuple[Word, ...]


def groups_of(world: World) -> tuple[Group, ...]:
    """All words but the styles, which change nothing; without groups that would be empty."""
    groups = (
        Group("things", "Things", "Those with a dot come in every colour.", _things(world)),
        Group("colours", "Colours", "Of the thing named last.", _colours(world)),
        Group("backgrounds", "Backgrounds", "", _backgrounds(world)),
        Group("places", "Places", "", _places(world)),
        Group("sizes", "Sizes, numbers", "Of the thing named last.", _sizes_and_counts(world)),
        Group("pairs", "Pairs", "Choose the second thing next.", _relations(world)),
    )
    return tuple(group for group in groups if group.words)


def _things(world: World) -> tuple[Word, ...]:
    return tuple(
        Word(
            "thing",
            thing.name,
            thing.name,
            (thing.name, *thing.synonyms),
            plural=thing.plural,
            has_article=thing.is_countable,
            is_paintable=thing.is_paintable,
        )
        for thing in world.objects
    )


def _colours(world: World) -> tuple[Word, ...]:
    return tuple(
        Word("colour", colour.name, colour.name, (colour.name, *colour.synonyms), hex=colour.hex)
        for colour in world.colours
    )


def _backgrounds(world: World) -> tuple[Word, ...]:
    colours = tuple(
        Word(
            "background",
            colour.name,
            _background(colour.name),
            tuple(
                form
                for name in (colour.name, *colour.synonyms)
                for form in (_background(name), f"on {name} background", f"{name} background")
            ),
            hex=colour.hex,
        )
        for colour in world.colours
    )
    return colours + tuple(_phrase("background", row.phrases) for row in world.settings)


def _background(colour: str) -> str:
    return f"on {with_article(colour)} background"


def _places(world: World) -> tuple[Word, ...]:
    return tuple(_phrase("place", row.phrases) for row in world.positions)


def _sizes_and_counts(world: World) -> tuple[Word, ...]:
    sizes = [Word("size", row.words[0], row.words[0], row.words) for row in world.sizes]
    counts = [Word("count", row.words[0], row.words[0], row.words) for row in world.counts]
    return (*sizes, *counts)


def _phrase(kind: str, phrases: tuple[str, ...]) -> Word:
    forms = [text for text in phrases if " " in text and text.split()[0] in _PREPOSITIONS]
    return Word(kind, phrases[0], phrases[0], tuple(dict.fromkeys((phrases[0], *forms))))


def _relations(world: World) -> tuple[Word, ...]:
    """What stands between two things, in templates that have nothing else."""
    found = (_INFIX.fullmatch(text) for row in world.relations for text in row.phrases)
    between = dict.fromkeys(match[1] for match in found if match)
    return tuple(Word("relation", text, text, (text,)) for text in between)
