"""Finds the objects of a picture without knowing them: what differs from the row it stands in.

Backgrounds of the embedded model (one colour, a gradient from top to bottom, a setting) are one
colour along a row, so that it can be read where no object stands.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from PIL import Image

STRIP = 0.02  # of the width
NOISE = 6  # of a row's colour against the next, all channels: no change of the background
SMOOTH = 5  # rows: a median of them takes the noise away and keeps a horizon
HIDDEN = 4.0  # the price of a row in the middle, which is for rows with both borders hidden
OFF_TREND = 10  # of 255, in the channel that differs most
DIFFERENCE = (14, 40)  # of 255, in the channel that differs most: least and most
EDGE = 0.06  # of the shorter side
CELLS = 64  # of the grid along the shorter side
FILLED = 0.3  # share of a cell's pixels
SPECKLE = 0.004  # of the picture's area: stars and snowflakes are smaller, small objects larger
CRUMB = 0.2  # of the larger part's area: less than that is a piece of it, where it stands near
NEAR = 0.06  # of the shorter side


@dataclass(frozen=True, slots=True)
class Box:
    """Left, top, right, bottom in pixels, the last two outside."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def side(self) -> int:
        return max(self.width, self.height)

    @property
    def centre(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2

    def distance(self, other: Box) -> int:
        """Pixels between the two along the axis on which they are farther apart; 0: they meet."""
        across = max(self.left - other.right, other.left - self.right)
        down = max(self.top - other.bottom, other.top - self.bottom)
        return max(across, down, 0)

    def holds(self, other: Box) -> bool:
        """Whether the other lies within."""
        return self == self.joined(other)

    def cut(self, share: float, is_across: bool) -> tuple[Box, Box]:
        """Left and right part, or upper and lower one, the first with ``share`` of the box."""
        left, top, right, bottom = self.left, self.top, self.right, self.bottom
        if is_across:
            y = top + round(share * self.height)
            return Box(left, top, right, y), Box(left, y, right, bottom)
        x = left + round(share * self.width)
        return Box(left, top, x, bottom), Box(x, top, right, bottom)

    def joined(self, other: Box) -> Box:
        """The smallest box that holds both."""
        return Box(
            min(self.left, other.left),
            min(self.top, other.top),
            max(self.right, other.right),
            max(self.bottom, other.bottom),
        )


def background_rows(pixels: np.ndarray) -> np.ndarray:
    """Each row's colour behind the objects, float [height, 3], of uint8 [height, width, 3]."""
    strips = _strips(pixels)
    rows = strips[np.arange(len(strips)), _way_down(_smooth(strips, SMOOTH))]
    trend = _smooth(rows, len(rows) // 3)
    # Off the trend while a strip of that row is on it: an object's edge has led the way astray.
    # A line across the whole picture, such as a wave, has no strip on the trend.
    distances = np.abs(strips - trend[:, None]).max(-1)
    is_astray = np.abs(rows - trend).max(-1) > OFF_TREND
    is_seen = distances.min(1) <= OFF_TREND
    nearest = strips[np.arange(len(strips)), distances.argmin(1)]
    mended: np.ndarray = np.where((is_astray & is_seen)[:, None], nearest, rows)
    return mended


def _way_down(strips: np.ndarray) -> np.ndarray:
    """The strip to read in each row: an object may hide a border in some of them.

    Of all ways down the picture, the one whose colour changes least (Viterbi).
    """
    distrust = np.array([0.0, HIDDEN, 0.0])  # left, middle, right
    costs = distrust
    came_from = []
    for above, row in pairwise(strips):
        changes = np.abs(above[:, None] - row[None]).sum(-1)
        steps = costs[:, None] + (changes - NOISE).clip(0) + distrust
        came_from.append(steps.argmin(0))
        costs = steps.min(0)
    way = [int(costs.argmin())]
    for choice in reversed(came_from):
        way.append(int(choice[way[-1]]))
    return np.array(way[::-1])


def _strips(pixels: np.ndarray) -> np.ndarray:
    """Colours of the left, middle and right strip: float [height, 3 strips, 3]."""
    width = max(2, round(STRIP * pixels.shape[1]))
    middle = (pixels.shape[1] - width) // 2
    strips = [pixels[:, left : left + width] for left in (0, middle, pixels.shape[1] - width)]
    return np.stack([np.median(strip, 1) for strip in strips], 1)


def _smooth(rows: np.ndarray, count: int) -> np.ndarray:
    """Medians of ``count`` rows (an odd number) around each; slopes go on beyond the ends."""
    half = count // 2
    around = ((half, half), *((0, 0),) * (rows.ndim - 1))
    padded = np.pad(rows, around, mode="reflect", reflect_type="odd")
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1, 0)
    smooth: np.ndarray = np.median(windows, -1)
    return smooth


def foreground(pixels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Where the picture (uint8 [h, w, 3]) is not its row's background [h, 3]: bool [h, w].

    How much is a difference follows from how even the picture's edge is (a drawing's is perfect),
    and from how fast the background changes there: a horizon may lie a pixel higher elsewhere.
    """
    difference = np.abs(pixels - rows[:, None]).max(-1)
    width = max(2, round(EDGE * min(difference.shape)))
    edges = (difference[:width], difference[-width:], difference[:, :width], difference[:, -width:])
    uneven = np.percentile(np.concatenate([edge.ravel() for edge in edges]), 80)
    least = np.clip(3 * uneven, *DIFFERENCE)
    padded = np.pad(rows, ((2, 2), (0, 0)), mode="edge")
    slope = np.ptp(np.lib.stride_tricks.sliding_window_view(padded, 5, 0), axis=-1).max(-1)
    mask: np.ndarray = difference > np.maximum(least, slope)[:, None]
    return mask


def find(mask: np.ndarray) -> list[Box]:
    """The boxes of what stands in front of the background, the largest area first."""
    size = max(2, min(mask.shape) // CELLS)
    parts = [(box, area) for box, area in _parts(mask, size) if area > SPECKLE * mask.size]
    return _with_crumbs(parts, NEAR * min(mask.shape))


def _parts(mask: np.ndarray, size: int) -> list[tuple[Box, int]]:
    """Connected cells of ``size`` pixels: the box of their pixels and how many those are."""
    height, width = (side // size for side in mask.shape)
    mask = mask[: height * size, : width * size]
    tiles = mask.reshape(height, size, width, size)
    filled = {(int(y), int(x)) for y, x in np.argwhere(tiles.mean((1, 3)) >= FILLED)}
    parts = []
    while filled:
        only = np.zeros((height, width), bool)
        only[tuple(np.array(_connected(filled)).T)] = True
        ys, xs = np.nonzero(only.repeat(size, 0).repeat(size, 1) & mask)
        box = Box(int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1)
        parts.append((box, len(ys)))
    return parts


def _connected(filled: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Takes one cell and all that touch it, corners included, out of the set."""
    cells = [filled.pop()]
    for y, x in cells:  # grows as it is read
        near = {(y + i, x + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & filled
        filled -= near
        cells += near
    return cells


def _with_crumbs(parts: list[tuple[Box, int]], near_px: float) -> list[Box]:
    """Parts, largest first; what lies in a larger one, or is small and near it, is its piece."""
    kept: list[tuple[Box, int]] = []
    for box, area in sorted(parts, key=lambda part: -part[1]):
        for i, (large, large_area) in enumerate(kept):
            is_crumb = area < CRUMB * large_area and box.distance(large) <= near_px
            if is_crumb or large.holds(box):
                kept[i] = (large.joined(box), large_area)
                break
        else:
            kept.append((box, area))
    return [box for box, _ in kept]


def ink(mask: np.ndarray, box: Box) -> Box | None:
    """The part of the box that the foreground fills, but for a hundredth at each edge."""
    ys, xs = np.nonzero(mask[box.top : box.bottom, box.left : box.right])
    if not len(ys):
        return None
    (left, right), (top, bottom) = (np.percentile(values, (1, 99)) for values in (xs, ys))
    x, y = box.left, box.top
    return Box(x + int(left), y + int(top), x + int(right) + 1, y + int(bottom) + 1)


def crop(pixels: np.ndarray, box: Box, margin: float, side: int) -> np.ndarray:
    """A square around the box, ``margin`` times its longer side, as uint8 [side, side, 3].

    Beyond the picture its border's pixels go on.
    """
    reach = max(2, round(margin * box.side / 2))
    x, y = (round(value) for value in box.centre)
    height, width = pixels.shape[:2]
    columns = np.arange(x - reach, x + reach).clip(0, width - 1)
    lines = np.arange(y - reach, y + reach).clip(0, height - 1)
    square = Image.fromarray(pixels[lines[:, None], columns])
    return np.asarray(square.resize((side, side), Image.Resampling.BILINEAR))
