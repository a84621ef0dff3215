"""A drawing shows what its scene says. The icons here are a few shapes of our own."""

import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from training.compositions import COLOURS, POSITIONS, SETTINGS, Mix, Scene, any_scene, place
from training.drawing import (
    GRID_PX,
    ICON,
    LARGE,
    MEDIUM,
    NUMBERS,
    PARTS,
    SMALL,
    Sprites,
    cells_of,
    draw,
    paint_background,
    paint_setting,
    parts_of,
    pixels_of,
)
from training.emoji import SPRITE_PX, centre, rasterise
from training.recolour import recolour

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">{}</svg>'
SHAPES = {
    "apple": '<circle cx="16" cy="16" r="9" fill="#e01030"/>'
    '<rect x="14" y="4" width="4" height="4" fill="#30a040"/>',
    "car": '<rect x="4" y="12" width="24" height="9" fill="#101820"/>',
}
SIZES = [(256, 256), (352, 192), (192, 352), (128, 256), (480, 256)]


@pytest.fixture(scope="module")
def sprites() -> Sprites:
    return Sprites({name: centre(rasterise(SVG.format(body))) for name, body in SHAPES.items()})


def single(name: str, colours: tuple[str, ...], position: str = "", size: str = "") -> Scene:
    return Scene((place(random.Random(1), name, position, size),), colours)


def ink(picture: np.ndarray) -> np.ndarray:
    """Where the picture is not the colour of its corner; the test's own rule."""
    corner = picture[0, 0].astype(int)
    found: np.ndarray = np.abs(picture.astype(int) - corner).max(-1) > 20
    return found


def test_a_sprite_fills_its_square() -> None:
    box = centre(rasterise(SVG.format(SHAPES["car"]))).getchannel("A").getbbox()
    assert box is not None and box[0] <= 1 and box[2] >= SPRITE_PX - 1


@pytest.mark.parametrize("colour", sorted(COLOURS))
def test_the_background_is_the_named_colour(colour: str, sprites: Sprites) -> None:
    picture = draw(single("apple", (colour,)), sprites)
    assert tuple(picture[0, 0]) == tuple(picture[-1, -1]) == COLOURS[colour]


def test_a_gradient_runs_from_the_first_colour_down_to_the_second() -> None:
    picture = paint_background(("red", "blue"), 32, 64)
    assert tuple(picture[0, 0]) == COLOURS["red"]
    assert tuple(picture[-1, -1]) == COLOURS["blue"]


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("size", SIZES)
def test_a_setting_fills_any_size_and_looks_like_no_other(
    setting: str, size: tuple[int, int]
) -> None:
    picture = paint_setting(setting, *size)
    assert picture.shape == (size[1], size[0], 3) and picture.dtype == np.uint8
    others = [paint_setting(other, *size) for other in SETTINGS if other != setting]
    assert all(np.abs(picture.astype(int) - other).mean() > 8 for other in others)


@pytest.mark.parametrize("position", sorted(POSITIONS))
def test_the_object_stands_where_it_should(position: str, sprites: Sprites) -> None:
    rows, columns = np.nonzero(ink(draw(single("apple", ("white",), position), sprites)))
    x, y = columns.mean() / 256, rows.mean() / 256
    assert (x < 0.4) == ("left" in position) and (x > 0.6) == ("right" in position)
    assert (y < 0.4) == ("top" in position) and (y > 0.6) == ("bottom" in position)


