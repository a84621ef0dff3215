"""Which rule a request gets: its own words, the studio's setting, the page's default."""

from dataclasses import replace
from typing import Any

import pytest

from pipelines.cache_rules import CACHE_NAMES as RULE_NAMES
from pipelines.cache_rules import LIMITS, OFF, PRESETS, resolve
from studio.errors import BadRequest
from studio.step_cache import (
    CACHE_FIELDS,
    CACHE_NAMES,
    NOTHING_SAID,
    UNSET,
    CacheChoice,
    CacheSetting,
    fault_of,
    rule_from_dict,
    rule_to_dict,
)
from tests.studio.conftest import SPEC

TUNED = CacheSetting(resolve("balanced", residual_threshold=0.3, warmup_steps=1))
RULES = [
    *PRESETS.values(),
    resolve("fast", residual_threshold=0.5, taylor_order=2, warmup_steps=0, max_skips=9),
    resolve("taylorseer", taylor_order=2, warmup_steps=1, cache_interval=3),
]


def test_names_and_fields_are_those_of_the_engine() -> None:
    assert CACHE_NAMES == RULE_NAMES
    assert list(CACHE_FIELDS) == list(LIMITS)


def test_a_silent_request_gets_the_studios_cache_or_none() -> None:
    assert UNSET.rule_of(NOTHING_SAID) == OFF
    assert TUNED.rule_of(NOTHING_SAID) == TUNED.rule


def test_the_studios_values_are_those_of_its_own_name() -> None:
    assert TUNED.rule_of(CacheChoice("balanced")) == TUNED.rule
    assert TUNED.rule_of(CacheChoice("fast")) == PRESETS["fast"]
    assert TUNED.rule_of(CacheChoice("off")) == OFF
    mixed = TUNED.rule_of(CacheChoice(None, {"warmup_steps": 3, "max_skips": None}))
    assert mixed == resolve("balanced", residual_threshold=0.3, warmup_steps=3)


@pytest.mark.parametrize(
    ("name", "field", "value", "says"),
    [
        ("fast", "residual_threshold", -0.1, "0 to 1"),
        ("fast", "residual_threshold", float("nan"), "0 to 1"),
        ("fast", "taylor_order", 3, "0 to 2"),
        ("fast", "warmup_steps", -1, "0 to 100"),
        ("fast", "warmup_steps", 2.5, "whole number from 0 to 100"),
        ("fast", "max_skips", True, "whole number"),
        ("taylorseer", "cache_interval", 0, "1 to 100"),
        ("taylorseer", "residual_threshold", 0.1, "not taylorseer"),
        ("balanced", "cache_interval", 5, "not balanced"),
        (None, "max_skips", 5, "not off"),
    ],
)
def test_values_that_no_rule_has_are_refused_and_named(
    name: str | None, field: str, value: Any, says: str
) -> None:
    with pytest.raises(BadRequest, match=field) as refused:
        UNSET.rule_of(CacheChoice(name, {field: value}))
    assert refused.value.param == field
    assert says in refused.value.message


def test_numbers_with_more_digits_than_python_prints_are_refused() -> None:
    for name in CACHE_FIELDS:
        assert "that large" in (fault_of(name, 10**5000) or "")
    assert rule_from_dict({"cache": "fast", "max_skips": 10**5000}) == OFF


def test_an_unknown_name_is_refused_and_the_known_ones_are_told() -> None:
    with pytest.raises(BadRequest, match="first_block_caching") as refused:
        UNSET.rule_of(CacheChoice("slow"))
    assert refused.value.param == "cache"


def test_the_page_saves_time_unless_it_is_told_otherwise_or_cannot() -> None:
    many, few = replace(SPEC, default_steps=28), replace(SPEC, default_steps=4)
    assert UNSET.page_name(many) == "balanced"
    assert UNSET.page_name(few) == "off"
    for name in CACHE_NAMES:
        assert CacheSetting(PRESETS[name]).page_name(many) == name
        assert CacheSetting(PRESETS[name]).page_name(few) == name


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_survives_its_dictionary(rule: Any) -> None:
    assert rule_from_dict(rule_to_dict(rule) | {"prompt": "an apple"}) == rule


def test_a_rule_says_only_what_acts() -> None:
    assert rule_to_dict(OFF) == {"cache": "off"}
    assert set(rule_to_dict(PRESETS["taylorseer"])) == {
        "cache",
        "taylor_order",
        "warmup_steps",
        "cache_interval",
    }


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cache": None},
        {"cache": ["fast"]},
        {"cache": {"name": "fast"}},
        {"cache": "slow"},
        {"cache": "fast", "max_skips": "2"},
        {"cache": "fast", "cache_interval": 3},
    ],
    ids=str,
)
def test_what_is_no_rule_is_off(settings: dict[str, Any]) -> None:
    assert rule_from_dict(settings) == OFF


def test_a_fault_names_the_range_and_the_value() -> None:
    assert fault_of("taylor_order", 2) is None
    assert fault_of("taylor_order", 3) == "must be a whole number from 0 to 2, not 3."
    assert len(fault_of("taylor_order", "x" * 10_000) or "") < 100
