"""What a prompt says in the words of a model's world, and what of it that model cannot read.

The judge of expansions for such a model. It takes a stretch at a time out of the prompt's skeleton
(`world_words`): what is behind, the things, how they stand, where. Nothing may be left.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from studio.expansion.world_words import (
    COLOUR,
    COUNT,
    PLACE,
    SETTING,
    SIZE,
    STYLE,
    THINGS,
    Skeleton,
    phrases_of,
)
from studio.world import World

MAX_THINGS = 2

_AT = r"(?<![^ ])"  # where a word of the line begins
_SHADE = r"(?:(?:bright|light|dark|pale|vivid|deep|plain|solid) )*"
_DET = r"(?:(?:a|an|the) )?"
_BEFORE = rf"(?:(?:on|against|in front of|with|before) )?{_DET}"
_BEHIND = r"(?:background|backdrop|wall|canvas|sky|bg|surface) "
_IS = rf"(?:[,.] )?(?:and |with )?{_DET}background (?:: |is |in )?{_DET}"
_FADING = r"(?:to|and|into|fading to|fading into) C "
# What is behind the things, the surest form first.
_BACKGROUNDS: Final = tuple(
    re.compile(_AT + pattern)
    for pattern in (
        rf"(?:{_IS})?{_BEFORE}(?:vertical )?gradient (?:background )?(?:from|of) C {_FADING}",
        rf"(?:{_IS})?{_BEFORE}(?:vertical )?C (?:to|and) C gradient (?:background )?",
        rf"(?:{_IS})?{_BEFORE}(?:C )?background (?:fading |that goes )?(?:from C )?(?:in)?to C ",
        rf"(?:{_IS})?{_BEFORE}{_SHADE}C (?:(?:colour|color) )?{_BEHIND}",
        rf"(?:on |against )?(?:from )?{_SHADE}C {_FADING}(?![STMCY] )",
        rf"{_BEFORE}{_IS}{_SHADE}C ",
        rf"{_IS}W ",
        rf"(?:on|against) {_SHADE}C (?![STMCY] )",
        rf"(?:with |in front of |on )?{_DET}W (?:background )?",
        rf"[,.] {_SHADE}C (?=$|[,.])",  # a colour by itself
    )
)
_ASKING = re.compile(
    r"(?:^|(?<=[:,] ))(?:(?:please|can you|could you) )?"
    r"(?:(?:draw|paint|sketch|make|create|generate|design|render|show|give|i want|i would like"
    r"|i need|i see|we see|here is|this is) )?(?:me )?(?:please )?"
    rf"(?:{_DET}(?:Y )*(?:picture|image|drawing|illustration|painting|photo|emoji|icon|Y) of )?"
)
_THING = re.compile(
    rf"{_AT}(?:(?:a|an|the|one|N) )?"
    r"((?:(?:S|Y|C|coloured|colored|bright|light|dark|pale|vivid|deep|very) )*)([TM]) "
)
_GLUE = re.compile(r"^(?:\.+|[01]+|Y|[,.;:!&+-]|and|with|of|behind|a|an|the)$")


@dataclass(frozen=True, slots=True)
class Named:
    """A thing as the prompt names it; offsets are characters of the prompt."""

    name: str
    start: int
    adjectives_at: int  # behind article or number
    noun_at: int
    end: int
    is_plural: bool = False
    count: str = ""  # "2", "3"; "" where no number is said
    colour: str = ""
    size: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a prompt says. `unknown` are its words that the world does not have, `unread` those that
    it has and that belong to nothing here."""

    things: tuple[Named, ...] = ()
    position: str = ""
    background: tuple[str, ...] = ()  # one colour, or two of a gradient
    setting: str = ""
    unknown: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def has_background(self) -> bool:
        return bool(self.background or self.setting)

    @property
    def is_clear(self) -> bool:
        """Whether the model knows all of it, and one or two things are there."""
        return not self.unknown and not self.unread and 1 <= len(self.things) <= MAX_THINGS


