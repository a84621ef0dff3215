"""Short ideas as people type them, with all that they settle for the words that follow."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random

from training.expansion.tags import GRANTED, OPEN, Circumstances, Needs, needs_of
from training.expansion.vocabulary import CATEGORIES, Phrase, section

# People, animals and things are typed most; feelings and skies have fewer words to learn from.
WEIGHTS: dict[str, float] = dict.fromkeys(CATEGORIES, 1.0) | {
    "animals": 1.5,
    "people": 1.5,
    "objects": 1.3,
    "skies": 0.7,
}
COUNTS = ("two", "three", "four", "five", "several", "a pair of", "a group of", "2", "3")
PAIR_VERBS = (
    "{a} and {b}",
    "{a} and {b}",
    "{a} next to {b}",
    "{a} looking at {b}",
    "{a} talking to {b}",
    "{a} playing with {b}",
    "{a} dancing with {b}",
    "{a} chasing {b}",
    "{a} having tea with {b}",
    "{a} hugging {b}",
)
_VOWEL = re.compile(r"[aeiou]|hour|hon", re.IGNORECASE)
_LONG_U = re.compile(r"(uni|use|eu|one\b)", re.IGNORECASE)
_BEINGS = frozenset(("beast", "spirit", "being", "robed", "machine", "suit"))
_BARE_CATEGORIES = ("abstract", "skies")
_COUNTED = ("animals", "people", "food", "objects", "vehicles", "plants", "fantasy")
_RENAMED = ("animals", "people", "food", "objects", "vehicles", "buildings", "plants", "fantasy")


@dataclass(slots=True)
class Idea:
    """What was typed. `noun` can be named again; None where there is no one short name for it."""

    text: str
    category: str
    noun: str | None
    colour: str | None = None
    state: Circumstances = field(default_factory=Circumstances)


def article(noun: str) -> str:
    """`a cat`, `an owl`, `a unicorn`."""
    is_vowel = _VOWEL.match(noun) and not _LONG_U.match(noun)
    return f"{'an' if is_vowel else 'a'} {noun}"


def draw_idea(rng: Random) -> Idea:
    """One idea; the same for the same state of the generator."""
    category = rng.choices(CATEGORIES, [WEIGHTS[name] for name in CATEGORIES])[0]
    if category in ("animals", "people", "fantasy") and rng.random() < 0.13:
        idea = _pair(rng, category)
    else:
        idea = _single(rng, category)
    _extend(rng, idea)
    _set_in_medium(rng, idea)
    idea.text = _as_typed(rng, idea.text)
    return idea


def _begin(rng: Random, category: str, is_being: bool = False) -> tuple[Phrase, Circumstances]:
    subject = rng.choice(section(category, "subjects"))
    while is_being and not subject.needs.get("fantasy.kind", frozenset()) <= _BEINGS:
        subject = rng.choice(section(category, "subjects"))
    state = Circumstances()
    state.settle(needs_of([category], {}))
    state.grant(subject.needs)
    if category == "people":
        for tag, axis in (("adult", "age"), ("modern", "style")):
            if not state.says(axis):
                state.settle(needs_of([tag], {}))
    return subject, state


def _single(rng: Random, category: str) -> Idea:
    subject, state = _begin(rng, category)
    is_many = subject.has_plural and category in _COUNTED and rng.random() < 0.13
    noun = subject.many if is_many else subject.text
    has_name = category in _RENAMED and len(noun.split()) < 3
    idea = Idea(noun, category, noun if has_name else None, state=state)
    if not state.says("count"):
        state.settle(needs_of(["many" if is_many else "one"], {}))
    has_article = noun.startswith(("a ", "the "))
    if (
        not has_article
        and rng.random() < 0.3
        and (word := _fitting(rng, idea, section(category, "adjectives")))
    ):
        noun = f"{word.text} {noun}"
    elif category in ("animals", "objects", "vehicles") and rng.random() < 0.16:
        noun = _painted(rng, idea, noun)
    idea.text = _with_article(rng, subject, noun, is_many, category)
    return idea


def _painted(rng: Random, idea: Idea, noun: str) -> str:
    named = needs_of(["named"], {})
    if not idea.state.allows(named) or idea.state.says("hue"):
        return noun
    idea.state.settle(named)
    idea.state.settle(needs_of(["colour"], {}))
    colour = rng.choice(section("places", "colour")).text
    idea.colour = "gold" if colour == "golden" else colour
    return f"{colour} {noun}"


def _with_article(rng: Random, subject: Phrase, noun: str, is_many: bool, category: str) -> str:
    if is_many:
        return f"{rng.choice(COUNTS)} {noun}" if rng.random() < 0.6 else noun
    is_mass = not subject.has_plural or category in _BARE_CATEGORIES
    if is_mass or noun.startswith(("a ", "the ")):
        return noun
    kind = rng.random()
    if kind < 0.6:
        return article(noun)
    return f"the {noun}" if kind < 0.66 else noun


def _pair(rng: Random, category: str) -> Idea:
    first, state = _begin(rng, category, is_being=True)
    other = category if rng.random() < 0.6 else rng.choice(("animals", "people", "fantasy"))
    second, _ = _begin(rng, other, is_being=True)
    # Nothing is said of the parts of either: whose they were would be unclear.
    state = Circumstances(settled={"category": state.settled["category"]})
    state.grant(needs_of(["pair", "many"], {}))
    text = rng.choice(PAIR_VERBS).format(a=article(first.text), b=article(second.text))
    return Idea(text, category, None, state=state)


def _extend(rng: Random, idea: Idea) -> None:
    """What it does, wears or is made of, where, and when: each now and then, none twice."""
    category = idea.category
    if category in ("animals", "objects", "vehicles") and rng.random() < 0.06:
        _add(rng, idea, section("places", "substance"))
        idea.state.granted = {
            axis: tags for axis, tags in idea.state.granted.items() if axis in ("substance", "odd")
        }
    is_pair = idea.state.says("pair")
    for title, chance in (("doing", 0.34), ("with", 0.16), ("at", 0.3)):
        if rng.random() < chance and not (is_pair and title == "with"):
            _add(rng, idea, section(category, title))
    if not idea.state.says("scene") and category not in ("skies", "landscapes", "interiors"):
        if rng.random() < 0.1 and category != "abstract":
            _add(rng, idea, section("places", "where"))
        elif rng.random() < 0.1 and category not in ("abstract", "food"):
            _add(rng, idea, section("places", "when"))
    if category in ("buildings", "interiors", "landscapes") and rng.random() < 0.04:
        idea.state.settle(needs_of(["empty"], {}))
        idea.text += " " + rng.choice(section("places", "negative")).text


def _add(rng: Random, idea: Idea, phrases: tuple[Phrase, ...]) -> None:
    # The adjective or verb that repeats a place or a pose already given is left out.
    free = [
        phrase
        for phrase in phrases
        if not any(idea.state.says(axis) for axis in ("scene", "pose") if axis in phrase.needs)
    ]
    if phrase := _fitting(rng, idea, tuple(free)):
        idea.text += " " + phrase.text


def _agrees(state: Circumstances, needs: Needs) -> bool:
    """Whether words of the idea itself fit: what they grant need not be there yet."""
    return state.allows({axis: tags for axis, tags in needs.items() if axis not in GRANTED})


def _fitting(rng: Random, idea: Idea, phrases: tuple[Phrase, ...]) -> Phrase | None:
    """One of the phrases that agree with the idea; the idea then says what it says."""
    fit = [phrase for phrase in phrases if _agrees(idea.state, phrase.needs)]
    if not fit:
        return None
    phrase = rng.choice(fit)
    # "On an empty road" suits cars and bicycles; it makes neither of the other.
    idea.state.grant({a: tags for a, tags in phrase.needs.items() if a in OPEN or a in GRANTED})
    return phrase


def _set_in_medium(rng: Random, idea: Idea) -> None:
    chance = rng.random()
    if chance < 0.12 and (medium := _fitting(rng, idea, section("media", "before"))):
        # "oil painting of a cat", but "pixel art cat"
        text = idea.text if medium.text.endswith(" of") else re.sub(r"^an? ", "", idea.text)
        idea.text = f"{medium.text} {text}"
    elif chance < 0.2 and (medium := _fitting(rng, idea, section("media", "after"))):
        idea.text = f"{idea.text}, {medium.text}"


def _as_typed(rng: Random, text: str) -> str:
    chance = rng.random()
    if chance < 0.08:
        return text[0].upper() + text[1:]
    if chance < 0.1:
        return text.upper()
    return _mistyped(rng, text) if chance < 0.16 else text


def _mistyped(rng: Random, text: str) -> str:
    """Two letters swapped, one lost or one doubled, inside a word."""
    inner = [m.start() for m in re.finditer(r"(?<=\w)\w(?=\w)", text)]
    if not inner:
        return text
    at = rng.choice(inner)
    return (
        text[:at]
        + rng.choice((text[at + 1] + text[at], text[at] * 2 + text[at + 1], text[at + 1]))
        + text[at + 2 :]
    )
