"""What is refused, what is changed with a word, and what is filled in."""

import json
from dataclasses import replace
from typing import Any

import pytest

from pipelines.cache_rules import OFF, PRESETS, resolve
from studio.errors import BadRequest
from studio.request import SEED_LIMIT, Draft, PictureRequest
from studio.settle import default_size, settle
from studio.step_cache import CACHE_FIELDS, CacheChoice, CacheSetting
from tests.studio.conftest import SPEC


def plan(**values: Any) -> tuple[PictureRequest, set[tuple[str, str | None]]]:
    request, notices = settle(Draft(**{"prompt": "an apple"} | values), SPEC, max_images=4)
    return request, {(notice.code, notice.param) for notice in notices}


def refused(**values: Any) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        plan(**values)
    return caught.value


def test_defaults_come_from_the_model() -> None:
    request, notices = plan()
    assert (request.width, request.height, request.steps) == (256, 192, 6)
    assert request.guidance_scale == 3.0
    assert 0 <= request.seed < SEED_LIMIT
    assert not notices


def test_two_requests_draw_different_seeds() -> None:
    assert len({plan()[0].seed for _ in range(8)}) > 1


@pytest.mark.parametrize("side", [0, -1, 7, 120, 129, 10**9])
@pytest.mark.parametrize("name", ["width", "height"])
def test_impossible_sides_are_refused_and_named(name: str, side: int) -> None:
    error = refused(**{"width": 256, "height": 256, name: side})
    assert error.param in (name, "width")
    assert str(side) in error.message or error.code == "size_too_large"


def test_the_models_own_minimum_counts() -> None:
    with pytest.raises(BadRequest, match="at least 192"):
        settle(Draft("x", width=184, height=256), replace(SPEC, min_side_px=192), max_images=1)


def test_a_side_off_the_grid_is_floored_and_said() -> None:
    request, notices = plan(width=264, height=256)
    assert (request.width, request.height) == (256, 256)
    assert notices == {("size_floored", "width")}


def test_pixel_limit() -> None:
    assert refused(width=1024, height=512).code == "size_too_large"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("steps", 51),
        ("strength", 0.0),
        ("strength", 2.0),
        ("strength", float("nan")),
        ("guidance_scale", float("nan")),
        ("guidance_scale", -1.0),
        ("guidance_scale", 31.0),
        ("true_cfg_scale", 0.0),
        ("true_cfg_scale", float("inf")),
        ("seed", -1),
        ("seed", SEED_LIMIT),
        ("strength", 1e-17),
        ("output_format", "tiff"),
        ("prompt", "  "),
        ("prompt", "x" * 100_000),
        ("prompt", "half of an emoji \ud83c"),
        ("negative_prompt", "\udfff"),
    ],
)
def test_values_out_of_range_are_refused_and_named(name: str, value: Any) -> None:
    source = {"picture_sizes": ((256, 256),)} if name == "strength" else {}
    assert refused(**{name: value}, **source).param == name


def test_numbers_with_more_digits_than_python_prints_are_refused() -> None:
    for name in ("seed", "steps", "width", "height", "count"):
        assert refused(**{name: 8 * 10**5000}).param in (name, "num_images")


@pytest.mark.parametrize(("count", "quality"), [(0, 90), (5, 90), (1, 0), (1, 101)])
def test_count_and_quality_limits(count: int, quality: int) -> None:
    assert refused(count=count, quality=quality).param in ("num_images", "output_quality")


def test_options_that_cannot_act_are_named() -> None:
    assert plan(strength=0.5)[1] == {("option_without_effect", "strength")}
    assert plan(true_cfg_scale=3.0)[1] == {("option_without_effect", "true_cfg_scale")}
    assert plan(negative_prompt="blur")[1] == {("option_without_effect", "negative_prompt")}
    assert not plan(negative_prompt="blur", true_cfg_scale=3.0)[1]


def test_options_that_depend_on_others_are_named() -> None:
    noted = ("option_without_effect", "secondary_negative_prompt")
    assert plan(secondary_negative_prompt="blur")[1] == {noted}
    noted = ("option_without_effect", "output_quality")
    assert plan(output_format="png", quality=80)[1] == {noted}


def test_an_option_without_effect_for_two_reasons_is_named_once() -> None:
    spec = replace(SPEC, family="flux2-klein", guidance="none")
    draft = Draft("x", secondary_negative_prompt="blur")
    (notice,) = settle(draft, spec, max_images=1)[1]
    assert "one text encoder" in notice.message


def test_guidance_without_an_embedding_is_named() -> None:
    spec = replace(SPEC, guidance="none")
    _, notices = settle(Draft("x", guidance_scale=5.0), spec, max_images=1)
    assert [notice.param for notice in notices] == ["guidance_scale"]


def test_image_to_image_counts_the_steps_that_run() -> None:
    request, _ = plan(steps=12, strength=0.5, picture_sizes=((300, 200),))
    assert (request.steps, request.steps_to_run) == (12, 6)


@pytest.mark.parametrize("source", [(4000, 3000), (3000, 4000), (60, 40), (9000, 100), (100, 9000)])
def test_a_sources_shape_gives_a_size_that_the_model_makes(source: tuple[int, int]) -> None:
    width, height = default_size(SPEC, source)
    assert width % 16 == height % 16 == 0
    assert min(width, height) >= SPEC.min_side_px
    assert width * height <= SPEC.max_pixels
    plan(width=width, height=height)


def test_seeds_of_a_request_wrap_around() -> None:
    request, _ = plan(seed=SEED_LIMIT - 1, count=2)
    assert [request.seed_of(0), request.seed_of(1)] == [SEED_LIMIT - 1, 0]


def test_the_cache_is_the_studios_unless_the_request_says_otherwise() -> None:
    fast = CacheSetting(PRESETS["fast"])
    assert plan()[0].cache == OFF
    assert settle(Draft("x"), SPEC, max_images=1, cache=fast)[0].cache == PRESETS["fast"]
    own = Draft("x", cache=CacheChoice("taylorseer", {"cache_interval": 3}))
    request, _ = settle(own, SPEC, max_images=1, cache=fast)
    assert request.cache == resolve("taylorseer", cache_interval=3)
    assert refused(cache=CacheChoice("off", {"max_skips": 2})).param == "max_skips"


def test_a_request_from_before_the_cache_had_none() -> None:
    request, _ = plan(cache=CacheChoice("fast"))
    kept = request.to_dict()
    for name in ("cache", *CACHE_FIELDS):
        kept.pop(name, None)
    assert PictureRequest.from_dict(kept) == replace(request, cache=OFF)


def test_a_request_survives_its_dictionary_and_unknown_fields() -> None:
    own = CacheChoice("balanced", {"residual_threshold": 0.25, "taylor_order": 2})
    request, _ = plan(prompt="🍎\nline", seed=3, cache=own)
    assert request.cache == resolve("balanced", residual_threshold=0.25, taylor_order=2)
    kept = json.loads(json.dumps(request.to_dict() | {"of_a_later_version": 1}))
    assert PictureRequest.from_dict(kept) == request
