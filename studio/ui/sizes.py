"""Shapes and sizes that the page offers, fitted to the loaded model. Pure arithmetic."""

import math
from dataclasses import dataclass

from pipelines.specs import ModelSpec
from studio.request import MIN_SIDE_PX
from studio.settle import default_size

RATIOS: dict[str, float] = {
    "1:1": 1.0,
    "3:2": 3 / 2,
    "2:3": 2 / 3,
    "4:3": 4 / 3,
    "3:4": 3 / 4,
    "16:9": 16 / 9,
    "9:16": 9 / 16,
}
MATCH = "match"  # the shape of the source picture
CUSTOM = "custom"  # width and height as typed
STANDARD = "standard"

# Half, twice and four times the native area: each step is clearly seen and costs as much more.
_AREAS: tuple[tuple[str, str, float], ...] = (
    ("small", "Small", 0.5),
    (STANDARD, "Standard", 1.0),
    ("large", "Large", 2.0),
    ("largest", "Largest", 4.0),
)


@dataclass(frozen=True, slots=True)
class Area:
    """One choice of how many pixels a picture has."""

    key: str
    label: str
    pixels: int


def areas(spec: ModelSpec) -> tuple[Area, ...]:
    """The choices that every shape can take on this model; `standard` is always among them."""
    native = spec.native_width * spec.native_height
    choices = [Area(key, label, round(native * factor)) for key, label, factor in _AREAS]
    return tuple(area for area in choices if area.key == STANDARD or _is_possible(area, spec))


def sides(ratio: float, pixels: int, spec: ModelSpec) -> tuple[int, int]:
    """Width and height of about `pixels` at `ratio`, on the model's grid and within its limits."""
    shortest = smallest_side(spec)
    scale = max(math.sqrt(pixels / ratio), shortest / min(ratio, 1.0))
    width, height = (_near(side, spec.size_multiple) for side in (scale * ratio, scale))
    while width * height > spec.max_pixels and max(width, height) > shortest:
        if width >= height:
            width -= spec.size_multiple
        else:
            height -= spec.size_multiple
    return max(width, shortest), max(height, shortest)


def size_of(
    shape: str, area_key: str, spec: ModelSpec, source_size: tuple[int, int] | None
) -> tuple[int, int]:
    """The size for one of the page's shapes (not `custom`) and areas."""
    pixels = next((area.pixels for area in areas(spec) if area.key == area_key), None)
    if shape == MATCH and source_size is not None:
        if area_key == STANDARD:
            return default_size(spec, source_size)
        return sides(source_size[0] / source_size[1], pixels or _native_area(spec), spec)
    return sides(RATIOS.get(shape, 1.0), pixels or _native_area(spec), spec)


def shape_of(width: int, height: int, spec: ModelSpec) -> tuple[str, str]:
    """The shape and area that make exactly this size; `custom` where none does."""
    standard_first = sorted(areas(spec), key=lambda area: area.key != STANDARD)
    for area in standard_first:
        for name in RATIOS:
            if size_of(name, area.key, spec, None) == (width, height):
                return name, area.key
    return CUSTOM, STANDARD


def smallest_side(spec: ModelSpec) -> int:
    """The shortest side in px that the model makes, on its grid."""
    smallest = max(MIN_SIDE_PX, spec.min_side_px)
    return math.ceil(smallest / spec.size_multiple) * spec.size_multiple


def largest_side(spec: ModelSpec) -> int:
    """The longest side in px that fits beside the shortest one."""
    longest = spec.max_pixels // smallest_side(spec)
    return longest // spec.size_multiple * spec.size_multiple


def _is_possible(area: Area, spec: ModelSpec) -> bool:
    return area.pixels <= spec.max_pixels and math.sqrt(area.pixels) >= smallest_side(spec)


def _native_area(spec: ModelSpec) -> int:
    return spec.native_width * spec.native_height


def _near(value: float, multiple: int) -> int:
    return max(1, round(value / multiple)) * multiple
