"""Expansion for a model that draws a world of its own and nothing else.

The idea stays as it is typed; size, colour, place and background are put between its words, and the
result is read again: it must be clear, and say all that the idea says.
"""

import random
from collections.abc import Iterator

from studio.expansion.world_choice import (
    Choice,
    Picks,
    chosen,
    completed,
    picks_of,
    setting_of,
)
from studio.expansion.world_reading import MAX_THINGS, Named, Reading, keeps, read
from studio.world import World

TRIES = 16  # at random, until the result is read as it was meant
MAX_NAMED = 5

Insert = tuple[int, str]  # where in the idea, and what


def idea_fault(world: World, idea: str) -> str | None:
    """Why nothing can be added to the idea, as a sentence; None where something can."""
    reading = read(world, idea)
    if reading.unknown:
        named = ", ".join(dict.fromkeys(reading.unknown[:MAX_NAMED]))
        return f"This model does not know: {named}. It draws only words of its own list."
    if not reading.things:
        return "The prompt names none of the things that this model draws."
    if len(reading.things) > MAX_THINGS:
        return "This model draws one or two things at once, and the prompt names more."
    if reading.unread:
        named = " ".join(reading.unread[:MAX_NAMED])
        return f"It is not clear what “{named}” belongs to in this prompt."
    return None


def begun(world: World, idea: str, raw: str) -> str:
    """The idea with what the text model has chosen so far."""
    reading = read(world, idea)
    text = _written(world, idea, reading, chosen(world, reading, picks_of(world, raw)))
    return text if keeps(reading, read(world, text)) else idea


def finished(world: World, idea: str, raw: str, rng: random.Random) -> str | None:
    """The expanded idea; None where it says already all that the model can be told.

    `idea` is one without a fault. `raw` is the text model's, and may be anything.
    """
    reading = read(world, idea)
    picks = picks_of(world, raw)
    for attempt in range(TRIES):
        choice = completed(world, reading, picks if attempt < TRIES // 2 else Picks(), rng)
        text = _written(world, idea, reading, choice)
        if not choice.is_empty and keeps(reading, read(world, text)):
            return text
    return None


def examples_of(world: World, rng: random.Random, count: int = 4) -> Iterator[tuple[str, str]]:
    """Ideas with expansions as a text model is to write them: clauses in the world's words."""
    for thing in rng.sample(world.objects, min(count, len(world.objects))):
        idea = with_article(thing.name) if thing.is_countable else thing.name
        colours = [colour.name for colour in world.colours]
        natural = [thing.colour] if thing.colour else []
        words = [rng.choice(world.sizes).words[0]] if world.sizes else []
        words += [rng.choice(colours)] if thing.is_paintable and colours else natural
        words += [rng.choice(world.positions).phrases[0]] if world.positions else []
        if world.settings and (not colours or rng.random() < 0.5):
            words.append(rng.choice(world.settings).phrases[0])
        elif colours:
            words.append(f"{rng.choice(colours)} background")
        yield idea, ", ".join([idea, *words])


def with_article(words: str) -> str:
    """ "an apple", "a unicorn"."""
    is_vowel = words[:1].lower() in "aeiou" and not words.lower().startswith("uni")
    return f"{'an' if is_vowel else 'a'} {words}"


def _written(world: World, idea: str, reading: Reading, choice: Choice) -> str:
    inserts: list[Insert] = []
    for number, thing in enumerate(reading.things):
        inserts += _adjectives(world, thing, choice, number)
    if choice.position:
        row = next(row for row in world.positions if row.name == choice.position)
        inserts.append((reading.things[0].end, f" {row.phrases[0]}"))
    if phrase := _background(world, choice):
        end = len(idea.rstrip(" .,;:!"))
        is_after_thing = any(thing.end == end for thing in reading.things)
        sign = "" if is_after_thing and not choice.position else ","
        inserts.append((end, f"{sign} {phrase}"))
    return _with_articles(reading, _inserted(idea, inserts), inserts)


def _adjectives(world: World, thing: Named, choice: Choice, number: int) -> list[Insert]:
    inserts: list[Insert] = []
    if number == 0 and choice.count:
        word = next(row.words[0] for row in world.counts if row.count == choice.count)
        inserts.append((thing.start, f"{word} "))
    if size := choice.sizes[number]:
        word = next(row.words[0] for row in world.sizes if row.name == size)
        inserts.append((thing.adjectives_at, f"{word} "))
    if colour := choice.colours[number]:
        inserts.append((thing.noun_at, f"{colour} "))
    return inserts


def _background(world: World, choice: Choice) -> str:
    if choice.background:
        return f"on {with_article(choice.background)} background"
    return setting_of(world, choice.setting).phrases[0] if choice.setting else ""


def _inserted(idea: str, inserts: list[Insert]) -> str:
    """The idea with all of them, in their order where the place is the same."""
    text = idea
    for place in sorted({place for place, _ in inserts}, reverse=True):
        words = "".join(words for at, words in inserts if at == place)
        text = f"{text[:place]}{words}{text[place:]}"
    return text


def _with_articles(reading: Reading, text: str, inserts: list[Insert]) -> str:
    """ "a" and "an" as the word that now follows wants it."""
    for thing in reversed(reading.things):
        start = thing.start + sum(len(words) for place, words in inserts if place < thing.start)
        article, _, rest = text[start:].partition(" ")
        if article.lower() in ("a", "an"):
            right = with_article(rest).partition(" ")[0]
            right = right.capitalize() if article[0] == "A" else right
            text = f"{text[:start]}{right} {rest}"
    return text
