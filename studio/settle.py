"""A draft checked against the model that it names: gaps filled, the impossible refused."""

import math
import secrets
from typing import get_args

from pipelines.schedule import run_steps
from pipelines.specs import ModelSpec, snap_size
from studio.errors import BadRequest
from studio.request import (
    DEFAULT_QUALITY,
    DEFAULT_STRENGTH,
    MAX_GUIDANCE,
    MAX_PROMPT_CHARS,
    MIN_SIDE_PX,
    OUTPUT_FORMATS,
    SEED_LIMIT,
    Draft,
    Notice,
    OutputFormat,
    PictureRequest,
)
from studio.roles import Roles, Size, roles_of
from studio.step_cache import UNSET, CacheSetting
from studio.unicode import check_unicode

TEXTS = (
    "prompt",
    "original_prompt",
    "negative_prompt",
    "secondary_prompt",
    "secondary_negative_prompt",
)


def settle(
    draft: Draft, spec: ModelSpec, *, max_images: int, cache: CacheSetting = UNSET
) -> tuple[PictureRequest, tuple[Notice, ...]]:
    """Check `draft` against the model and fill its gaps; `cache` is what the studio runs with.

    Raises `BadRequest` with the field's name in `param` for anything that cannot be made.
    """
    notices: list[Notice] = []
    _check_texts(draft)
    width, height = _settle_size(draft, spec, notices)
    steps = _whole("steps", draft.steps, spec.default_steps, 1, spec.max_steps)
    roles = roles_of(len(draft.picture_sizes), spec, draft.strength)
    strength = _settle_strength(draft, steps, roles, notices)
    guidance, true_cfg = _settle_guidance(draft, spec, notices)
    # Where guidance is a second forward, that one reads the empty prompt unless another is given.
    no_negative = "" if spec.guidance == "true_cfg" else None
    if draft.quality is not None and draft.output_format == "png":
        notices.append(_no_effect("output_quality", "PNG is lossless"))
    request = PictureRequest(
        model=spec.name,
        prompt=draft.prompt,
        original_prompt=_settle_original(draft),
        negative_prompt=draft.negative_prompt or no_negative,
        secondary_prompt=_secondary("secondary_prompt", draft, spec, notices),
        secondary_negative_prompt=_secondary("secondary_negative_prompt", draft, spec, notices),
        width=width,
        height=height,
        steps=steps,
        steps_to_run=run_steps(steps, strength) if roles.has_start else steps,
        guidance_scale=guidance,
        true_cfg_scale=true_cfg,
        seed=_settle_seed(draft.seed),
        count=_whole("num_images", draft.count, 1, 1, max_images),
        output_format=_settle_format(draft.output_format),
        quality=_whole("output_quality", draft.quality, DEFAULT_QUALITY, 1, 100),
        has_source=roles.has_start,
        references=roles.references,
        strength=strength if roles.has_start else 1.0,
        cache=cache.rule_of(draft.cache),
    )
    return request, tuple(notices)


def _check_texts(draft: Draft) -> None:
    if not draft.prompt.strip():
        raise BadRequest(
            "The prompt is empty: describe the picture in a few words.", param="prompt"
        )
    for name in TEXTS:
        text = getattr(draft, name) or ""
        check_unicode(name, text, param=name)
        if len(text) > MAX_PROMPT_CHARS:
            raise BadRequest(
                f"{name} has {len(text):,} characters; the limit is {MAX_PROMPT_CHARS:,}.",
                param=name,
                code="prompt_too_long",
            )


def _settle_size(draft: Draft, spec: ModelSpec, notices: list[Notice]) -> tuple[int, int]:
    first = draft.picture_sizes[0] if draft.picture_sizes else None
    default_width, default_height = default_size(spec, first)
    if draft.width is None and draft.height is None:
        return default_width, default_height
    width = _side("width", draft.width if draft.width is not None else default_width, spec)
    height = _side("height", draft.height if draft.height is not None else default_height, spec)
    if width * height > spec.max_pixels:
        raise BadRequest(
            f"{width}×{height} is {width * height:,} pixels; {spec.name} makes at most "
            f"{spec.max_pixels:,}. Choose a smaller width or height.",
            param="width",
            code="size_too_large",
        )
    snapped = snap_size(spec, width, height)
    if snapped != (width, height):
        notices.append(
            Notice(
                "size_floored",
                "width" if snapped[0] != width else "height",
                f"{width}×{height} was floored to {snapped[0]}×{snapped[1]}: sides are multiples "
                f"of {spec.size_multiple} px on this model.",
            )
        )
    return snapped


def default_size(spec: ModelSpec, source_size: Size | None) -> Size:
    """The size for a request that names none: native, or its first picture's at native area."""
    if source_size is None:
        return spec.native_width, spec.native_height
    width, height = source_size
    native_area = spec.native_width * spec.native_height
    scale = min(1.0, math.sqrt(native_area / (width * height)))
    sides = [max(spec.min_side_px, round(side * scale)) for side in (width, height)]
    longest = spec.max_pixels // spec.min_side_px
    return snap_size(spec, min(sides[0], longest), min(sides[1], longest))


