"""Captions: a scene in everyday English, chosen by a seeded generator.

A caption tells what the scene holds and never more. Sizes and the colour that an object was painted
in are always said, its natural colour half of the time.
"""

from __future__ import annotations

import random

from training.backgrounds import (
    COLOUR_WORDS,
    GRADIENT_NOUNS,
    GRADIENT_PHRASES,
    GRADIENT_TAGS,
    PLAIN_NOUNS,
    PLAIN_PHRASES,
    PLAIN_TAGS,
    SETTING_NOUNS,
    SETTING_PHRASES,
    SHADES,
)
from training.compositions import Scene, Thing
from training.emoji import BY_NAME
from training.grammar import (
    ADJECTIVES,
    COLOURED,
    COUNT_WORDS,
    FREE_ORDERS,
    INTROS,
    MEDIA,
    ORDERS,
    PLACE_TAGS,
    PLACES,
    RELATIONS,
    SIZE_WORDS,
    STYLES,
)
from training.nouns import NOUNS
from training.unknown_words import unknown_word

# Shares of the captions.
NO_BACKGROUND = 0.03  # say nothing of the background
UNKNOWN = 0.15  # hold words that mean nothing
FREE_ORDER = 0.25  # do not begin with the things
INTRO = 0.25
STYLE = 0.12


def write(scene: Scene, rng: random.Random) -> str:
    """One caption of the scene, as somebody may type it."""
    text = _draft(scene, rng)
    if rng.random() < UNKNOWN:
        text = _interrupted(text, rng)
    return _typed(_finished(text), rng)


def sentence(scene: Scene, rng: random.Random) -> str:
    """A caption of known words alone, in lower case."""
    return _finished(_draft(scene, rng))


def _draft(scene: Scene, rng: random.Random) -> str:
    """A caption with "a" for every article, and with "_" inside names."""
    is_free = rng.random() < FREE_ORDER
    position = scene.things[0].position
    where = rng.random() if position else 1.0
    subject = _subject(scene, rng)
    if where < 0.6:
        subject = f"{subject} {rng.choice(PLACES[position])}"
    text = _before_background(subject, scene, is_free, rng)
    if not is_free and rng.random() < INTRO:
        text = f"{_intro(rng)} {text}"
    if 0.6 <= where < 1.0:
        text = _placed(text, position, rng)
    return f"{text}, {rng.choice(STYLES)}" if rng.random() < STYLE else text


def _subject(scene: Scene, rng: random.Random) -> str:
    if scene.arrangement == "some":
        return _some(scene.things[0], len(scene.things), rng)
    phrases = [_one(thing, rng) for thing in scene.things]
    if len(phrases) == 1:
        return phrases[0]
    return rng.choice(RELATIONS[scene.arrangement]).format(a=phrases[0], b=phrases[1])


def _one(thing: Thing, rng: random.Random) -> str:
    noun = rng.choice(NOUNS[thing.name]) if rng.random() < 0.4 else NOUNS[thing.name][0]
    words = [*_adjectives(thing, rng), noun.singular]
    chance = rng.random()
    if noun.has_article and chance < 0.78:
        return f"a {' '.join(words)}"
    article = "the " if chance > 0.94 else "one " if noun.has_article and chance > 0.92 else ""
    return article + " ".join(words)


def _some(thing: Thing, count: int, rng: random.Random) -> str:
    noun = rng.choice(NOUNS[thing.name]) if rng.random() < 0.4 else NOUNS[thing.name][0]
    number = rng.choice(COUNT_WORDS[count])
    if noun.plural == noun.singular and not number:  # "sheep" alone is one sheep
        number = COUNT_WORDS[count][0]
    return " ".join([number, *_adjectives(thing, rng), noun.plural]).lstrip()


def _adjectives(thing: Thing, rng: random.Random) -> list[str]:
    """Size, style and colour, in this order mostly."""
    words = [rng.choice(SIZE_WORDS[thing.size])] if thing.size else []
    if rng.random() < 0.08:
        words.insert(rng.randint(0, len(words)), rng.choice(ADJECTIVES))
    colour = thing.colour or (BY_NAME[thing.name].colour if rng.random() < 0.5 else "")
    if colour:
        words.append(_colour(colour, rng))
        if rng.random() < 0.03:
            words.append(rng.choice(COLOURED))
    return words


