"""What is written after an idea: clauses that fit it and one another, none saying a thing twice.

First what can be seen of the subject, then where it is, then light, composition, medium and mood,
in a few orders. An idea that names a place gets details of that place instead of another one; an
idea that names a medium stays in it.
"""

from __future__ import annotations

import re
from random import Random

from training.expansion.ideas import Idea
from training.expansion.tags import OPEN, Needs, needs_of
from training.expansion.vocabulary import Phrase, section

# Most people mean a photograph; paintings stay frequent enough to be learned.
MEDIA: dict[str, int] = {
    "photo": 80,
    "oil": 6,
    "watercolour": 3,
    "gouache": 2,
    "ink": 1,
    "print": 2,
    "render": 2,
    "digital": 4,
}
PLACED_CATEGORIES = ("buildings", "landscapes", "events", "skies", "vehicles")
UNPLACED_CATEGORIES = ("interiors",)  # they are a place; their settings are views
# Mostly one order: a model this small keeps its thread by knowing which part comes next.
ORDERS: tuple[tuple[str, ...], ...] = (
    ("details", "setting", "light", "composition", "palette", "medium", "mood"),
    ("details", "setting", "light", "composition", "palette", "medium", "mood"),
    ("details", "setting", "light", "palette", "composition", "medium", "mood"),
    ("setting", "details", "light", "composition", "palette", "medium", "mood"),
)
CHANCES: dict[str, float] = {"composition": 0.45, "palette": 0.3, "mood": 0.3, "setting": 0.95}
# Feelings and creatures that nobody has photographed are painted more often.
PAINTED = ("abstract", "fantasy")
# What only the idea or its setting may bring in: a light alone does not make it rain.
BROUGHT_IN = frozenset(
    f"{OPEN['scene']} rain snow fog storm wind {OPEN['season']} move named".split()
) - {"void"}
# What an idea leaves open is settled before the light is chosen, in about these shares.
USUAL: dict[str, dict[str, int]] = {
    "time": {"day": 45, "dusk": 20, "dawn": 14, "night": 21},
    "weather": {"clear": 62, "cloud": 38},
}
MIN_WORDS = 18
MAX_WORDS = 44

_WORD = re.compile(r"[a-z]{4,}")
# Words that may come twice: they carry no picture of their own.
_LIGHT_WORDS = frozenset(
    re.findall(
        r"\w+",
        "light soft with from over into above along under behind between through their than very "
        "small large fine deep wide clear dark each every side edges",
    )
)


def stems(text: str) -> set[str]:
    """The words of a text that should not come again, cut so that `leaf` and `leafy` are one."""
    return {word[:5] for word in _WORD.findall(text.lower()) if word not in _LIGHT_WORDS}


def continuation(rng: Random, idea: Idea) -> str:
    """The clauses after the idea, joined by commas, `MIN_WORDS` to `MAX_WORDS` words."""
    writer = _Writer(rng, idea)
    if not idea.state.says("medium"):
        shares = MEDIA | ({"photo": 12} if idea.category in PAINTED else {})
        medium = rng.choices(list(shares), list(shares.values()))[0]
        idea.state.settle(needs_of([medium], {}))
        writer.is_medium_named = False
    parts = {"setting": writer.setting()}  # first: the rest has to fit it
    _settle_the_usual(rng, idea)
    parts["details"] = writer.details()
    parts["light"] = writer.take(section("light", "light"))
    for slot, name in (("composition", "composition"), ("palette", "light"), ("mood", "light")):
        if rng.random() < CHANCES[slot]:
            parts[slot] = writer.take(section(name, slot), aptness=1.0)
    parts["medium"] = writer.medium()
    clauses = [clause for slot in rng.choice(ORDERS) for clause in parts.get(slot, [])]
    return ", ".join(_shortened(clauses, writer))


def _settle_the_usual(rng: Random, idea: Idea) -> None:
    state = idea.state
    place = state.settled.get("place", frozenset())
    if not place & {"outdoors", "indoors"}:
        return
    for axis, shares in USUAL.items():
        known = state.settled.get(axis, frozenset(shares))
        free = [value for value in shares if value in known]
        if free and (axis == "time" or "outdoors" in place):
            value = rng.choices(free, [shares[value] for value in free])[0]
            state.settle(needs_of([value], {}))