@pytest.mark.parametrize("size", SIZES)
def test_snapped_things_lie_on_the_tokens_grid_inside_the_picture(size: tuple[int, int]) -> None:
    rng = random.Random(5)
    for position in POSITIONS:
        for word in ("", "small", "large"):
            scene = Scene((place(rng, "apple", position, word),), ("white",))
            left, top, side = pixels_of(scene.things[0], scene, *size)
            cells = cells_of(scene.things[0], scene, size[0] // GRID_PX, size[1] // GRID_PX)
            assert cells in (SMALL, MEDIUM, LARGE) and side == round(ICON * cells * GRID_PX)
            margin = (cells * GRID_PX - side) // 2
            assert (left - margin) % GRID_PX == (top - margin) % GRID_PX == 0
            assert left >= 0 and top >= 0 and left + side <= size[0] and top + side <= size[1]


@pytest.mark.parametrize("size", [*SIZES, (128, 128), (160, 224), (192, 192), (224, 288)])
@pytest.mark.parametrize("position", [name for name in POSITIONS if name])
def test_a_place_is_drawn_at_every_size(size: tuple[int, int], position: str) -> None:
    """The centre lies off the picture's by a tenth of its side, or not at all."""
    for seed in range(20):
        thing = place(random.Random(seed), "apple", position, "")
        left, top, side = pixels_of(thing, Scene((thing,), ("white",)), *size)
        x, y = (
            (start + side / 2) / room - 0.5 for start, room in zip((left, top), size, strict=True)
        )
        said = {"left": x < -0.11, "right": x > 0.11, "top": y < -0.11, "bottom": y > 0.11}
        assert [word for word, is_so in said.items() if is_so] == [
            word for word in said if word in position
        ]


@pytest.mark.parametrize("size", SIZES)
def test_several_things_on_the_grid_do_not_touch(size: tuple[int, int]) -> None:
    rng, tried = random.Random(6), Mix(pair=0.5, some=0.5)
    for _ in range(60):
        scene = any_scene(rng, tried)
        boxes = [pixels_of(thing, scene, *size) for thing in scene.things]
        for (x, y, side), (x2, y2, side2) in combinations(boxes, 2):
            assert max(x2 - x - side, x - x2 - side2, y2 - y - side, y - y2 - side2) > 0


def test_a_word_of_size_decides_it_and_no_word_leaves_two() -> None:
    rng = random.Random(7)
    sides = {
        word: {
            cells_of(scene.things[0], scene, 8, 8)
            for scene in (Scene((place(rng, "apple", "", word),), ("white",)) for _ in range(40))
        }
        for word in ("", "small", "medium", "large")
    }
    assert sides == {"": {MEDIUM, LARGE}, "small": {SMALL}, "medium": {MEDIUM}, "large": {LARGE}}


@pytest.mark.parametrize("size", SIZES)
def test_the_parts_cover_what_is_drawn_and_number_it(
    size: tuple[int, int], sprites: Sprites
) -> None:
    rng = random.Random(8)
    for position in POSITIONS:
        scene = Scene((place(rng, "car", position, ""),), ("white",))
        parts = parts_of(scene, *size).reshape(size[1] // GRID_PX, size[0] // GRID_PX, 2)
        drawn = ink(draw(scene, sprites, *size))
        shown = drawn.reshape(len(parts), GRID_PX, -1, GRID_PX).any((1, 3))
        assert not (shown & (parts[..., 0] == 0)).any()
        assert set(parts[..., 0].flat) <= {0, 1 + NUMBERS["car"]}
        numbers = parts[..., 1][parts[..., 1] > 0]
        cells = cells_of(scene.things[0], scene, size[0] // GRID_PX, size[1] // GRID_PX)
        assert list(numbers) == list(range(PARTS[cells], PARTS[cells] + cells**2))


def test_free_things_lie_anywhere(sprites: Sprites) -> None:
    scene = replace(single("apple", ("white",)), is_snapped=False)
    things = [place(random.Random(i), "apple", "", "") for i in range(40)]
    lefts = {pixels_of(thing, scene, 256, 256)[0] for thing in things}
    assert len({left % GRID_PX for left in lefts}) > 10
    assert not np.array_equal(draw(scene, sprites), draw(replace(scene, is_snapped=True), sprites))


def test_sizes_grow(sprites: Sprites) -> None:
    widths = []
    for size in ("small", "medium", "large"):
        columns = np.nonzero(ink(draw(single("apple", ("white",), size=size), sprites)))[1]
        widths.append(columns.max() - columns.min())
    assert widths == sorted(widths) and widths[2] > 2 * widths[0]


@pytest.mark.parametrize("size", SIZES)
def test_any_size_is_drawn(size: tuple[int, int], sprites: Sprites) -> None:
    picture = draw(single("car", ("teal",)), sprites, *size)
    assert picture.shape == (size[1], size[0], 3) and picture.dtype == np.uint8


@pytest.mark.parametrize("colour", sorted(COLOURS))
def test_paint_takes_the_main_hue_and_leaves_the_leaf(colour: str) -> None:
    sprite = rasterise(SVG.format(SHAPES["apple"]))
    painted = np.asarray(recolour(sprite, COLOURS[colour])).astype(int)
    body, leaf = painted[128, 128], painted[44, 128]
    assert np.abs(body[:3] - COLOURS[colour]).max() <= 3
    assert np.abs(leaf - np.asarray(sprite)[44, 128]).max() <= 3
    assert np.array_equal(painted[..., 3], np.asarray(sprite)[..., 3])
