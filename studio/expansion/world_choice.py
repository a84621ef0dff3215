"""What to add to an idea in a model's world: the text model's choice, at random where it has none.

Only what the embedded model's pictures were taught together: a thing at an edge is small or says
nothing of its size, several of a kind say neither size nor place, and no colour is in front of
itself (`training/compositions.py`).
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from studio.expansion.world_reading import Named, Reading, behind
from studio.expansion.world_words import COLOUR, PLACE, SIZE, phrases_of
from studio.world import Setting, World

CENTRE = frozenset({"centre", "center"})
SMALL = "small"
PAIR_SIZES = frozenset({"small", "large"})
NATURAL_SHARE = 0.5  # of things painted at random in their natural colour
SETTING_SHARE = 0.15  # of backgrounds chosen at random: few things suit all settings


@dataclass(frozen=True, slots=True)
class Picks:
    """What a text model chose, by names of the world; "" where it chose nothing."""

    size: str = ""
    colour: str = ""
    position: str = ""
    setting: str = ""
    background: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is added. `sizes` and `colours` have a place for each thing of the idea."""

    sizes: tuple[str, ...]
    colours: tuple[str, ...]
    count: int = 0
    position: str = ""
    setting: str = ""
    background: str = ""

    @property
    def is_empty(self) -> bool:
        return not any((*self.sizes, *self.colours, self.count, self.position)) and not (
            self.setting or self.background
        )


def picks_of(world: World, text: str) -> Picks:
    """The first of each kind in `text`, of clauses that the world knows word by word."""
    picks = Picks()
    for clause in re.split(r"[,;.\n]+", text):
        skeleton = phrases_of(world).find(clause)
        colours, setting = behind(world, clause)
        if setting or colours:
            first = colours[0] if colours else ""
            picks = replace(
                picks,
                setting=picks.setting or ("" if picks.background else setting),
                background=picks.background or ("" if picks.setting else first),
            )
        elif all(token.is_known for token in skeleton.tokens):
            names = {token.letter: token.name for token in skeleton.tokens}
            picks = replace(
                picks,
                size=picks.size or names.get(SIZE, ""),
                colour=picks.colour or names.get(COLOUR, ""),
                position=picks.position or names.get(PLACE, ""),
            )
    return picks


def chosen(world: World, reading: Reading, picks: Picks) -> Choice:
    """What the text model chose so far, where the idea leaves it open."""
    first, *others = reading.things
    taken = {*reading.background, picks.background}
    colour = picks.colour if picks.colour in _usable_colours(world, first, taken) else ""
    is_single = not others and not first.is_plural
    position = picks.position if is_single and not reading.position else ""
    size = picks.size if not first.size and not first.is_plural else ""
    if not _go_together(first.size or size, reading.position or position):
        size, position = ("", position) if not first.size else (size, "")
    if others and size not in PAIR_SIZES:
        size = ""
    is_open = not reading.has_background
    return Choice(
        sizes=(size, *("" for _ in others)),
        colours=(colour, *("" for _ in others)),
        position=position,
        setting=picks.setting if is_open else "",
        background=picks.background if is_open else "",
    )


def completed(world: World, reading: Reading, picks: Picks, rng: random.Random) -> Choice:
    """The text model's choice without what this world cannot show, and with what it left open."""
    choice = chosen(world, reading, picks)
    background, setting = _behind(world, reading, choice, rng)
    taken = {*reading.background, background}
    colours: list[str] = []
    for number, (thing, colour) in enumerate(zip(reading.things, choice.colours, strict=True)):
        # Often only the first of two things gets a colour.
        is_wanted = number == 0 or rng.random() < 0.5
        usable = list(_usable_colours(world, thing, taken | set(colours)))
        if colour not in usable:
            natural = phrases_of(world).things[thing.name].colour
            is_natural = natural in usable and rng.random() < NATURAL_SHARE
            colour = natural if is_natural else rng.choice(usable) if usable and is_wanted else ""
        colours.append(colour)
    size, position = _stance(world, reading, choice, rng)
    first = reading.things[0]
    has_number = bool(first.count) or first.adjectives_at > first.start
    return Choice(
        sizes=(size, *choice.sizes[1:]),
        colours=tuple(colours),
        count=rng.choice(world.counts).count
        if first.is_plural and not has_number and world.counts
        else 0,
        position=position,
        setting=setting,
        background=background,
    )


def setting_of(world: World, name: str) -> Setting:
    """The setting of a name that the world has."""
    return next(setting for setting in world.settings if setting.name == name)


def _usable_colours(world: World, thing: Named, taken: set[str]) -> Iterator[str]:
    """What an uncoloured thing may be painted in."""
    if not thing.colour and phrases_of(world).things[thing.name].is_paintable:
        yield from (colour.name for colour in world.colours if colour.name not in taken)


def _behind(world: World, reading: Reading, choice: Choice, rng: random.Random) -> tuple[str, str]:
    """A colour that no thing has, or a setting; nothing where the idea says what is behind."""
    if reading.has_background:
        return "", ""
    if choice.setting:
        return "", choice.setting
    own = {thing.colour or phrases_of(world).things[thing.name].colour for thing in reading.things}
    taken = own | set(choice.colours)
    if choice.background and choice.background not in taken:
        return choice.background, ""
    colours = [colour.name for colour in world.colours if colour.name not in taken]
    if world.settings and (not colours or rng.random() < SETTING_SHARE):
        return "", rng.choice(world.settings).name
    return (rng.choice(colours), "") if colours else ("", "")


def _stance(world: World, reading: Reading, choice: Choice, rng: random.Random) -> tuple[str, str]:
    """Size and place of a single thing; one of them at least where both are open."""
    first = reading.things[0]
    size, position = choice.sizes[0], choice.position
    if len(reading.things) > 1 or first.is_plural or position:
        return size, position
    if first.size or size:
        is_open = SMALL in (first.size, size) and not reading.position and world.positions
        is_placed = is_open and rng.random() < 0.5
        return size, rng.choice(world.positions).name if is_placed else ""
    sizes = [row.name for row in world.sizes]
    positions = [row.name for row in world.positions]
    is_free = not reading.position or reading.position in CENTRE
    if sizes and is_free and (not positions or rng.random() < 0.5):
        return rng.choice(sizes), ""
    small = SMALL if SMALL in sizes and rng.random() < 0.5 else ""
    return small, rng.choice(positions) if positions and not reading.position else ""


def _go_together(size: str, position: str) -> bool:
    return not size or size == SMALL or not position or position in CENTRE
