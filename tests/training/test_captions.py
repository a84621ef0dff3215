"""Captions follow from the scene and the seed, and never name a held-out combination."""

import random
from itertools import pairwise

import pytest

from training.captions import vocabulary, write
from training.compositions import COLOURS, FULL, Scene, is_held_out, place, random_scene
from training.emoji import BY_NAME, OBJECTS


def captions(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return [write(random_scene(rng, FULL), rng) for _ in range(count)]


def test_there_are_a_hundred_objects_and_twelve_colours() -> None:
    assert len({emoji.name for emoji in OBJECTS}) == 100 and len(COLOURS) == 12


def test_one_seed_gives_the_same_captions() -> None:
    assert captions(3, 50) == captions(3, 50)
    assert captions(3, 50) != captions(4, 50)


def test_training_never_shows_a_held_out_combination() -> None:
    rng = random.Random(0)
    for _ in range(3000):
        scene = random_scene(rng, FULL)
        for thing in scene.things:
            assert not any(is_held_out(thing.name, colour) for colour in scene.background)


def test_about_one_combination_in_ten_is_held_out() -> None:
    held = [is_held_out(emoji.name, colour) for emoji in OBJECTS for colour in COLOURS]
    assert 0.05 < sum(held) / len(held) < 0.15


def test_a_red_apple_on_blue_is_a_caption_of_its_scene() -> None:
    rng = random.Random(0)
    scene = Scene((place(rng, "apple", "", ""),), ("blue",))
    written = {write(scene, rng) for _ in range(400)}
    assert "a red apple on a blue background" in written
    assert "an apple on a blue background" in written
    assert not any("red background" in caption for caption in written)


def test_articles_fit() -> None:
    for caption in captions(1, 2000):
        words = caption.rstrip(".").lower().split()
        for article, word in pairwise(words):
            if article == "a":
                assert word[0] not in "aeio", caption
            if article == "an":
                assert word[0] in "aeiou", caption


def test_vocabulary_holds_every_word() -> None:
    known = set(vocabulary())
    for caption in captions(2, 2000):
        text = caption.lower().rstrip(".").replace(",", " ").replace("-", " ")
        assert set(text.split()) <= known, caption


@pytest.mark.parametrize("name", ["cherries", "coffee"])
def test_plurals_have_no_article(name: str) -> None:
    assert BY_NAME[name].is_plural
    rng = random.Random(0)
    scene = Scene((place(rng, name, "", ""),), ("white",))
    assert not any(f"a {name}" in write(scene, rng) for _ in range(200))
