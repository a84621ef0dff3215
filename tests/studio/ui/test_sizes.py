"""Every size that the page offers can be made, and comes back as the same choice."""

from dataclasses import replace

import pytest

from pipelines.specs import DEV, ModelSpec
from studio.request import Draft
from studio.settle import settle
from studio.ui.sizes import (
    CUSTOM,
    MATCH,
    RATIOS,
    STANDARD,
    areas,
    largest_side,
    shape_of,
    sides,
    size_of,
    smallest_side,
)
from tests.studio.conftest import SPEC

SMALL = replace(  # its native sides are its smallest: narrow shapes must grow
    SPEC, native_width=128, native_height=128, min_side_px=128, max_pixels=256 * 256
)
COARSE = replace(SPEC, native_width=512, native_height=512, size_multiple=64, max_pixels=600 * 600)
SPECS = [DEV, SPEC, SMALL, COARSE]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.native_width}px")
def test_every_offered_size_is_made_as_it_is(spec: ModelSpec) -> None:
    for area in areas(spec):
        for shape in RATIOS:
            size = size_of(shape, area.key, spec, None)
            request, notices = settle(Draft("x", width=size[0], height=size[1]), spec, max_images=1)
            assert (request.width, request.height) == size
            assert not notices


@pytest.mark.parametrize("spec", [DEV, COARSE])
def test_a_square_at_standard_size_is_the_native_one(spec: ModelSpec) -> None:
    assert size_of("1:1", STANDARD, spec, None) == (spec.native_width, spec.native_height)


def test_ratios_are_close_to_their_name() -> None:
    for name, ratio in RATIOS.items():
        width, height = size_of(name, STANDARD, DEV, None)
        assert width / height == pytest.approx(ratio, rel=0.02), name


def test_a_size_comes_back_as_the_choice_that_makes_it() -> None:
    for area in areas(DEV):
        for shape in RATIOS:
            size = size_of(shape, area.key, DEV, None)
            assert size_of(*shape_of(*size, DEV), DEV, None) == size
    assert shape_of(1000, 1000, DEV) == (CUSTOM, STANDARD)


def test_match_follows_the_source() -> None:
    width, height = size_of(MATCH, STANDARD, DEV, (3000, 2000))
    assert width / height == pytest.approx(1.5, rel=0.02)
    assert size_of(MATCH, "large", DEV, (3000, 2000))[0] > width


def test_extreme_ratios_stay_within_the_limits() -> None:
    for spec in SPECS:
        for ratio in (0.01, 100.0):
            width, height = sides(ratio, spec.native_width * spec.native_height, spec)
            assert min(width, height) >= smallest_side(spec)
            assert width * height <= spec.max_pixels
            assert max(width, height) <= largest_side(spec)
