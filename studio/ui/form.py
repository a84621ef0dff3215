"""What stands in the page's controls, as one value: to a `Draft`, and back from kept settings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from pipelines.specs import ModelSpec
from studio.errors import BadRequest
from studio.jobs import Jobs
from studio.request import (
    DEFAULT_QUALITY,
    DEFAULT_STRENGTH,
    MAX_GUIDANCE,
    MAX_PROMPT_CHARS,
    OUTPUT_FORMATS,
    SEED_LIMIT,
    Draft,
)
from studio.roles import Size, starts_from_uploads
from studio.step_cache import CACHE_NAMES, CacheSetting, rule_from_dict
from studio.ui.original import keep_expansion, original_of
from studio.ui.sizes import CUSTOM, MATCH, RATIOS, areas, shape_of, size_of
from studio.ui.step_cache import choice_of, own_rule

RANDOM, FIXED = "random", "fixed"
MAX_PICTURES = 4
DEFAULT_TRUE_CFG = 3.0
MIN_STRENGTH = 0.01
MIN_TRUE_CFG = 1.1  # at 1 the negative prompt does nothing


@dataclass(frozen=True, slots=True)
class FormValues:
    """The controls in the order in which handlers receive them."""

    prompt: str
    shape: str
    area: str
    width: float | None
    height: float | None
    count: int
    strength: float
    steps: float
    seed_mode: str
    seed: str
    output_format: str
    quality: float
    guidance_scale: float
    negative_prompt: str
    true_cfg_scale: float
    cache: str
    cache_rule: str  # of settings that were reused, where it has values of its own
    expanded: str  # what the prompt was before it was expanded, see `studio.ui.original`


FIELDS: tuple[str, ...] = tuple(field.name for field in fields(FormValues))


@dataclass(frozen=True, slots=True)
class Offer:
    """What a form can hold: the limits of the model and of the studio."""

    spec: ModelSpec
    max_images: int
    cache: CacheSetting


def offer_of(jobs: Jobs, spec: ModelSpec) -> Offer:
    """What the form of one model can hold."""
    return Offer(spec, jobs.max_images, jobs.cache)


def defaults(offer: Offer) -> FormValues:
    """An untouched form: nothing of it has to be changed for a good picture."""
    spec = offer.spec
    shape, area = shape_of(spec.native_width, spec.native_height, spec)
    return FormValues(
        prompt="",
        shape=shape,
        area=area,
        width=spec.native_width,
        height=spec.native_height,
        count=1,
        strength=DEFAULT_STRENGTH,
        steps=spec.default_steps,
        seed_mode=RANDOM,
        seed="",
        output_format="jpeg",
        quality=DEFAULT_QUALITY,
        guidance_scale=spec.default_guidance_scale,
        negative_prompt="",
        true_cfg_scale=DEFAULT_TRUE_CFG,
        cache=offer.cache.page_name(spec),
        cache_rule="",
        expanded="",
    )


def received(values: Sequence[Any], offer: Offer) -> FormValues:
    """The controls as Gradio sends them: None for one that the browser has not built yet."""
    base = defaults(offer)
    sent = {name: value for name, value in zip(FIELDS, values, strict=True) if value is not None}
    sizes = {name: sent.get(name) for name in ("width", "height")}  # None: the field was emptied
    return replace(base, **sent | sizes)


def draft_of(values: FormValues, spec: ModelSpec, sizes: tuple[Size, ...] = ()) -> Draft:
    """What the form asks for. Raises `BadRequest` for a size or a seed that is no number."""
    width, height = _size(values, spec, sizes[0] if sizes else None)
    negative = values.negative_prompt.strip()
    return Draft(
        prompt=values.prompt,
        original_prompt=original_of(values.prompt, values.expanded),
        model=spec.name,
        negative_prompt=negative or None,
        width=width,
        height=height,
        steps=round(values.steps),
        guidance_scale=values.guidance_scale if spec.has_guidance else None,
        true_cfg_scale=values.true_cfg_scale if negative and has_own_cfg(spec) else None,
        strength=values.strength if sizes and starts_from_uploads(spec) else None,
        seed=_seed(values.seed) if values.seed_mode == FIXED else None,
        count=values.count,
        output_format=values.output_format,
        quality=None if values.output_format == "png" else round(values.quality),
        picture_sizes=sizes,
        cache=choice_of(values.cache, values.cache_rule),
    )


def has_own_cfg(spec: ModelSpec) -> bool:
    """Whether true CFG is a control beside guidance, not what guidance does."""
    return spec.guidance != "true_cfg"


def from_settings(settings: Mapping[str, Any], offer: Offer) -> FormValues:
    """The form for a picture's settings, from the history or from a file that anybody wrote."""
    raw = dict(settings)
    width, height = _whole(raw.get("width")), _whole(raw.get("height"))
    if width is not None and height is not None and width > 0 and height > 0:
        raw["shape"], raw["area"] = shape_of(width, height, offer.spec)
    if (seed := _whole(raw.get("seed"))) is not None:
        raw |= {"seed": str(seed), "seed_mode": FIXED}
    if not raw.get("negative_prompt"):
        raw.pop("true_cfg_scale", None)
    if not raw.get("has_source"):
        raw.pop("strength", None)
    rule = rule_from_dict(settings)
    raw |= {"cache": rule.name, "cache_rule": own_rule(rule, offer.cache)}
    raw["expanded"] = keep_expansion(settings)
    return checked(raw, offer)


