"""Which step cache a request gets, by its own words and by `--cache`; a rule as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from pipelines.cache_rules import (
    LIMITS,
    OFF,
    PRESETS,
    CacheValueError,
    idle_value,
    resolve,
    used_fields,
)
from pipelines.cache_rules import CacheRule as CacheRule  # for the page, which knows no pipelines
from pipelines.specs import ModelSpec
from studio.errors import BadRequest

CacheName = Literal["off", "balanced", "fast", "first_block_caching", "taylorseer"]
CACHE_NAMES: tuple[str, ...] = get_args(CacheName)
CACHE_FIELDS: dict[str, str] = {name: str(limit) for name, limit in LIMITS.items()}  # the ranges
PAGE_DEFAULT = "balanced"


@dataclass(frozen=True, slots=True)
class CacheChoice:
    """What a request says of its cache; None and an absent value mean that it says nothing."""

    name: str | None = None
    values: Mapping[str, float | None] = field(default_factory=dict)  # by `CACHE_FIELDS`


NOTHING_SAID = CacheChoice()


@dataclass(frozen=True, slots=True)
class CacheSetting:
    """What the studio was started with; `rule` is None where nobody chose one."""

    rule: CacheRule | None = None

    def rule_of(self, choice: CacheChoice) -> CacheRule:
        """What a request obeys. Raises `BadRequest` that names the value and its range.

        The studio's values belong to its own name: they are what `balanced` means in a studio that
        was started with another `balanced`, and a request that names `fast` does not get them.
        """
        mine = self.rule or OFF
        name = mine.name if choice.name is None else choice.name
        values = {param: value for param, value in choice.values.items() if value is not None}
        for param, value in values.items():
            if fault := fault_of(param, value):
                raise BadRequest(f"{param} {fault}", param=param)
        base = acting_values(mine) if name == mine.name else {}
        try:
            return resolve(name, **base | values)
        except CacheValueError as error:
            raise BadRequest(error.message, param=error.field) from error

    def page_name(self, spec: ModelSpec) -> str:
        """What the page begins with: the studio's, or one that saves time where steps are many."""
        if self.rule is not None:
            return self.rule.name
        # All steps of a few-step model are warm-up: each picture would say that none was spared.
        is_idle = idle_value(PRESETS[PAGE_DEFAULT], spec.default_steps) is not None
        return OFF.name if is_idle else PAGE_DEFAULT


UNSET = CacheSetting()


def fault_of(name: str, value: object) -> str | None:
    """Why no rule can have this value, with the range: `must be a whole number from 0 to 2, …`."""
    limit = LIMITS[name]
    is_huge = isinstance(value, int) and value.bit_length() > 64  # more digits than Python prints
    if not is_huge and limit.allows(value):
        return None
    return f"must be {limit}, not {'that large' if is_huge else repr(value)[:40]}."


def acting_values(rule: CacheRule) -> dict[str, Any]:
    """The values that do something in this rule."""
    return {name: getattr(rule, name) for name in used_fields(rule)}


def rule_to_dict(rule: CacheRule) -> dict[str, Any]:
    """Name and acting values, by the fields in which a request may give them."""
    return {"cache": rule.name} | acting_values(rule)


def rule_from_dict(settings: Mapping[str, Any]) -> CacheRule:
    """The rule among a picture's settings; off where there is none, as before the step cache."""
    name = settings.get("cache")
    values = {param: settings[param] for param in CACHE_FIELDS if param in settings}
    if not isinstance(name, str) or any(fault_of(*value) for value in values.items()):
        return OFF
    try:
        return resolve(name, **values)
    except CacheValueError:
        return OFF