def _colour(name: str, rng: random.Random) -> str:
    chance = rng.random()
    if chance < 0.2 and COLOUR_WORDS[name]:
        return rng.choice(COLOUR_WORDS[name])
    return f"{rng.choice(SHADES)} {name}" if chance > 0.98 else name


def _before_background(subject: str, scene: Scene, is_free: bool, rng: random.Random) -> str:
    """The subject and what is behind it."""
    if rng.random() < NO_BACKGROUND:
        return subject
    order = rng.choice(FREE_ORDERS if is_free else ORDERS)
    if scene.setting:
        nouns, phrases = SETTING_NOUNS[scene.setting], SETTING_PHRASES[scene.setting]
        noun = rng.choice(nouns)
        tag = noun.removeprefix("the ").removeprefix("a ")
        if rng.random() < 0.3:
            tag = f"{tag} background"
        return order.format(s=subject, p=rng.choice(phrases), n=noun, t=tag, k=noun)
    return _on_colours(subject, scene.background, order, rng)


def _on_colours(subject: str, background: tuple[str, ...], order: str, rng: random.Random) -> str:
    first, second = (_colour(colour, rng) for colour in (background[0], background[-1]))
    is_plain = len(background) == 1
    noun = rng.choice(PLAIN_NOUNS if is_plain else GRADIENT_NOUNS)
    phrase = rng.choice(PLAIN_PHRASES if is_plain else GRADIENT_PHRASES)
    tag = rng.choice(PLAIN_TAGS if is_plain else GRADIENT_TAGS)
    kind = "{c}" if is_plain else "a {n}"
    template = order.format(s=subject, p=phrase, n="a {n}", t=tag, k=kind)
    return template.replace("{n}", noun).replace("{c}", first).replace("{d}", second)


def _intro(rng: random.Random) -> str:
    """ "draw", "a picture of", "draw a cute icon of" ..."""
    chance = rng.random()
    if chance < 0.5:
        return rng.choice(INTROS)
    medium = rng.choice(MEDIA)
    if rng.random() < 0.25:
        medium = f"{rng.choice(ADJECTIVES)} {medium}"
    if chance < 0.65:
        return medium
    return f"{rng.choice(INTROS)} a {medium}" if chance > 0.9 else f"a {medium}"


def _placed(text: str, position: str, rng: random.Random) -> str:
    """The caption with its place at the end or in front."""
    words = rng.choice((PLACES if rng.random() < 0.6 else PLACE_TAGS)[position])
    if rng.random() < 0.6:
        return f"{text}, {words}"
    return f"{words}{rng.choice((':', ',', ','))} {text}"


def _interrupted(text: str, rng: random.Random) -> str:
    """One to three unknown words between the others; one in a long caption, to fit the tokens."""
    words = text.split(" ")
    for _ in range(rng.randint(1, 3) if len(words) < 12 else 1):
        words.insert(rng.randint(0, len(words)), unknown_word(rng))
    return " ".join(words)


def _finished(text: str) -> str:
    """``a orange`` -> ``an orange``, and ``hot_dog`` -> ``hot dog``."""
    words = text.split(" ")
    for i, word in enumerate(words[:-1]):
        if word == "a" and words[i + 1][:1] in "aeiou" and not words[i + 1].startswith("uni"):
            words[i] = "an"
    return " ".join(words).replace("_", " ")


def _typed(text: str, rng: random.Random) -> str:
    """Mostly lower case; some with a capital and a full stop, and a few IN CAPITALS."""
    chance = rng.random()
    if chance < 0.8:
        return text
    if chance < 0.92:
        return f"{text[0].upper()}{text[1:]}{'!' if chance < 0.81 else '.'}"
    return f"{text}." if chance < 0.96 else text.title() if chance < 0.98 else text.upper()
