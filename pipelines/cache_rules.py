"""When a picture may skip the blocks behind the first one: names, values, ranges. Free of torch.

`first_block` obeys a `CacheRule` step by step. Which values a name takes:

    off                    none, every step is computed
    balanced, fast         residual_threshold, taylor_order, warmup_steps, max_skips
    first_block_caching    the same
    taylorseer             taylor_order, warmup_steps, cache_interval

A value that would do nothing is refused: any with `off`, `cache_interval` where the residual
decides, `residual_threshold` and `max_skips` where the interval does.
"""

from dataclasses import dataclass, replace

from pipelines.errors import BadRequest

CACHE_NAMES = ("off", "balanced", "fast", "first_block_caching", "taylorseer")
NO_CAP = 100  # predicted steps in a row: as many as the longest schedule has


class CacheValueError(BadRequest):
    """A value that no rule can have; `field` is "cache" or one of `LIMITS`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class CacheLimit:
    """The range of one value, both ends included."""

    low: float
    high: float
    is_whole: bool

    def __str__(self) -> str:
        kind = "whole number" if self.is_whole else "number"
        return f"a {kind} from {self.low:g} to {self.high:g}"

    def allows(self, value: object) -> bool:
        """Neither NaN nor infinity nor a bool; 2.0 is no whole number."""
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return False
        is_kind = isinstance(value, int) or not self.is_whole
        return is_kind and self.low <= value <= self.high


LIMITS = {
    "residual_threshold": CacheLimit(0, 1, is_whole=False),
    "taylor_order": CacheLimit(0, 2, is_whole=True),
    "warmup_steps": CacheLimit(0, 100, is_whole=True),
    "max_skips": CacheLimit(0, NO_CAP, is_whole=True),
    "cache_interval": CacheLimit(1, 100, is_whole=True),
}


@dataclass(frozen=True, slots=True)
class CacheRule:
    """What one picture obeys. Raises CacheValueError for a value out of its range.

    The first and the last step are always computed, whatever the values. Of the others, those
    behind the warm-up are predicted, at most `max_skips` in a row.
    """

    name: str
    residual_threshold: float  # relative miss of the first block's residual that is computed
    taylor_order: int  # of the polynomial that foresees; 0 takes the last velocity again
    warmup_steps: int  # the first steps, computed
    max_skips: int  # predicted steps in a row
    cache_interval: int | None = None  # n: every n-th step behind the warm-up, whatever the miss

    def __post_init__(self) -> None:
        if self.name not in CACHE_NAMES:
            raise CacheValueError(
                "cache", f"cache must be one of {', '.join(CACHE_NAMES)}, not {self.name!r}."
            )
        for field, limit in LIMITS.items():
            value = getattr(self, field)
            if not (limit.allows(value) or (field == "cache_interval" and value is None)):
                raise CacheValueError(field, f"{field} must be {limit}, not {value!r}.")


# `balanced` and `fast` on the embedded model, 28 steps, 32 prompts: 36 % of the steps computed at a
# median of 36 dB to the picture without a cache, and 29 % at 30 dB (docs/performance.md).
# The last two have threshold, interval, warm-up and order as others publish them, who compare with
# the step before instead of the last computed one, predict the last step, too, and have no reach.
PRESETS = {
    rule.name: rule
    for rule in (
        CacheRule("off", 0.0, 0, 0, 0),
        CacheRule("balanced", 0.08, 1, 3, 3),
        CacheRule("fast", 0.18, 1, 3, 5),
        CacheRule("first_block_caching", 0.05, 0, 0, NO_CAP),
        CacheRule("taylorseer", 0.0, 1, 9, 4, cache_interval=5),
    )
}
OFF = PRESETS["off"]


def resolve(name: str = "off", **overrides: float | None) -> CacheRule:
    """The rule of a name with single values changed; None leaves the name's own.

    Raises CacheValueError, naming the field and its range, for a value out of range and for one
    that would do nothing with this name.
    """
    given = {field: value for field, value in overrides.items() if value is not None}
    rule = PRESETS.get(name) or replace(OFF, name=name)  # the second raises: no such name
    for field in given:
        _check_use(rule, field)
    rule = replace(rule, **given)  # type: ignore[arg-type]  # the values check themselves
    return rule if rule.cache_interval is None else replace(rule, max_skips=rule.cache_interval - 1)


def idle_value(rule: CacheRule, steps: int) -> str | None:
    """The value because of which none of `steps` is predicted; None where some may be."""
    if max(rule.warmup_steps, 1) >= steps - 1:  # the first and the last are computed anyhow
        return "warmup_steps"
    if rule.cache_interval == 1:
        return "cache_interval"
    if rule.max_skips == 0:
        return "max_skips"
    is_never_less = rule.cache_interval is None and rule.residual_threshold == 0
    return "residual_threshold" if is_never_less else None


def _check_use(rule: CacheRule, field: str) -> None:
    if field not in LIMITS:
        known = ", ".join(LIMITS)
        raise CacheValueError(field, f"{field} is no value of a cache. There are {known}.")
    users = [name for name, preset in PRESETS.items() if field in used_fields(preset)]
    if rule.name not in users:
        allowed = " or ".join([", ".join(users[:-1]), users[-1]] if users[1:] else users)
        raise CacheValueError(field, f"{field} needs another cache: {allowed}, not {rule.name}.")


def used_fields(rule: CacheRule) -> tuple[str, ...]:
    """The values that do something with the rule's name, in the order of `LIMITS`."""
    if rule.name == "off":
        return ()
    has_interval = rule.cache_interval is not None
    unused = {"residual_threshold", "max_skips"} if has_interval else {"cache_interval"}
    return tuple(field for field in LIMITS if field not in unused)