def checked(raw: Mapping[str, Any], offer: Offer) -> FormValues:
    """Every value that the form can hold, and the default where one is missing or impossible."""
    base, spec = defaults(offer), offer.spec
    most = min(MAX_PICTURES, offer.max_images)
    return replace(
        base,
        prompt=_text(raw.get("prompt")),
        shape=_one_of(raw.get("shape"), (*RATIOS, CUSTOM), base.shape),
        area=_one_of(raw.get("area"), [area.key for area in areas(spec)], base.area),
        width=_within(raw.get("width"), 1, spec.max_pixels, base.width),
        height=_within(raw.get("height"), 1, spec.max_pixels, base.height),
        count=round(_within(raw.get("count"), 1, most, base.count) or base.count),
        strength=_within(raw.get("strength"), MIN_STRENGTH, 1.0, base.strength),
        steps=_within(raw.get("steps"), 1, spec.max_steps, base.steps),
        seed_mode=_one_of(raw.get("seed_mode"), (RANDOM, FIXED), base.seed_mode),
        seed=_text(raw.get("seed"))[:20],
        output_format=_one_of(raw.get("output_format"), OUTPUT_FORMATS, base.output_format),
        quality=_within(raw.get("quality"), 1, 100, base.quality),
        guidance_scale=_within(raw.get("guidance_scale"), 0, MAX_GUIDANCE, base.guidance_scale),
        negative_prompt=_text(raw.get("negative_prompt")),
        true_cfg_scale=_within(
            raw.get("true_cfg_scale"), MIN_TRUE_CFG, MAX_GUIDANCE, base.true_cfg_scale
        ),
        cache=_one_of(raw.get("cache"), CACHE_NAMES, base.cache),
        cache_rule=_text(raw.get("cache_rule")),
        expanded=_text(raw.get("expanded")),
    )


def asked_size(values: FormValues) -> tuple[float | None, float | None] | None:
    """The size as typed; None where a shape was chosen."""
    return (values.width, values.height) if values.shape == CUSTOM else None


def _size(values: FormValues, spec: ModelSpec, source_size: Size | None) -> Size:
    if values.shape != CUSTOM:
        if values.shape == MATCH and source_size is None:
            return spec.native_width, spec.native_height
        return size_of(values.shape, values.area, spec, source_size)
    return _side("width", values.width, spec), _side("height", values.height, spec)


def _side(name: str, value: float | None, spec: ModelSpec) -> int:
    if value is None or not math.isfinite(value):
        raise BadRequest(f"The {name} is empty: type a number of pixels.", param=name)
    return int(value) // spec.size_multiple * spec.size_multiple  # `plan_line` says so


def _seed(text: str) -> int:
    digits = text.strip().replace(" ", "").replace(",", "")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 10
    if not is_number or int(digits) >= SEED_LIMIT:
        raise BadRequest(
            f"The seed must be a whole number from 0 to {SEED_LIMIT - 1:,}, or set it to random.",
            param="seed",
        )
    return int(digits)


def _text(value: object) -> str:
    return value[:MAX_PROMPT_CHARS] if isinstance(value, str) else ""


def _one_of(value: object, choices: Any, default: str) -> str:
    return value if isinstance(value, str) and value in choices else default


def _within(value: object, low: float, high: float, default: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return default
    return min(max(value, low), high)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
