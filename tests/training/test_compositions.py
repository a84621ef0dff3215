"""A drawing shows what its scene says. The icons here are a few shapes of our own."""

import random

import numpy as np
import pytest
from PIL import Image

from training.compositions import COLOURS, POSITIONS, Scene, draw, paint_background, place
from training.emoji import SPRITE_PX, centre, rasterise
from training.evaluate import background_colour, ink_box, is_in_place

SVG = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">{}</svg>'
SHAPES = {
    "apple": '<circle cx="16" cy="16" r="9" fill="#e01030"/>',
    "car": '<rect x="4" y="12" width="24" height="9" fill="#101820"/>',
}


@pytest.fixture(scope="module")
def sprites() -> dict[str, Image.Image]:
    return {name: centre(rasterise(SVG.format(body))) for name, body in SHAPES.items()}


def single(name: str, colours: tuple[str, ...], position: str = "", size: str = "") -> Scene:
    return Scene((place(random.Random(1), name, position, size),), colours)


def test_a_sprite_fills_its_square(sprites: dict[str, Image.Image]) -> None:
    box = sprites["car"].getchannel("A").getbbox()
    assert box is not None and box[0] <= 1 and box[2] >= SPRITE_PX - 1


@pytest.mark.parametrize("colour", sorted(COLOURS))
def test_the_background_is_the_named_colour(colour: str, sprites: dict[str, Image.Image]) -> None:
    assert background_colour(draw(single("apple", (colour,)), sprites)) == colour


def test_a_gradient_runs_from_the_first_colour_down_to_the_second() -> None:
    picture = paint_background(("red", "blue"), 32, 64)
    assert tuple(picture[0, 0]) == COLOURS["red"]
    assert tuple(picture[-1, -1]) == COLOURS["blue"]


@pytest.mark.parametrize("position", sorted(POSITIONS))
def test_the_object_stands_where_it_should(position: str, sprites: dict[str, Image.Image]) -> None:
    picture = Image.fromarray(draw(single("apple", ("white",), position), sprites))
    assert is_in_place(picture, "" if position == "centre" else position)
    wrong = "right" if position == "left" else "left"
    assert not is_in_place(picture, wrong)


def test_sizes_grow(sprites: dict[str, Image.Image]) -> None:
    widths = []
    for size in ("small", "medium", "large"):
        box = ink_box(draw(single("apple", ("white",), size=size), sprites))
        assert box is not None
        widths.append(box[2] - box[0])
    assert widths == sorted(widths) and widths[2] > 2 * widths[0]


@pytest.mark.parametrize("size", [(256, 256), (352, 192), (128, 128)])
def test_any_size_is_drawn(size: tuple[int, int], sprites: dict[str, Image.Image]) -> None:
    picture = draw(single("car", ("teal",)), sprites, *size)
    assert picture.shape == (size[1], size[0], 3) and picture.dtype == np.uint8
