"""The judge of world prompts: compared with the captions that the model was taught."""

import json
import random

import pytest

from studio.expansion.world_reading import keeps, read
from studio.world import World
from training import world as training_world
from training.captions import sentence
from training.compositions import FULL, any_scene

TAUGHT = World.model_validate_json(json.dumps(training_world.describe()))
CAPTIONS = 600
MIN_READ = 0.97  # of them; measured: 0.986. The rest hold rare forms ("a red-blue gradient")


def test_captions_of_the_training_are_read_as_they_were_meant() -> None:
    """The reader knows `world.json` alone; the scenes behind the captions are the reference."""
    rng, clear = random.Random(7), 0
    for _ in range(CAPTIONS):
        scene = any_scene(rng, FULL)
        reading = read(TAUGHT, sentence(scene, rng))
        if not reading.is_clear:
            continue
        clear += 1
        assert {thing.name for thing in reading.things} == {thing.name for thing in scene.things}
        if reading.has_background:
            assert (reading.background, reading.setting) == (scene.background, scene.setting)
        if len(scene.things) == 1:
            thing, seen = scene.things[0], reading.things[0]
            assert seen.size == thing.size
            assert reading.position == thing.position
            assert not thing.colour or seen.colour == thing.colour
    assert clear >= MIN_READ * CAPTIONS


UNCLEAR = [
    ("a happy cat", ("happy",), ()),
    ("a cat riding a dragon", ("riding",), ()),
    ("ein Hund", ("ein", "hund"), ()),
    ("a cat, small", (), ("small",)),
    ("a cat on", (), ("on",)),
    ("猫", ("猫",), ()),
    ("", (), ()),
    ("a blue background", (), ()),
    ("a cat and a dog and a cow", (), ()),
]


@pytest.mark.parametrize(("prompt", "unknown", "unread"), UNCLEAR)
def test_what_cannot_be_read_is_named(
    prompt: str, unknown: tuple[str, ...], unread: tuple[str, ...]
) -> None:
    reading = read(TAUGHT, prompt)
    assert not reading.is_clear
    assert tuple(word.lower() for word in reading.unknown) == unknown
    assert reading.unread == unread


def test_a_longer_prompt_keeps_what_a_shorter_one_says() -> None:
    before = read(TAUGHT, "a red car on grass")
    kept = [
        "a small red car on grass",
        "a red car on the left, in a meadow",
        "scarlet car on a lawn",
    ]
    assert all(keeps(before, read(TAUGHT, prompt)) for prompt in kept)
    changed = [
        "a blue car on grass",
        "a red bus on grass",
        "two red cars on grass",
        "a red car in the snow",
        "a red car on a green background",
        "a red car",
        "a red car and a cat on grass",
        "a shiny red car on grass",
    ]
    assert not any(keeps(before, read(TAUGHT, prompt)) for prompt in changed)


def test_places_and_numbers_must_be_kept() -> None:
    before = read(TAUGHT, "two cats")
    assert keeps(before, read(TAUGHT, "two pink cats on a blue background"))
    assert not keeps(before, read(TAUGHT, "three cats"))
    assert not keeps(before, read(TAUGHT, "a cat"))
    placed = read(TAUGHT, "a cat in the top left")
    assert keeps(placed, read(TAUGHT, "a small cat in the upper left corner"))
    assert not keeps(placed, read(TAUGHT, "a small cat in the top right"))
