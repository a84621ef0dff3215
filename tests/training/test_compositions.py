"""Scenes hold what the mix asks for, and never a held-out combination."""

import random
from collections import Counter
from dataclasses import fields

import pytest

from training.compositions import (
    COLOURS,
    FULL,
    POSITIONS,
    SETTINGS,
    Mix,
    any_scene,
    combinations,
    is_held_out,
    place,
    random_scene,
)
from training.emoji import BY_NAME, OBJECTS, PAINTABLE

SCENES = 3000


def test_the_world_is_as_large_as_it_says() -> None:
    assert len(OBJECTS) >= 150 and len(COLOURS) == 12 and len(PAINTABLE) >= 50
    assert len({emoji.icon for emoji in OBJECTS}) == len(OBJECTS) == len(BY_NAME)
    names = Counter(n for emoji in OBJECTS for n in (emoji.name, *emoji.synonyms))
    assert [name for name, count in names.items() if count > 1] == []


def test_training_never_meets_a_held_out_combination_and_chance_alone_does() -> None:
    rng = random.Random(0)
    drawn = [parts for _ in range(SCENES) for parts in combinations(random_scene(rng, FULL))]
    assert not any(is_held_out(*parts) for parts in drawn)
    chance = [parts for _ in range(SCENES) for parts in combinations(any_scene(rng, FULL))]
    share = sum(is_held_out(*parts) for parts in chance) / len(chance)
    assert 0.05 < share < 0.15


def test_every_kind_of_scene_is_drawn() -> None:
    rng = random.Random(1)
    scenes = [random_scene(rng, FULL) for _ in range(SCENES)]
    assert {scene.arrangement for scene in scenes} == {"single", "beside", "above", "some"}
    assert {scene.setting for scene in scenes} == {"", *SETTINGS}
    assert {len(scene.things) for scene in scenes} == {1, 2, 3}
    things = [thing for scene in scenes for thing in scene.things]
    assert {thing.position for thing in things} == set(POSITIONS)
    assert {thing.name for thing in things} == set(BY_NAME)
    assert {thing.colour for thing in things} == {"", *COLOURS}


@pytest.mark.parametrize("share", [field.name for field in fields(Mix)])
def test_a_share_of_nought_draws_none_of_it(share: str) -> None:
    everything = {field.name: 0.3 for field in fields(Mix)}
    rng, mix = random.Random(2), Mix(**{**everything, share: 0.0})
    scenes = [any_scene(rng, mix) for _ in range(800)]
    found = {
        "pair": any(scene.arrangement in ("beside", "above") for scene in scenes),
        "some": any(scene.arrangement == "some" for scene in scenes),
        "position": any(thing.position for scene in scenes for thing in scene.things),
        "size": any(thing.size for scene in scenes for thing in scene.things),
        "gradient": any(len(scene.background) == 2 for scene in scenes),
        "setting": any(scene.setting for scene in scenes),
        "paint": any(thing.colour for scene in scenes for thing in scene.things),
        "free": any(not scene.is_snapped for scene in scenes),
    }
    assert [name for name, is_there in found.items() if not is_there] == [share]


def test_nothing_is_painted_as_it_is_or_as_what_stands_behind_it() -> None:
    rng = random.Random(3)
    for _ in range(SCENES):
        scene = any_scene(rng, Mix(pair=0.3, some=0.3, gradient=0.3, paint=1.0))
        for thing in scene.things:
            assert thing.colour not in ("", BY_NAME[thing.name].colour, *scene.background)


def test_sizes_do_not_overlap() -> None:
    rng = random.Random(4)
    sides = {
        size: [place(rng, "apple", "", size).side for _ in range(200)]
        for size in ("small", "medium", "large")
    }
    assert max(sides["small"]) < min(sides["medium"]) < max(sides["medium"]) < min(sides["large"])
