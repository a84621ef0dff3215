"""The finder's rows, boxes and crops against drawings whose things are known."""

import random

import numpy as np
import pytest
from PIL import Image, ImageFilter

from tests.training.blocks import COLOUR_OF, blocks, picture_of, square
from training import finding
from training.compositions import COLOURS, SETTINGS, Mix, Scene, any_scene
from training.drawing import draw, paint_background, paint_setting, pixels_of
from training.finding import Box, background_rows, crop, find, foreground, ink


def found(pixels: np.ndarray) -> list[Box]:
    return find(foreground(pixels, background_rows(pixels)))


def noisy(pixels: np.ndarray) -> np.ndarray:
    grain = np.random.default_rng(0).normal(0, 6, pixels.shape)
    return (pixels + grain).clip(0, 255).astype(np.uint8)


def of_border(pixels: np.ndarray) -> np.ndarray:
    """A naive reading of the rows: the left border alone."""
    rows: np.ndarray = np.median(pixels[:, :5], 1)
    return rows


def test_rows_are_those_of_the_gradient_whatever_stands_before_it() -> None:
    things = (square("cat", 0.2, 0.3, 0.4), square("dog", 0.8, 0.6, 0.4))
    pixels = picture_of(*things, background=("blue", "white"))
    wanted = paint_background(("blue", "white"), 1, 256)[:, 0]
    assert np.abs(background_rows(pixels) - wanted).max() <= 2
    assert np.abs(of_border(pixels) - wanted).max() > 50


def test_a_soft_edge_leads_no_row_astray() -> None:
    """As a decoder blurs a thing at the border: every step down into it is small."""
    pixels = picture_of(square("cat", 0.1, 0.5, 0.4), background=("teal",))
    blurred = np.asarray(Image.fromarray(pixels).filter(ImageFilter.GaussianBlur(8)))
    assert np.abs(background_rows(blurred) - np.array(COLOURS["teal"])).max() <= finding.OFF_TREND


def test_a_wave_that_lies_a_pixel_higher_elsewhere_is_no_thing() -> None:
    sea = draw(Scene((), (), "sea"), blocks()).copy()
    sea[:, 30:] = np.roll(sea[:, 30:], -2, axis=0)
    sea[-4:] = sea[-5]
    assert found(sea) == []


@pytest.mark.parametrize("setting", SETTINGS)
def test_rows_of_a_setting_keep_its_horizon(setting: str) -> None:
    scene = Scene((square("car", 0.5, 0.5, 0.6),), (), setting)
    rows = background_rows(draw(scene, blocks()))
    assert np.abs(rows - paint_setting(setting, 256, 256)[:, 0]).max() <= 12


def test_rows_are_read_between_two_things_that_hide_both_borders() -> None:
    things = (square("cat", 0.0, 0.5, 0.2), square("dog", 1.0, 0.5, 0.2))
    rows = background_rows(picture_of(*things, background=("teal",)))
    assert np.abs(rows - np.array(COLOURS["teal"])).max() <= 2


def test_boxes_are_those_of_the_drawing() -> None:
    rng, sprites, mix, tried = random.Random(0), blocks(), Mix(gradient=0.5, free=1.0), 0
    while tried < 25:
        scene = any_scene(rng, mix)
        rows = paint_background(scene.background, 1, 256)
        if np.abs(rows - np.array(COLOUR_OF[scene.things[0].name])).max(-1).min() < 40:
            continue  # somewhere the block has nearly the background's colour
        left, top, side = pixels_of(scene.things[0], scene, 256, 256)
        (box,) = found(draw(scene, sprites))
        assert max(abs(box.left - left), abs(box.top - top), abs(box.side - side)) <= 4
        tried += 1


def test_noise_and_stars_are_nothing() -> None:
    sky = noisy(draw(Scene((), (), "night sky"), blocks()))
    assert found(sky) == []
    assert len(found(noisy(picture_of(square("cat", 0.5, 0.5, 0.3))))) == 1


def test_every_thing_apart_is_found_the_largest_first() -> None:
    things = (square("cat", 0.2, 0.2, 0.2), square("dog", 0.7, 0.7, 0.4))
    boxes = found(picture_of(*things))
    assert [round(box.side / 256, 1) for box in boxes] == [0.4, 0.2]


def test_a_crumb_belongs_to_what_it_is_near() -> None:
    pixels = picture_of(square("cat", 0.5, 0.6, 0.4)).copy()
    pixels[80:94, 120:136] = (10, 10, 10)  # 9 pixels above the block
    assert len(found(pixels)) == 1
    pixels[10:30, 10:30] = (10, 10, 10)
    assert len(found(pixels)) == 2


def test_what_lies_within_a_box_is_its_piece() -> None:
    pixels = picture_of(square("cat", 0.5, 0.5, 0.8)).copy()
    pixels[70:186, 70:186] = 250  # a hole down to the background, with an eye in it
    pixels[90:166, 90:166] = (10, 10, 10)
    assert len(found(pixels)) == 1


def test_how_much_is_a_difference_follows_from_the_edge() -> None:
    pixels = np.full((128, 128, 3), 100, np.uint8)
    pixels[40:90, 40:90] = 120
    rows = background_rows(pixels)
    assert foreground(pixels, rows).sum() == 50 * 50
    uneven = pixels.copy()
    uneven[::2, ::2] += 13  # all over, the edge included
    assert foreground(uneven, background_rows(uneven)).mean() < 0.3


def test_ink_draws_a_box_in() -> None:
    mask = np.zeros((100, 100), bool)
    mask[20:60, 30:50] = True
    assert ink(mask, Box(0, 0, 100, 100)) == Box(30, 20, 50, 60)
    assert ink(mask, Box(0, 0, 10, 10)) is None


def test_a_crop_is_centred_and_goes_on_beyond_the_picture() -> None:
    pixels = picture_of(square("cat", 0.1, 0.5, 0.2), background=("teal",))
    box = found(pixels)[0]
    cut = crop(pixels, box, 2.0, 64)
    assert cut.shape == (64, 64, 3)
    inner = foreground(cut, np.broadcast_to(COLOURS["teal"], (64, 3)))
    ys, xs = np.nonzero(inner)
    assert abs(ys.mean() - 31.5) < 2 and xs.min() < 2  # the border's pixels, the cat's, go on


def test_boxes_know_their_distance() -> None:
    box = Box(0, 0, 10, 10)
    assert box.distance(Box(15, 2, 20, 8)) == 5 and box.distance(Box(2, 30, 5, 40)) == 20
    assert box.distance(Box(5, 5, 20, 20)) == 0
    assert box.holds(Box(2, 2, 9, 10)) and not box.holds(Box(2, 2, 9, 11))


def test_the_way_down_is_the_cheapest_of_all() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        strips = rng.integers(0, 255, (5, 3, 3)).astype(float)
        ways = [[number // 3**row % 3 for row in range(5)] for number in range(3**5)]
        ours = finding._way_down(strips).tolist()
        assert _cost(strips, ours) == pytest.approx(min(_cost(strips, way) for way in ways))


def _cost(strips: np.ndarray, way: list[int]) -> float:
    colours = strips[range(len(way)), way]
    changes = np.abs(np.diff(colours, axis=0)).sum(-1)
    return float((changes - finding.NOISE).clip(0).sum() + finding.HIDDEN * way.count(1))
