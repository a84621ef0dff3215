"""What a picture shows of what was asked, by rules on its pixels alone."""

from __future__ import annotations

from functools import lru_cache
from itertools import permutations

import numpy as np

from training.compositions import COLOURS, SETTINGS, SIZES
from training.drawing import Sprites, paint_background, paint_setting
from training.emoji import BY_NAME
from training.finding import Box, crop

ROWS = 32  # of a background's profile
OFF_CENTRE = 0.1  # of the picture: between a centred object's jitter and the outer places
# Between the sides that training draws.
SMALL = (SIZES["small"][1] + SIZES["medium"][0]) / 2
LARGE = (SIZES["medium"][1] + SIZES["large"][0]) / 2
PAINT_PX = 64
BLOCK_PX = 32


def background_of(rows: np.ndarray) -> tuple[str, ...]:
    """The colour, the two of a gradient from top to bottom, or the setting that is nearest.

    ``rows``: the rows' colours [height, 3], against those of a drawing of each.
    """
    names, drawn = _backgrounds(len(rows))
    distances = np.abs(drawn - _profile(rows)).mean((1, 2))
    return names[int(distances.argmin())]


@lru_cache(maxsize=32)
def _backgrounds(height: int) -> tuple[list[tuple[str, ...]], np.ndarray]:
    """Names and profiles [n, ROWS, 3] of every background of this height in pixels."""
    colours = [*((colour,) for colour in COLOURS), *permutations(COLOURS, 2)]
    settings = [(setting,) for setting in SETTINGS]
    drawn = [paint_background(colour, 1, height)[:, 0] for colour in colours]
    drawn += [paint_setting(setting, 1, height)[:, 0] for (setting,) in settings]
    return [*colours, *settings], np.stack([_profile(rows) for rows in drawn])


def _profile(rows: np.ndarray) -> np.ndarray:
    """[height, 3] -> [ROWS, 3]: medians of bands of equal height."""
    return np.stack([np.median(band, 0) for band in np.array_split(rows.astype(float), ROWS)])


def place_of(box: Box, width: int, height: int) -> str:
    """ "left", "top right" ... or "centre", by the middle of the box."""
    x, y = box.centre[0] / width - 0.5, box.centre[1] / height - 0.5
    words = [_side(y, "top", "bottom"), _side(x, "left", "right")]
    return " ".join(word for word in words if word) or "centre"


def _side(offset: float, before: str, after: str) -> str:
    return "" if abs(offset) <= OFF_CENTRE else before if offset < 0 else after


def size_of(box: Box, width: int, height: int) -> str:
    """ "small", "large", or "medium" for what is between, in a picture of native size."""
    side = box.side / min(width, height)
    return "small" if side < SMALL else "large" if side > LARGE else "medium"


def arrangement_of(first: Box, second: Box) -> str:
    """How the first stands to the second: "left of", "right of", "above" or "below"."""
    x, y = (a - b for a, b in zip(first.centre, second.centre, strict=True))
    if abs(x) >= abs(y):
        return "left of" if x < 0 else "right of"
    return "above" if y < 0 else "below"


def paint_of(pixels: np.ndarray, box: Box, name: str, sprites: Sprites) -> str:
    """The colour that the named object is painted in; "" for its own.

    The median under the icon's paint, laid over the box, against the same of the icon in each
    colour: an icon's shading moves the median away from the palette.
    """
    mask, medians = _paint(name, sprites)
    seen = np.median(crop(pixels, box, 1.0, PAINT_PX)[mask], 0)
    return min(medians, key=lambda colour: float(np.abs(medians[colour] - seen).sum()))


@lru_cache(maxsize=256)
def _paint(name: str, sprites: Sprites) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Where the icon is painted [PAINT_PX, PAINT_PX], and the median there for each colour."""
    colours = ["", *(colour for colour in COLOURS if colour != BY_NAME[name].colour)]
    forms = {c: np.asarray(sprites.sized(name, c, PAINT_PX), float)[..., :3] for c in colours}
    alpha = np.asarray(sprites.sized(name, "", PAINT_PX))[..., 3]
    painted = np.ptp(np.stack(list(forms.values())), axis=0).max(-1)
    mask = (alpha > 250) & (painted > painted.max() / 2)
    return mask, {colour: np.median(form[mask], 0) for colour, form in forms.items()}


def ssim(first: np.ndarray, second: np.ndarray) -> float:
    """Structural similarity of two pictures' luminance, uint8 [h, w, 3]; 1: they are equal.

    Wang et al. 2004, equation 13, with an 11x11 Gaussian of deviation 1.5.
    """
    x, y = luminance(first), luminance(second)
    mean_x, mean_y = _blurred(x), _blurred(y)
    variance_x = _blurred(x * x) - mean_x**2
    variance_y = _blurred(y * y) - mean_y**2
    covariance = _blurred(x * y) - mean_x * mean_y
    c1, c2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2
    alike = (2 * mean_x * mean_y + c1) * (2 * covariance + c2)
    return float((alike / ((mean_x**2 + mean_y**2 + c1) * (variance_x + variance_y + c2))).mean())


def luminance(pixels: np.ndarray) -> np.ndarray:
    """Rec. 601, 0 to 255, float [h, w]."""
    grey: np.ndarray = pixels.astype(float) @ np.array([0.299, 0.587, 0.114])
    return grey


def _blurred(picture: np.ndarray) -> np.ndarray:
    """[h, w] -> [h - 10, w - 10]: the window lies inside the picture everywhere."""
    offsets = np.arange(11) - 5
    weights = np.exp(-(offsets**2) / (2 * 1.5**2))
    weights /= weights.sum()
    for axis in (0, 1):
        windows = np.lib.stride_tricks.sliding_window_view(picture, 11, axis)
        picture = windows @ weights
    return picture


def colour_shift(first: np.ndarray, second: np.ndarray) -> float:
    """How far the colours of places moved, 0 to 255: mean over blocks, worst channel of each."""
    shift = np.abs(_blocks(first) - _blocks(second))
    return float(shift.max(-1).mean())


def _blocks(pixels: np.ndarray) -> np.ndarray:
    """Mean colours of blocks of BLOCK_PX squared."""
    height, width = (side // BLOCK_PX for side in pixels.shape[:2])
    cut = pixels[: height * BLOCK_PX, : width * BLOCK_PX].astype(float)
    means: np.ndarray = cut.reshape(height, BLOCK_PX, width, BLOCK_PX, 3).mean((1, 3))
    return means
