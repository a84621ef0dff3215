"""Names, values and ranges of the step cache: what is refused says which and why."""

from dataclasses import fields

import pytest

from pipelines.cache_rules import (
    CACHE_NAMES,
    LIMITS,
    OFF,
    PRESETS,
    CacheRule,
    CacheValueError,
    idle_value,
    resolve,
    used_fields,
)

WHOLE = [field for field, limit in LIMITS.items() if limit.is_whole]
# A name that each value does something with.
USER = dict.fromkeys(LIMITS, "balanced") | {"cache_interval": "taylorseer"}


def test_every_name_has_a_preset_that_resolves_to_itself():
    assert tuple(PRESETS) == CACHE_NAMES
    assert [resolve(name) for name in CACHE_NAMES] == list(PRESETS.values())
    assert resolve() == OFF


def test_the_limits_are_those_of_the_rules_values():
    assert {field.name for field in fields(CacheRule)} == LIMITS.keys() | {"name"}


def test_the_release_notes_rules_have_the_release_notes_values():
    blocks, taylor = PRESETS["first_block_caching"], PRESETS["taylorseer"]
    assert (blocks.residual_threshold, blocks.taylor_order, blocks.warmup_steps) == (0.05, 0, 0)
    assert blocks.cache_interval is None
    assert (taylor.cache_interval, taylor.warmup_steps, taylor.taylor_order) == (5, 9, 1)


@pytest.mark.parametrize("field", LIMITS)
def test_both_ends_of_a_range_are_taken(field):
    for value in (LIMITS[field].low, LIMITS[field].high):
        assert getattr(resolve(USER[field], **{field: value}), field) == value


@pytest.mark.parametrize("field", LIMITS)
@pytest.mark.parametrize(
    "make",
    [
        lambda limit: limit.low - 1,
        lambda limit: limit.high + 1,
        lambda limit: float("nan"),
        lambda limit: float("inf"),
        lambda limit: -float("inf"),
        lambda limit: True,
        lambda limit: str(limit.low),
        lambda limit: 10**400,  # no float holds it
    ],
)
def test_a_value_out_of_its_range_is_refused_by_name_and_range(field, make):
    with pytest.raises(CacheValueError) as caught:
        resolve(USER[field], **{field: make(LIMITS[field])})
    assert caught.value.field == field
    assert caught.value.message.startswith(f"{field} must be {LIMITS[field]}, not ")


@pytest.mark.parametrize("field", WHOLE)
def test_a_fraction_is_no_whole_number_even_if_it_is_round(field):
    for value in (1.5, 2.0):
        with pytest.raises(CacheValueError, match=f"{field} must be a whole number"):
            resolve(USER[field], **{field: value})


def test_the_message_is_a_sentence_for_people():
    with pytest.raises(CacheValueError) as caught:
        resolve("balanced", taylor_order=3)
    assert caught.value.message == "taylor_order must be a whole number from 0 to 2, not 3."
    assert caught.value.code == "bad_request"


def test_an_unknown_name_is_answered_with_the_names_that_are():
    with pytest.raises(CacheValueError, match=r"off, balanced.*not 'turbo'") as caught:
        resolve("turbo", taylor_order=1)
    assert caught.value.field == "cache"


def test_an_unknown_value_is_refused():
    with pytest.raises(CacheValueError, match="taylor_ordr is no value of a cache"):
        resolve("balanced", taylor_ordr=1)


@pytest.mark.parametrize("name", CACHE_NAMES)
@pytest.mark.parametrize("field", LIMITS)
def test_a_value_that_would_do_nothing_is_refused_and_no_other(name, field):
    value = LIMITS[field].high
    if field in used_fields(PRESETS[name]):
        assert getattr(resolve(name, **{field: value}), field) == value
        return
    with pytest.raises(CacheValueError, match=f"{field} needs another cache: .*, not {name}") as e:
        resolve(name, **{field: value})
    assert e.value.field == field


def test_what_each_name_uses():
    residual = ("residual_threshold", "taylor_order", "warmup_steps", "max_skips")
    assert used_fields(OFF) == ()
    for name in ("balanced", "fast", "first_block_caching"):
        assert used_fields(PRESETS[name]) == residual
    assert used_fields(PRESETS["taylorseer"]) == ("taylor_order", "warmup_steps", "cache_interval")


def test_none_leaves_the_names_own_value():
    assert resolve("fast", taylor_order=None, cache_interval=None) == PRESETS["fast"]
    assert resolve("off", residual_threshold=None) == OFF


def test_the_cap_follows_the_interval():
    """So that the interval is the one rule, whoever counts."""
    assert resolve("taylorseer", cache_interval=3).max_skips == 2
    assert PRESETS["taylorseer"] == resolve("taylorseer", cache_interval=5)


def test_no_rule_can_be_made_with_a_bad_value():
    with pytest.raises(CacheValueError, match="residual_threshold must be"):
        CacheRule("balanced", float("nan"), 1, 4, 3)


@pytest.mark.parametrize(
    "rule, steps, cause",
    [
        (resolve("balanced", warmup_steps=4), 4, "warmup_steps"),
        (resolve("balanced", warmup_steps=4), 5, "warmup_steps"),  # the fifth is the last
        (resolve("balanced", warmup_steps=4), 6, None),
        (resolve("balanced", warmup_steps=0), 2, "warmup_steps"),
        (resolve("balanced", warmup_steps=0), 3, None),
        (resolve("balanced", max_skips=0), 28, "max_skips"),
        (resolve("balanced", residual_threshold=0), 28, "residual_threshold"),
        (resolve("taylorseer", cache_interval=1), 28, "cache_interval"),
        (resolve("taylorseer"), 28, None),
        (OFF, 28, "max_skips"),
    ],
)
def test_a_rule_that_predicts_nothing_names_the_cause(rule, steps, cause):
    assert idle_value(rule, steps) == cause