def _side(name: str, value: int, spec: ModelSpec) -> int:
    smallest = max(MIN_SIDE_PX, spec.min_side_px)
    if value > spec.max_pixels:  # also what has more digits than Python prints
        raise BadRequest(
            f"{name} is too large; {spec.name} makes at most {spec.max_pixels:,} pixels.",
            param=name,
            code="size_too_large",
        )
    if value < smallest or value % 8:
        raise BadRequest(
            f"{name} is {value}; it must be a multiple of 8 and at least {smallest} px.", param=name
        )
    return value


def _settle_strength(draft: Draft, steps: int, roles: Roles, notices: list[Notice]) -> float:
    if draft.strength is None:
        return DEFAULT_STRENGTH
    if not 0.0 < draft.strength <= 1.0:
        raise BadRequest(
            f"strength is {draft.strength:g}; it must be above 0 (keep the picture) and at most 1 "
            "(only the prompt).",
            param="strength",
        )
    if not roles.has_start:
        reason = "this model looks at pictures and starts from none"
        if not roles.references:
            reason = "it acts only with a source picture"
        notices.append(_no_effect("strength", reason))
    elif run_steps(steps, draft.strength) < 1:
        raise BadRequest(f"strength {draft.strength:g} leaves no step to run.", param="strength")
    return draft.strength


def _settle_guidance(draft: Draft, spec: ModelSpec, notices: list[Notice]) -> tuple[float, float]:
    """Guidance scale and true CFG scale. Where guidance is true CFG they are one."""
    if spec.guidance != "true_cfg":
        guidance = _real("guidance_scale", draft.guidance_scale, spec.default_guidance_scale, 0.0)
        if draft.guidance_scale is not None and not spec.has_guidance:
            notices.append(_no_effect("guidance_scale", f"{spec.name} takes no guidance"))
        return guidance, _settle_true_cfg(draft, spec, notices)
    true_cfg = _real("true_cfg_scale", draft.true_cfg_scale, spec.default_guidance_scale, 0.0)
    guidance = _real("guidance_scale", draft.guidance_scale, true_cfg, 0.0)
    if draft.true_cfg_scale is not None and draft.guidance_scale is not None:
        reason = f"on {spec.name} guidance_scale is the same thing"
        notices.append(_no_effect("true_cfg_scale", reason))
    if draft.negative_prompt and guidance <= 1.0:
        reason = "it acts only with guidance_scale above 1"
        notices.append(_no_effect("negative_prompt", reason))
    return guidance, max(guidance, 1.0)


def _settle_true_cfg(draft: Draft, spec: ModelSpec, notices: list[Notice]) -> float:
    scale = _real("true_cfg_scale", draft.true_cfg_scale, 1.0, 0.0, above=True)
    if scale > 1.0 and not draft.negative_prompt:
        notices.append(_no_effect("true_cfg_scale", "it acts only with a negative_prompt"))
    if draft.negative_prompt and scale <= 1.0:
        notices.append(_no_effect("negative_prompt", "it acts only with true_cfg_scale above 1"))
    is_idle = not (draft.negative_prompt and scale > 1.0)
    if draft.secondary_negative_prompt and spec.has_second_encoder and is_idle:
        reason = "it acts only with a negative_prompt and true_cfg_scale above 1"
        notices.append(_no_effect("secondary_negative_prompt", reason))
    return scale


def _settle_original(draft: Draft) -> str | None:
    """The words before an expansion; None where they are the prompt itself."""
    original = draft.original_prompt or ""
    return original if original.strip() and original.strip() != draft.prompt.strip() else None


def _secondary(name: str, draft: Draft, spec: ModelSpec, notices: list[Notice]) -> str | None:
    text: str | None = getattr(draft, name) or None
    if text is not None and not spec.has_second_encoder:
        notices.append(_no_effect(name, f"{spec.name} has one text encoder"))
        return None
    return text


def _settle_seed(seed: int | None) -> int:
    if seed is None:
        return secrets.randbelow(SEED_LIMIT)
    return _whole("seed", seed, 0, 0, SEED_LIMIT - 1)


def _settle_format(name: str) -> OutputFormat:
    for known in get_args(OutputFormat):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise BadRequest(
        f"output_format {name[:40]!r} is not known; choose one of {', '.join(OUTPUT_FORMATS)}.",
        param="output_format",
    )


def _whole(name: str, value: int | None, default: int, low: int, high: int) -> int:
    if value is None:
        return default
    if not low <= value <= high:
        shown = f"{value}" if abs(value) < 10**20 else "out of range"
        raise BadRequest(f"{name} is {shown}; it must be between {low} and {high}.", param=name)
    return value


def _real(
    name: str, value: float | None, default: float, low: float, *, above: bool = False
) -> float:
    if value is None:
        return default
    too_low = value <= low if above else value < low
    if not math.isfinite(value) or too_low or value > MAX_GUIDANCE:
        rule = "above" if above else "at least"
        raise BadRequest(
            f"{name} is {value}; it must be {rule} {low:g} and at most {MAX_GUIDANCE:g}.",
            param=name,
        )
    return float(value)


def _no_effect(param: str, reason: str) -> Notice:
    return Notice("option_without_effect", param, f"{param} had no effect: {reason}.")
