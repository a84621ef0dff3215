"""What the pictures of a request are to the model: one to start from, others to look at.

FLUX.1 starts from its one picture. Kontext looks at it. FLUX.2 looks at all; with a strength it
starts from the first and looks at the others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.specs import ModelSpec, snap_size
from studio.errors import BadRequest

Size = tuple[int, int]  # width, height in px
MIN_REFERENCE_PX = 64  # a side; smaller ones are enlarged
MAX_ASPECT = 8  # longer pictures are cropped to it around the middle


@dataclass(frozen=True, slots=True)
class Roles:
    """How many pictures are what; the start comes first."""

    has_start: bool = False
    references: int = 0


def roles_of(count: int, spec: ModelSpec, strength: float | None) -> Roles:
    """Raises `BadRequest` where the model takes fewer pictures."""
    if count == 0:
        return Roles()
    starts = spec.takes_start and (spec.max_references == 0 or strength is not None)
    roles = Roles(starts, count - starts)
    if roles.references > spec.max_references:
        raise BadRequest(f"input has {count} pictures; {_what_it_takes(spec)}", param="input")
    return roles


def _what_it_takes(spec: ModelSpec) -> str:
    if spec.max_references == 0:
        return f"{spec.name} starts from one."
    most = f"{spec.name} looks at {spec.max_references} at most"
    return f"{most}, beside one to start from with a strength." if spec.takes_start else f"{most}."


def starts_from_uploads(spec: ModelSpec) -> bool:
    """Whether a picture alone, without a word on strength, is the start."""
    return spec.takes_start and spec.max_references == 0


def reference_size(spec: ModelSpec, size: Size) -> Size:
    """What a picture to look at is scaled and cropped to: its shape, the native area at most."""
    width, height = min(size[0], MAX_ASPECT * size[1]), min(size[1], MAX_ASPECT * size[0])
    scale = math.sqrt(spec.native_width * spec.native_height / (width * height))
    if not spec.enlarges_references:
        scale = min(scale, 1.0)
    scale = max(scale, MIN_REFERENCE_PX / min(width, height))
    snapped = snap_size(spec, round(width * scale), round(height * scale))
    return max(snapped[0], spec.size_multiple), max(snapped[1], spec.size_multiple)


def fitted_sizes(sizes: Sequence[Size], roles: Roles, made: Size, spec: ModelSpec) -> list[Size]:
    """The size at which the engine takes each picture; `made` is that of the picture to make."""
    return [
        made if roles.has_start and index == 0 else reference_size(spec, size)
        for index, size in enumerate(sizes)
    ]