def _shortened(clauses: list[str], writer: _Writer) -> list[str]:
    while sum(len(clause.split()) for clause in clauses) > MAX_WORDS:
        clauses.pop(len(clauses) // 2)
    while sum(len(clause.split()) for clause in clauses) < MIN_WORDS:
        more = writer.take(section("light", "palette")) or writer.take(section("light", "mood"))
        if not more:
            break
        clauses[-1:-1] = more
    return clauses


class _Writer:
    """Chooses clauses one after the other and remembers what was said."""

    def __init__(self, rng: Random, idea: Idea) -> None:
        self.rng = rng
        self.idea = idea
        self.said = stems(idea.text)
        self.is_medium_named = True

    def take(
        self,
        phrases: tuple[Phrase, ...],
        count: int = 1,
        may_bring_in: bool = False,
        aptness: float = 2.0,
    ) -> list[str]:
        """Up to `count` clauses that fit.

        `aptness` is the power by which those made for what was said are the likelier; `BROUGHT_IN`
        is left to those that `may_bring_in`.
        """
        clauses: list[str] = []
        fit = [p for p in phrases if may_bring_in or not self._brings_in(p.needs)]
        while fit and len(clauses) < count:
            fit = [phrase for phrase in fit if self._worded(phrase) is not None]
            if not fit:
                break
            phrase = self.rng.choices(fit, [self._closeness(p.needs) ** aptness for p in fit])[0]
            clause = self._worded(phrase) or ""
            self.idea.state.settle(phrase.needs)
            self.said |= stems(clause)
            clauses.append(clause)
        return clauses

    def _brings_in(self, needs: Needs) -> bool:
        state = self.idea.state
        return any(values <= BROUGHT_IN and not state.says(axis) for axis, values in needs.items())

    def _closeness(self, needs: Needs) -> float:
        """How much of what was said the words are made for; below 1 where they suit anything."""
        state = self.idea.state
        return 1.0 + sum(state.says(axis) for axis in needs if axis != "medium") if needs else 0.15

    def _worded(self, phrase: Phrase) -> str | None:
        idea = self.idea
        if not idea.state.allows(phrase.needs):
            return None
        if not stems(phrase.text.replace("{noun}", "").replace("{colour}", "")).isdisjoint(
            self.said
        ):
            return None
        names = {"{noun}": idea.noun, "{colour}": idea.colour}
        if any(name in phrase.text and word is None for name, word in names.items()):
            return None
        return phrase.text.format(noun=idea.noun, colour=idea.colour)

    def setting(self) -> list[str]:
        """A place of the subject's own, or a little of the place that the idea names."""
        idea = self.idea
        if self.rng.random() > CHANCES["setting"]:
            return []
        scene = section("composition", "scene")
        if idea.category in UNPLACED_CATEGORIES:
            return self.take(section(idea.category, "settings")) if self.rng.random() < 0.6 else []
        is_place = idea.category in PLACED_CATEGORIES
        if not is_place and any(idea.state.says(axis) for axis in ("place", "scene")):
            return self.take(scene)
        has_own = not any(idea.state.says(axis) for axis in ("pair", "substance"))
        own = section(idea.category, "settings") if has_own else section("composition", "anywhere")
        return self.take(own, may_bring_in=True) or self.take(scene)

    def details(self) -> list[str]:
        """What can be seen of the subject: of the odd thing about it first, where there is one."""
        idea, count = self.idea, self.rng.choice((2, 2, 3))
        first: list[str] = []
        if idea.colour:
            first = self.take(section("places", "colour kept"))
        elif idea.state.says("substance"):
            first = self.take(section("places", "substance details"), 2)
        elif idea.state.says("pair"):
            return self.take(section("places", "pair"), min(count, 2))
        elif idea.state.says("odd"):
            odd = [p for p in section(idea.category, "details") if "odd" in p.needs]
            first = self.take(tuple(odd))
        return first + self.take(section(idea.category, "details"), max(count - len(first), 0))

    def medium(self) -> list[str]:
        """Named once, by the idea or here; a property of it may follow."""
        details = section("media", "detail")
        if self.is_medium_named:
            return self.take(details, aptness=0.5)
        named = self.take(section("media", "name"))
        return named + (self.take(details, aptness=0.5) if self.rng.random() < 0.12 else [])
