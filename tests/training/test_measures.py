"""The rules on pixels against drawings, and SSIM against its definition."""

import math
import random

import numpy as np
import pytest

from tests.training.blocks import blocks, square
from training import measures
from training.compositions import COLOURS, POSITIONS, SETTINGS, SIZES, Scene, place
from training.drawing import draw, paint_background, paint_setting
from training.emoji import PAINTABLE
from training.finding import Box
from training.judge import ink_boxes
from training.measures import (
    arrangement_of,
    background_of,
    colour_shift,
    luminance,
    paint_of,
    place_of,
    size_of,
    ssim,
)

HEIGHTS = (128, 256, 448)  # the page's smallest, the native one, and one that cuts bands unevenly


def noise(shape: tuple[int, ...], deviation: float) -> np.ndarray:
    return np.random.default_rng(1).normal(0, deviation, shape)


@pytest.mark.parametrize("height", HEIGHTS)
def test_every_background_is_told_from_every_other(height: int) -> None:
    colours = sorted(COLOURS)
    asked: list[tuple[str, ...]] = [(colour,) for colour in colours]
    asked += [(a, b) for a in colours for b in colours if a != b]
    for background in asked:
        rows = paint_background(background, 1, height)[:, 0]
        assert background_of(rows + noise(rows.shape, 4)) == background
    for setting in SETTINGS:
        rows = paint_setting(setting, 1, height)[:, 0]
        assert background_of(rows + noise(rows.shape, 4)) == (setting,)


def test_a_gradient_upside_down_is_another_background() -> None:
    rows = paint_background(("red", "blue"), 1, 256)[:, 0]
    assert background_of(rows[::-1]) == ("blue", "red")


@pytest.mark.parametrize("size", [(256, 256), (352, 192), (192, 352)])
@pytest.mark.parametrize("position", [name for name in POSITIONS if name])
def test_a_thing_at_a_named_place_is_told_so(position: str, size: tuple[int, int]) -> None:
    rng = random.Random(0)
    for is_snapped in (True, False) * 20:
        scene = Scene((place(rng, "cat", position, ""),), ("white",), is_snapped=is_snapped)
        (box,) = ink_boxes(scene, blocks(), *size)
        assert place_of(box, *size) == position


@pytest.mark.parametrize("asked", list(SIZES))
def test_a_size_is_told_from_its_neighbours(asked: str) -> None:
    rng = random.Random(0)
    for is_snapped in (True, False) * 20:
        scene = Scene((place(rng, "cat", "", asked),), ("white",), is_snapped=is_snapped)
        (box,) = ink_boxes(scene, blocks(), 256, 256)
        told = size_of(box, 256, 256)
        assert told == asked or (not asked and told in ("medium", "large"))


def test_the_longer_distance_says_how_two_stand() -> None:
    box = Box(100, 100, 120, 120)
    assert arrangement_of(box, Box(180, 110, 200, 130)) == "left of"
    assert arrangement_of(box, Box(0, 110, 20, 130)) == "right of"
    assert arrangement_of(box, Box(90, 200, 110, 220)) == "above"
    assert arrangement_of(box, Box(110, 0, 130, 20)) == "below"


def test_a_paint_is_read_from_the_painted_thing() -> None:
    rng, sprites = random.Random(2), blocks()
    names = [emoji.name for emoji in PAINTABLE]
    for colour in ("", *COLOURS):
        thing = square(rng.choice(names), 0.5, 0.5, 0.6, colour=colour)
        scene = Scene((thing,), ("white",), is_snapped=False)
        pixels = draw(scene, sprites) + noise((256, 256, 3), 5)
        pixels = pixels.clip(0, 255).astype(np.uint8)
        (box,) = ink_boxes(scene, sprites, 256, 256)
        natural = next(e.colour for e in PAINTABLE if e.name == thing.name)
        assert paint_of(pixels, box, thing.name, sprites) == (colour if colour != natural else "")


def test_ssim_of_even_pictures_is_its_closed_form() -> None:
    """Without variance the second factor is 1: (2ab + c1) / (a² + b² + c1)."""
    first, second = (np.full((32, 40, 3), value, np.uint8) for value in (100, 140))
    c1 = (0.01 * 255) ** 2
    wanted = (2 * 100 * 140 + c1) / (100**2 + 140**2 + c1)
    assert ssim(first, second) == pytest.approx(wanted, abs=1e-9)


def test_ssim_equals_its_definition_window_by_window() -> None:
    rng = np.random.default_rng(0)
    first = rng.integers(0, 255, (16, 14, 3)).astype(np.uint8)
    second = (first * 0.6 + rng.integers(0, 90, first.shape)).astype(np.uint8)
    assert ssim(first, second) == pytest.approx(by_windows(first, second, 1.5), abs=1e-9)
    flat = by_windows(first, second, 1e6)  # a broken one: every pixel of a window weighs the same
    assert abs(ssim(first, second) - flat) > 1e-3


def by_windows(first: np.ndarray, second: np.ndarray, deviation: float) -> float:
    """Wang et al. 2004, equations 6 to 13, in loops."""
    x, y = luminance(first), luminance(second)
    weights = np.array(
        [
            [math.exp(-((i - 5) ** 2 + (j - 5) ** 2) / (2 * deviation**2)) for j in range(11)]
            for i in range(11)
        ]
    )
    weights /= weights.sum()
    c1, c2, values = (0.01 * 255) ** 2, (0.03 * 255) ** 2, []
    for top in range(x.shape[0] - 10):
        for left in range(x.shape[1] - 10):
            a, b = (p[top : top + 11, left : left + 11] for p in (x, y))
            mean_a, mean_b = (weights * a).sum(), (weights * b).sum()
            var_a = (weights * (a - mean_a) ** 2).sum()
            var_b = (weights * (b - mean_b) ** 2).sum()
            cov = (weights * (a - mean_a) * (b - mean_b)).sum()
            light = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
            values.append(light * (2 * cov + c2) / (var_a + var_b + c2))
    return float(np.mean(values))


def test_ssim_falls_with_noise_and_is_one_for_equals() -> None:
    picture = np.asarray(blocks().sized("cat", "", 64))[..., :3]
    assert ssim(picture, picture) == pytest.approx(1)
    noisy = [(picture + noise(picture.shape, d)).clip(0, 255).astype(np.uint8) for d in (5, 20)]
    assert 1 > ssim(picture, noisy[0]) > ssim(picture, noisy[1])


def test_a_colour_shift_is_not_hidden_by_its_opposite_elsewhere() -> None:
    grey = np.full((64, 64, 3), 100, np.uint8)
    shifted = grey.copy()
    shifted[:32, :, 0] += 20
    shifted[32:, :, 0] -= 20
    assert colour_shift(grey, grey) == 0
    assert colour_shift(grey, shifted) == 20
    assert shifted.mean() == grey.mean()


def test_the_thresholds_lie_between_the_drawn_sizes() -> None:
    assert SIZES["small"][1] < measures.SMALL < SIZES["medium"][0]
    assert SIZES["medium"][1] < measures.LARGE < SIZES["large"][0]
