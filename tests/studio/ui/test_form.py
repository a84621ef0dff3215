"""Controls to a request and back: nothing impossible gets into the form, nothing gets lost."""

from dataclasses import astuple, replace

import pytest

from pipelines.cache_rules import OFF, PRESETS, CacheRule, resolve
from studio.errors import BadRequest
from studio.settle import settle
from studio.step_cache import UNSET, CacheSetting, rule_to_dict
from studio.ui.form import (
    FIELDS,
    FIXED,
    FormValues,
    Offer,
    checked,
    defaults,
    draft_of,
    from_settings,
    received,
)
from tests.studio.conftest import SPEC

OFFER = Offer(SPEC, 4, UNSET)
BASE = replace(defaults(OFFER), prompt="an apple")
WITHOUT_GUIDANCE = replace(SPEC, guidance="none")


def test_an_untouched_form_asks_for_the_models_defaults() -> None:
    request, notices = settle(draft_of(BASE, SPEC), SPEC, max_images=4)
    assert (request.width, request.height) == (SPEC.native_width, SPEC.native_height)
    assert (request.steps, request.count) == (SPEC.default_steps, 1)
    assert request.output_format == "jpeg"
    assert not notices


def test_what_does_not_act_is_not_sent() -> None:
    draft = draft_of(replace(BASE, output_format="png"), WITHOUT_GUIDANCE)
    assert draft.guidance_scale is None and draft.strength is None
    assert draft.true_cfg_scale is None and draft.quality is None and draft.seed is None
    _request, notices = settle(draft, WITHOUT_GUIDANCE, max_images=4)
    assert not notices


@pytest.mark.parametrize("text", ["", "abc", "-1", "1.5", "4294967296", "9" * 5000, "１２"])
def test_a_seed_that_is_no_seed_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="seed") as refused:
        draft_of(replace(BASE, seed_mode=FIXED, seed=text), SPEC)
    assert refused.value.param == "seed"


def test_large_seeds_keep_every_digit() -> None:
    draft = draft_of(replace(BASE, seed_mode=FIXED, seed=" 4,294,967,295 "), SPEC)
    assert draft.seed == 4294967295


@pytest.mark.parametrize("width", [None, float("nan"), float("inf")])
def test_a_width_that_is_no_number_is_refused(width: float | None) -> None:
    with pytest.raises(BadRequest) as refused:
        draft_of(replace(BASE, shape="custom", width=width), SPEC)
    assert refused.value.param == "width"


def test_a_request_comes_back_as_the_same_request() -> None:
    form = replace(
        BASE,
        shape="9:16",
        seed_mode=FIXED,
        seed="7",
        steps=11,
        output_format="webp",
        quality=55,
        negative_prompt="blur",
        true_cfg_scale=2.5,
        guidance_scale=4.5,
        cache="fast",
    )
    request, _ = settle(draft_of(form, SPEC), SPEC, max_images=4)
    again = from_settings(request.to_dict(), OFFER)
    assert settle(draft_of(again, SPEC), SPEC, max_images=4)[0] == request


def test_settings_from_anywhere_become_possible_ones() -> None:
    wild = {
        "prompt": 5,
        "width": -3,
        "height": "x",
        "steps": 10**9,
        "seed": True,
        "count": 99,
        "quality": float("nan"),
        "output_format": "gif",
        "guidance_scale": [1],
        "strength": 9,
        "has_source": True,
        "unknown": object(),
    }
    values = from_settings(wild, replace(OFFER, max_images=2))
    assert values.prompt == "" and values.seed == ""
    assert (values.steps, values.count, values.strength) == (SPEC.max_steps, 2, 1.0)
    assert (values.quality, values.output_format) == (90, "jpeg")
    assert checked({}, OFFER) == defaults(OFFER)


def test_controls_that_the_browser_has_not_built_have_their_defaults() -> None:
    unbuilt = received([None] * len(FIELDS), OFFER)
    assert unbuilt == replace(defaults(OFFER), width=None, height=None)
    assert received(astuple(BASE), OFFER) == BASE


def test_the_form_begins_with_the_studios_cache_else_with_one_that_saves_time() -> None:
    assert draft_cache(BASE) == PRESETS["balanced"]
    for name in PRESETS:
        offer = replace(OFFER, cache=CacheSetting(PRESETS[name]))
        assert defaults(offer).cache == checked({}, offer).cache == name
        assert received([None] * len(FIELDS), offer).cache == name


def test_a_chosen_cache_is_kept_and_an_unknown_one_is_not() -> None:
    assert checked({"cache": "fast"}, OFFER).cache == "fast"
    assert checked({"cache": "slow"}, OFFER).cache == defaults(OFFER).cache
    assert checked({"cache": ["fast"]}, OFFER).cache == defaults(OFFER).cache


def test_settings_bring_their_cache_with_its_own_values() -> None:
    for rule in (
        *PRESETS.values(),
        resolve("fast", max_skips=9),
        resolve("taylorseer", cache_interval=2),
    ):
        values = from_settings(rule_to_dict(rule), OFFER)
        assert values.cache == rule.name
        assert draft_cache(values) == rule
        assert bool(values.cache_rule) == (rule not in PRESETS.values())


def test_settings_from_before_the_cache_had_none() -> None:
    for settings in ({}, {"cache": "off"}, {"cache": "of a later version"}):
        assert draft_cache(from_settings(settings, OFFER)) == OFF


def test_values_of_settings_do_not_follow_to_another_cache() -> None:
    values = from_settings(rule_to_dict(resolve("fast", max_skips=9)), OFFER)
    assert draft_cache(replace(values, cache="balanced")) == PRESETS["balanced"]


@pytest.mark.parametrize(
    "kept", ["", "null", "[", "[" * 100_000, '{"cache": "fast", "max_skips": -1}']
)
def test_a_kept_rule_that_is_none_does_no_harm(kept: str) -> None:
    values = checked({"cache": "fast", "cache_rule": kept}, OFFER)
    assert draft_cache(values) == PRESETS["fast"]


def draft_cache(values: FormValues) -> CacheRule:
    """The rule that a form asks for."""
    form = replace(values, prompt="an apple")
    return settle(draft_of(form, SPEC), SPEC, max_images=4)[0].cache
