"""The step cache in a person's words, and its rule in the form."""

import json
from collections.abc import Sequence
from typing import Any

from studio.job import Picture
from studio.step_cache import (
    CACHE_NAMES,
    CacheChoice,
    CacheRule,
    CacheSetting,
    acting_values,
    rule_from_dict,
    rule_to_dict,
)

OFF = "off"
LABELS = {
    "off": "Off (exact)",
    "balanced": "Balanced",
    "fast": "Fast",
    "first_block_caching": "First-block caching",
    "taylorseer": "TaylorSeer",
}
_NOTES = {
    "off": "Every step is computed.",
    "balanced": "Predicts the steps that can be foreseen: faster, nearly the same picture.",
    "fast": "Predicts more of them: faster still, details may differ.",
    "first_block_caching": "The classic rule: reuses a step while the first block hardly changes.",
    "taylorseer": "The classic rule: computes every few steps and extrapolates between them.",
}


def choices() -> list[tuple[str, str]]:
    """Label and name of each cache, for a drop-down."""
    return [(LABELS[name], name) for name in CACHE_NAMES]


def note(choice: CacheChoice, setting: CacheSetting) -> str:
    """What the chosen cache does, and which of its values are not this studio's."""
    usual = acting_values(setting.rule_of(CacheChoice(choice.name)))
    own = [f"{name} {value}" for name, value in choice.values.items() if value != usual[name]]
    told = f" Values of the picture that was reused: {', '.join(own)}." if own else ""
    return f"<p class='note'>{_NOTES[choice.name or OFF]}{told}</p>"


def own_rule(rule: CacheRule, setting: CacheSetting) -> str:
    """JSON of a rule with other values than its name has in this studio, else nothing."""
    is_usual = rule == setting.rule_of(CacheChoice(rule.name))
    return "" if is_usual else json.dumps(rule_to_dict(rule))


def choice_of(name: str, kept: str) -> CacheChoice:
    """What the form asks for; `kept` of `own_rule` counts for its own name alone."""
    rule = rule_from_dict(_parsed(kept))
    return CacheChoice(name, acting_values(rule) if rule.name == name else {})


def steps_made(pictures: Sequence[Picture]) -> str:
    """`, 12 computed, 16 predicted`; nothing where every step was computed by choice."""
    if pictures[0].request.cache.name == OFF:
        return ""
    computed = _range([picture.steps_computed for picture in pictures])
    predicted = _range([picture.steps_predicted for picture in pictures])
    return f", {computed} computed, {predicted} predicted"


def cache_fact(picture: Picture) -> str:
    """The cache of a picture and what it spared, for the large view."""
    return LABELS[picture.request.cache.name] + steps_made([picture])


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _parsed(text: str) -> dict[str, Any]:
    """Anything may come from a browser."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}