def read(world: World, prompt: str) -> Reading:
    """The prompt in the words of the world."""
    skeleton = phrases_of(world).find(prompt)
    line = skeleton.line
    for asked in _ASKING.finditer(line):
        line = _emptied(line, asked)
    line, background, setting = _behind(skeleton, line)
    things = tuple(_THING.finditer(line))
    for number, match in enumerate(things):
        line = _emptied(line, match, mark=str(number % MAX_THINGS))
    line = _without_relation(world, line)
    rest = [
        (word, skeleton.within(found.start(), found.start() + 1)[0])
        for found in re.finditer(r"\S+", line)
        if not _GLUE.match(word := found[0])
    ]
    places = [token.name for word, token in rest if word == PLACE]
    left = [(prompt[t.start : t.end], t) for word, t in rest if word != PLACE or len(places) > 1]
    return Reading(
        things=tuple(_named(skeleton, match) for match in things),
        position=places[0] if len(places) == 1 else "",
        background=background,
        setting=setting,
        unknown=tuple(text for text, t in left if not t.is_known and t.letter not in _LITERALS),
        unread=tuple(text for text, t in left if t.is_known or t.letter in _LITERALS),
    )


def behind(world: World, clause: str) -> tuple[tuple[str, ...], str]:
    """The colours, or the setting, where the whole clause tells what is behind the things."""
    skeleton = phrases_of(world).find(clause)
    line, colours, setting = _behind(skeleton, skeleton.line)
    return (colours, setting) if not line.strip(" .") else ((), "")


def keeps(before: Reading, after: Reading) -> bool:
    """Whether `after` is clear and says all that `before` says, of the same things."""
    if not after.is_clear or len(after.things) != len(before.things):
        return False
    said = [(before.position, after.position), (before.setting, after.setting)]
    if before.has_background:
        said.append((before.setting or "", after.setting or ""))
    for old, new in zip(before.things, after.things, strict=True):
        if (old.name, old.is_plural) != (new.name, new.is_plural):
            return False
        said += [(old.count, new.count), (old.colour, new.colour), (old.size, new.size)]
    is_same = not before.has_background or before.background == after.background
    return is_same and all(not old or old == new for old, new in said)


def _behind(skeleton: Skeleton, line: str) -> tuple[str, tuple[str, ...], str]:
    """The line without what is behind the things, and that: colours, or a setting."""
    for pattern in _BACKGROUNDS:
        if match := pattern.search(line):
            tokens = skeleton.within(match.start(), match.end())
            colours = tuple(token.name for token in tokens if token.letter == COLOUR)
            settings = [token.name for token in tokens if token.letter == SETTING]
            return _emptied(line, match), colours, settings[0] if settings else ""
    return line, (), ""


def _named(skeleton: Skeleton, match: re.Match[str]) -> Named:
    tokens = skeleton.within(match.start(), match.end())
    adjectives = skeleton.within(match.start(1), match.end(1))
    noun = tokens[-1]
    names = {token.letter: token.name for token in tokens[:-1]}
    first = adjectives[0] if adjectives else noun
    return Named(
        name=noun.name,
        start=tokens[0].start,
        adjectives_at=first.start,
        noun_at=noun.start,
        end=noun.end,
        is_plural=noun.letter == THINGS or COUNT in names,
        count=names.get(COUNT, ""),
        colour=names.get(COLOUR, ""),
        size=names.get(SIZE, ""),
    )


def _without_relation(world: World, line: str) -> str:
    """The line where how two things stand is taken out, with the places that belong to it."""
    for pattern in _relations(world):
        if match := pattern.search(line):
            return _emptied(line, match)
    return line


@lru_cache(maxsize=16)
def _relations(world: World) -> tuple[re.Pattern[str], ...]:
    """Each template over lines whose things are marked, the longest first."""
    phrases = phrases_of(world)
    patterns = set()
    for relation in world.relations:
        for template in relation.phrases:
            parts = [phrases.find(part).line for part in re.split(r"\{[ab]\}", template)]
            patterns.add("[01]+ ".join(map(re.escape, parts)))
    return tuple(re.compile(_AT + text) for text in sorted(patterns, key=lambda t: (-len(t), t)))


def _emptied(line: str, match: re.Match[str] | None, *, mark: str = ".") -> str:
    """The line with the match as one word of marks, as long as it was."""
    if match is None or not match[0]:
        return line
    return f"{line[: match.start()]}{mark * (len(match[0]) - 1)} {line[match.end() :]}"


# Words of the patterns above: a model knows them, but not where they make no sense.
_PATTERN_WORDS = """
a an the one on against in front of with before background backdrop wall canvas sky bg
surface gradient from to and into fading that goes vertical is bright light dark pale vivid deep
plain solid coloured colored colour color very next beside by above over under below beneath
underneath top side left right at please can you could draw paint show make me
"""
_LITERALS = frozenset(_PATTERN_WORDS.split()) | {STYLE}
