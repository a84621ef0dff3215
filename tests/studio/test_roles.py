"""Which pictures a model starts from and which it looks at, and what guidance is on it."""

from dataclasses import replace
from typing import Any

import pytest

from pipelines.specs import DEV, FLUX2_DEV, KLEINS, KONTEXT, ModelSpec
from studio.errors import BadRequest
from studio.request import Draft, Notice, PictureRequest
from studio.roles import Roles, fitted_sizes, reference_size, roles_of
from studio.settle import settle

KLEIN, KLEIN_BASE = KLEINS[:2]


def plan(spec: ModelSpec, **values: Any) -> tuple[PictureRequest, tuple[Notice, ...]]:
    return settle(Draft("a frog", **values), spec, max_images=4)


@pytest.mark.parametrize(
    "spec, count, strength, roles",
    [
        (DEV, 0, None, Roles()),
        (DEV, 1, None, Roles(True, 0)),
        (DEV, 1, 0.4, Roles(True, 0)),
        (KONTEXT, 1, None, Roles(False, 1)),
        (KONTEXT, 1, 0.4, Roles(False, 1)),
        (FLUX2_DEV, 1, None, Roles(False, 1)),
        (FLUX2_DEV, 6, None, Roles(False, 6)),
        (FLUX2_DEV, 1, 0.4, Roles(True, 0)),
        (FLUX2_DEV, 7, 0.4, Roles(True, 6)),
        (KLEIN, 4, None, Roles(False, 4)),
    ],
)
def test_roles(spec, count, strength, roles):
    assert roles_of(count, spec, strength) == roles


@pytest.mark.parametrize(
    "spec, count, strength, said",
    [
        (DEV, 2, None, "starts from one"),
        (DEV, 2, 0.4, "starts from one"),
        (KONTEXT, 2, None, "looks at 1 at most"),
        (FLUX2_DEV, 7, None, "looks at 6 at most, beside one to start from"),
        (KLEIN, 6, 0.4, "looks at 4 at most"),
    ],
)
def test_more_pictures_than_a_model_takes_are_refused(spec, count, strength, said):
    with pytest.raises(BadRequest, match=said) as raised:
        roles_of(count, spec, strength)
    assert raised.value.param == "input"


def test_a_request_says_what_its_pictures_are():
    request, notices = plan(FLUX2_DEV, picture_sizes=((640, 480), (100, 100)))
    assert (request.has_source, request.references, request.strength) == (False, 2, 1.0)
    assert request.steps_to_run == request.steps and notices == ()
    request, _ = plan(FLUX2_DEV, picture_sizes=((640, 480), (100, 100)), strength=0.5)
    assert (request.has_source, request.references, request.strength) == (True, 1, 0.5)
    assert request.steps_to_run == 14


def test_strength_on_a_model_that_only_looks_is_said_to_do_nothing():
    _, notices = plan(KONTEXT, picture_sizes=((640, 480),), strength=0.5)
    assert [(notice.code, notice.param) for notice in notices] == [
        ("option_without_effect", "strength")
    ]
    assert "starts from none" in notices[0].message


@pytest.mark.parametrize(
    "spec, size, expected",
    [
        (FLUX2_DEV, (640, 480), (640, 480)),
        (FLUX2_DEV, (650, 490), (640, 480)),
        (FLUX2_DEV, (4096, 2048), (1440, 720)),  # 1448 x 724 floored
        (FLUX2_DEV, (32, 48), (64, 96)),
        (KONTEXT, (512, 512), (1024, 1024)),
        (KONTEXT, (4096, 2048), (1440, 720)),
    ],
)
def test_a_reference_keeps_its_shape_within_the_native_area(spec, size, expected):
    assert reference_size(spec, size) == expected


@pytest.mark.parametrize("size", [(1, 10_000), (10_000, 1), (5000, 3), (64, 64), (4001, 3999)])
@pytest.mark.parametrize("spec", [FLUX2_DEV, KONTEXT])
def test_a_reference_of_any_shape_has_sides_on_the_grid(spec, size):
    width, height = reference_size(spec, size)
    assert min(width, height) >= 64 and (width % 16, height % 16) == (0, 0)
    assert width * height <= spec.native_width * spec.native_height
    assert max(width, height) <= 8.5 * min(width, height)


def test_the_start_has_the_size_of_the_picture_that_is_made():
    sizes = [(640, 480), (650, 490)]
    assert fitted_sizes(sizes, Roles(True, 1), (512, 512), FLUX2_DEV) == [(512, 512), (640, 480)]
    assert fitted_sizes(sizes, Roles(False, 2), (512, 512), FLUX2_DEV) == [(640, 480)] * 2


# Guidance where it is true classifier-free guidance


def test_guidance_is_true_cfg_against_the_empty_prompt_on_a_base_model():
    request, notices = plan(KLEIN_BASE)
    assert (request.guidance_scale, request.true_cfg_scale) == (4.0, 4.0)
    assert request.negative_prompt == "" and notices == ()
    request, _ = plan(KLEIN_BASE, guidance_scale=2.5, negative_prompt="rain")
    assert (request.true_cfg_scale, request.negative_prompt) == (2.5, "rain")
    assert plan(KLEIN_BASE, true_cfg_scale=3.0)[0].guidance_scale == 3.0


@pytest.mark.parametrize("guidance", [0.0, 0.5, 1.0])
def test_guidance_of_one_or_less_is_one_forward(guidance):
    request, notices = plan(KLEIN_BASE, guidance_scale=guidance, negative_prompt="rain")
    assert request.true_cfg_scale == 1.0
    assert [notice.param for notice in notices] == ["negative_prompt"]


def test_two_names_for_one_thing_are_said():
    request, notices = plan(KLEIN_BASE, guidance_scale=2.0, true_cfg_scale=3.0)
    assert request.true_cfg_scale == 2.0
    assert [notice.param for notice in notices] == ["true_cfg_scale"]


def test_a_distilled_model_takes_no_guidance_but_true_cfg():
    request, notices = plan(KLEIN, guidance_scale=3.0)
    assert request.negative_prompt is None and [n.param for n in notices] == ["guidance_scale"]
    request, notices = plan(KLEIN, negative_prompt="rain", true_cfg_scale=2.0)
    assert (request.negative_prompt, request.true_cfg_scale, notices) == ("rain", 2.0, ())


def test_requests_that_were_kept_before_there_were_references_have_none():
    request, _ = plan(DEV, picture_sizes=((64, 64),))
    kept = request.to_dict()
    del kept["references"]
    assert PictureRequest.from_dict(kept) == replace(request, references=0)


def test_a_second_prompt_on_a_model_with_one_encoder_is_said_to_do_nothing():
    request, notices = plan(FLUX2_DEV, secondary_prompt="a star")
    assert request.secondary_prompt is None
    assert [notice.param for notice in notices] == ["secondary_prompt"]
    assert plan(DEV, secondary_prompt="a star")[0].secondary_prompt == "a star"
