"""What a picture shows: boxes by ``finding.py``, names and doubtful borders by the judge.

Objects that touch are one part to the finder, and an object with pieces in its background's colour
is several. Where the judge knows no whole object in a part, it is asked about cuts and joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from training.autoencoder import to_model
from training.finding import Box, background_rows, crop, find, foreground, ink
from training.judge import MARGIN, NAMES, SIDE_PX, Judge

KNOWN = 0.5  # the judge's probability from which a part is an object
CUTS = (0.33, 0.42, 0.5, 0.58, 0.67)  # of a part's width or height
SMALLEST = 0.15  # of the picture's shorter side; nothing that a cut leaves is smaller
TRIED = 2  # cuts of a part that are followed up, the surest first
DEPTH = 2  # cuts one after the other: enough for three objects in a part
APART = 0.15  # of the shorter side: pieces of one object are nearer


@dataclass(frozen=True, slots=True)
class Seen:
    """An object in a picture; ``name`` is "" for what is no whole object that the judge knows."""

    name: str
    box: Box


@dataclass(frozen=True, slots=True)
class Part:
    """A box with the judge's best name, and the probability of that."""

    box: Box
    name: str
    probability: float

    @property
    def sureness(self) -> float:
        """That it is one whole object."""
        return self.probability if self.name else 0.0

    @property
    def is_known(self) -> bool:
        return self.sureness >= KNOWN


class Reader:
    """Reads one picture, uint8 [h, w, 3]."""

    def __init__(self, judge: Judge, pixels: np.ndarray) -> None:
        self.judge, self.pixels = judge, pixels
        self.rows = background_rows(pixels)
        self.mask = foreground(pixels, self.rows)
        self.shorter = min(pixels.shape[:2])

    def read(self) -> list[Seen]:
        """Everything in front of the background, the largest first."""
        parts = self._joined(self.name(find(self.mask)))
        whole = [piece for part in parts for piece in self._separate(part, DEPTH) or [part]]
        whole.sort(key=lambda part: -part.box.width * part.box.height)
        return [Seen(part.name, part.box) for part in whole]

    def name(self, boxes: Sequence[Box]) -> list[Part]:
        """Each box with the judge's word for it."""
        if not boxes:
            return []
        crops = np.stack([crop(self.pixels, box, MARGIN, SIDE_PX) for box in boxes])
        best = _probabilities(self.judge, crops).max(-1)
        return [
            Part(box, NAMES[i], p)
            for box, i, p in zip(boxes, best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def _joined(self, parts: list[Part]) -> list[Part]:
        """Near parts as one while that is a surer object than either."""
        while True:
            near = [
                (a, b)
                for a, b in combinations(parts, 2)
                if a.box.distance(b.box) < APART * self.shorter and not (a.is_known and b.is_known)
            ]
            unions = self.name([a.box.joined(b.box) for a, b in near])
            better = [
                (union.sureness, i)
                for i, (union, (a, b)) in enumerate(zip(unions, near, strict=True))
                if union.is_known and union.sureness > max(a.sureness, b.sureness)
            ]
            if not better:
                return parts
            best = max(better)[1]
            parts = [part for part in parts if part not in near[best]] + [unions[best]]

    def _separate(self, part: Part, depth: int) -> list[Part] | None:
        """The objects that the part is made of; None where no cut leaves known ones alone."""
        if part.is_known:
            return [part]
        if depth == 0:
            return None
        halves = self._cuts(part.box)
        named = self.name([box for pair in halves for box in pair])
        pairs = list(zip(named[::2], named[1::2], strict=True))
        pairs.sort(key=lambda pair: -sum(half.sureness for half in pair))
        for pair in pairs[:TRIED]:
            found = [self._separate(half, depth - 1) for half in pair]
            if all(found):
                return [piece for pieces in found for piece in pieces or []]
        return None

    def _cuts(self, box: Box) -> list[tuple[Box, Box]]:
        """Two parts of the box, beside or above each other, each drawn in to its ink."""
        cuts = [box.cut(share, is_across) for share in CUTS for is_across in (False, True)]
        parts = [(ink(self.mask, first), ink(self.mask, second)) for first, second in cuts]
        least = SMALLEST * self.shorter
        return [
            (first, second)
            for first, second in parts
            if first and second and min(first.side, second.side) >= least
        ]


def _probabilities(judge: Judge, crops: np.ndarray) -> Tensor:
    """[n, names] of uint8 [n, 64, 64, 3]."""
    with torch.no_grad():
        return judge(to_model(torch.from_numpy(crops))).softmax(-1)


def read(judge: Judge, pixels: np.ndarray) -> list[Seen]:
    """What the picture, uint8 [h, w, 3], shows, the largest first."""
    return Reader(judge, pixels).read()
