"""Expansion in a model's world: hundreds of ideas, each result judged by reading it again."""

import json
import random

import pytest

from studio.expansion.world_choice import Picks, picks_of
from studio.expansion.world_reading import keeps, read
from studio.expansion.worlds import begun, examples_of, finished, idea_fault
from studio.world import World
from tests.worlds import small_world
from training import world as training_world
from training.captions import sentence
from training.compositions import Mix, any_scene

TAUGHT = World.model_validate_json(json.dumps(training_world.describe()))
SMALL = World.model_validate_json(json.dumps(small_world()))
RAW = [
    "",
    " small, yellow, on the left, blue background",
    " enormous, sitting in the snow, pink, at sea",
    " I love it, a purple dog, 3 cats, background",
    " red, red, red background, in the bottom right corner",
]


def ideas() -> list[str]:
    """All things by themselves, in pairs and in numbers, and captions that say little."""
    rng = random.Random(3)
    names = [thing.name for thing in TAUGHT.objects]
    plurals = [thing.plural for thing in TAUGHT.objects if thing.plural]
    found = [*names, *(f"a {name}" for name in names), *(f"two {name}" for name in plurals)]
    found += [f"{rng.choice(names)} next to a {rng.choice(names)}" for _ in range(60)]
    found += [
        f"A {rng.choice(names)}.",
        f"{rng.choice(plurals)}",
        "draw me a cute cat",
        "A BIG CAR",
    ]
    return found + [sentence(any_scene(rng, Mix()), rng) for _ in range(100)]


def test_every_idea_of_the_world_becomes_a_prompt_of_the_world() -> None:
    rng, expanded = random.Random(5), 0
    for number, idea in enumerate(ideas()):
        if idea_fault(TAUGHT, idea):  # the few captions that the reader does not know
            continue
        before = read(TAUGHT, idea)
        text = finished(TAUGHT, idea, RAW[number % len(RAW)], rng)
        if text is None:
            assert before.has_background, idea
            continue
        after = read(TAUGHT, text)
        assert after.is_clear, text
        assert keeps(before, after), (idea, text)
        assert after.has_background, text
        assert not {thing.colour for thing in after.things} & set(after.background) or (
            before.things[0].colour
        )
        expanded += 1
    assert expanded > 450


CHOICES = [
    ("a cat", RAW[1], "a small yellow cat on the left, on a blue background"),
    ("a cat", RAW[2], "a large pink cat at sea"),
    ("A Dog.", RAW[1], "A small Dog on the left, on a blue background."),  # no dog is painted
    ("a red cat", RAW[1], "a small red cat on the left, on a blue background"),
    ("a big cat", RAW[1], "a big yellow cat on a blue background"),  # large fits no edge
    ("a cat on grass", RAW[1], "a small yellow cat on the left on grass"),
    ("two cats", RAW[1], "two yellow cats on a blue background"),
    ("an owl", RAW[1], "a small owl on the left, on a blue background"),
    ("a cat at the top", RAW[1], "a small yellow cat at the top, on a blue background"),
    (
        "a cat, emoji style",
        RAW[1],
        "a small yellow cat on the left, emoji style, on a blue background",
    ),
    ("on snow, a cat", RAW[1], "on snow, a small yellow cat on the left"),
]


@pytest.mark.parametrize(("idea", "raw", "text"), CHOICES)
def test_the_text_models_choice_is_taken_where_it_fits(idea: str, raw: str, text: str) -> None:
    assert finished(TAUGHT, idea, raw, random.Random(0)) == text
    assert begun(TAUGHT, idea, raw) in (text, idea)


@pytest.mark.parametrize(
    ("idea", "colour"),
    [("a red car", "red"), ("an avocado", "green"), ("a cat and a snowman", "white")],
)
def test_nothing_stands_before_its_own_colour(idea: str, colour: str) -> None:
    """Said, natural, or chosen here: a thing in the background's colour would not be seen."""
    for seed in range(40):
        for raw in ("", f" {colour} background"):
            text = finished(TAUGHT, idea, raw, random.Random(seed))
            assert text is not None and read(TAUGHT, text).background != (colour,)
    for seed in range(40):
        text = finished(TAUGHT, "a cat on a blue background", " blue", random.Random(seed))
        assert text is None or read(TAUGHT, text).things[0].colour != "blue"


def test_choices_are_taken_only_from_clauses_of_known_words() -> None:
    assert picks_of(TAUGHT, " a scary green dog, tiny, on the road, pink") == Picks("small", "pink")
    assert picks_of(TAUGHT, " crimson backdrop, gold, upper left") == Picks(
        colour="yellow", position="top left", background="red"
    )
    assert picks_of(TAUGHT, "") == Picks()


def test_a_seed_gives_the_same_prompt_and_another_another() -> None:
    first, again = (finished(TAUGHT, "a cat", "", random.Random("7 a cat")) for _ in range(2))
    assert first == again
    assert len({finished(TAUGHT, "a cat", "", random.Random(seed)) for seed in range(20)}) > 10


@pytest.mark.parametrize(
    ("idea", "fault"),
    [
        ("a happy cat on a skateboard", "does not know: happy, skateboard"),
        ("something blue", "does not know: something"),
        ("a blue background", "names none of the things"),
        ("a cat and a dog and a cow", "one or two things"),
        ("a cat, small", "“small”"),
    ],
)
def test_an_idea_that_stays_as_it_is_is_told_why(idea: str, fault: str) -> None:
    assert fault in (idea_fault(TAUGHT, idea) or "")


def test_an_idea_that_says_everything_gets_nothing() -> None:
    full = "a small orange cat on the left on a blue background"
    assert idea_fault(TAUGHT, full) is None
    assert finished(TAUGHT, full, RAW[2], random.Random(0)) is None


def test_examples_are_prompts_of_the_world_in_clauses() -> None:
    for seed in range(20):
        for idea, prompt in examples_of(TAUGHT, random.Random(seed)):
            assert idea_fault(TAUGHT, idea) is None
            assert prompt.startswith(f"{idea}, ")
            assert picks_of(TAUGHT, prompt.removeprefix(idea)) != Picks()


def test_any_world_will_do() -> None:
    for seed in range(30):
        text = finished(SMALL, "an apple", "", random.Random(seed))
        assert text is not None and read(SMALL, text).is_clear
    bare = SMALL.model_copy(update={"sizes": (), "positions": (), "settings": (), "counts": ()})
    assert finished(bare, "an apple", "", random.Random(0)) is not None
