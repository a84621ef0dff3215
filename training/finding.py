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
HIDDEN = 300.0  # squared difference a row: the middle counts where both borders are hidden
DIFFERENCE = 40  # of 255, in the channel that differs most; blur and noise of a decode stay below
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

    def joined(self, other: Box) -> Box:
        return Box(
            min(self.left, other.left),
            min(self.top, other.top),
            max(self.right, other.right),
            max(self.bottom, other.bottom),
        )


def background_rows(pixels: np.ndarray) -> np.ndarray:
    """Each row's colour behind the objects, float [height, 3], of uint8 [height, width, 3].

    An object may hide a border in some rows: of all ways down the picture that take the left, the
    middle or the right strip's colour in each row, the one whose colour changes least (Viterbi).
    """
    width = max(2, round(STRIP * pixels.shape[1]))
    middle = (pixels.shape[1] - width) // 2
    strips = (pixels[:, :width], pixels[:, middle : middle + width], pixels[:, -width:])
    colours = np.stack([np.median(strip, 1) for strip in strips], 1)  # [height, 3 strips, 3]
    distrust = np.array([0.0, HIDDEN, 0.0])
    costs = distrust
    came_from = []
    for above, row in pairwise(colours):
        # Squares: many small changes by noise cost less than one step onto an object.
        steps = costs[:, None] + np.square(above[:, None] - row[None]).sum(-1) + distrust
        came_from.append(steps.argmin(0))
        costs = steps.min(0)
    way = [int(costs.argmin())]
    for choice in reversed(came_from):
        way.append(int(choice[way[-1]]))
    rows: np.ndarray = colours[np.arange(len(colours)), way[::-1]]
    return rows


def foreground(pixels: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Where the picture (uint8 [h, w, 3]) is not its row's background [h, 3]: bool [h, w]."""
    mask: np.ndarray = np.abs(pixels - rows[:, None]).max(-1) > DIFFERENCE
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
    """Parts, largest first; a small one beside a much larger one becomes a piece of it."""
    kept: list[tuple[Box, int]] = []
    for box, area in sorted(parts, key=lambda part: -part[1]):
        for i, (large, large_area) in enumerate(kept):
            if area < CRUMB * large_area and box.distance(large) <= near_px:
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
