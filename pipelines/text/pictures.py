"""Pictures in a prompt: rows that a vision tower makes of them stand where tokens would.

A row gets a number below zero instead of a token. So a prompt stays a list of numbers, and one that
goes on from the same picture has the same beginning. The numbers hang on the picture's bytes.
"""

import hashlib
import io
import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedModel

MAX_PICTURES = 64  # kept: those of 16 requests with four each
MAX_IN_PROMPT = 4
MAX_PATCHES = 16384  # of a picture, as Kimi K2.5 reads it; a larger one is made smaller
MAX_PATCHES_ON_SIDE = 512


@dataclass(frozen=True, slots=True)
class Patches:
    """A picture cut up."""

    pixels: Tensor  # float32 [patches, 3, size, size], -1 to 1
    rows: int
    columns: int


def cut(encoded: bytes, size: int, merge: int) -> Patches:
    """Patches of `size` pixels, in rows and columns that `merge` divides: black behind the edges.

    Pictures are made smaller, never larger. Raises `ValueError` for what is no picture.
    """
    try:
        picture = Image.open(io.BytesIO(encoded)).convert("RGB")
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError("a picture cannot be read: send PNG, JPEG or WebP") from error
    width, height = picture.size
    count = max(1, width // size) * max(1, height // size)
    most = MAX_PATCHES_ON_SIDE * size
    scale = min(1.0, math.sqrt(MAX_PATCHES / count), most / width, most / height)
    if scale < 1:
        width, height = max(1, int(width * scale)), max(1, int(height * scale))
        picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(picture)).float()
    step = size * merge
    edges = (0, 0, 0, -width % step, 0, -height % step)
    pixels = torch.nn.functional.pad(pixels, edges) / 127.5 - 1
    rows, columns = pixels.shape[0] // size, pixels.shape[1] // size
    patches = pixels.view(rows, size, columns, size, 3).permute(0, 2, 4, 1, 3)
    return Patches(patches.reshape(-1, 3, size, size), rows, columns)


class PictureReader:
    """Kimi K2.5's eyes: its own vision tower and projection."""

    def __init__(self, module: PreTrainedModel) -> None:
        self._model = module.model
        self._marker = int(module.config.image_token_id)
        vision = module.config.vision_config
        self._size = int(vision.patch_size)
        self._merge = int(vision.merge_kernel_size[0])
        self._firsts: OrderedDict[bytes, int] = OrderedDict()  # hash -> number of the first row
        self._rows: dict[int, Tensor] = {}  # that number -> [tokens, width]
        self._next = -1

    def place(self, ids: Sequence[int], pictures: Sequence[bytes]) -> list[int]:
        """`ids` with the rows' numbers where the template left one marker for each picture.

        Raises `ValueError` for too many, and where the template left none.
        """
        if len(pictures) > MAX_IN_PROMPT:
            raise ValueError(f"{len(pictures)} pictures are too many: send {MAX_IN_PROMPT} at most")
        if ids.count(self._marker) != len(pictures):
            raise ValueError("the model's chat template has no place for these pictures")
        waiting = iter(pictures)
        placed: list[int] = []
        for token in ids:
            placed += self._numbers(next(waiting)) if token == self._marker else [token]
        return placed

    def rows(self, numbers: Sequence[int]) -> Tensor:  # [numbers, width]
        """What stands for the numbers in place of embedded tokens."""
        rows = []
        for number in numbers:
            first = min(first for first in self._rows if first >= number)
            rows.append(self._rows[first][first - number])
        return torch.stack(rows)

    def _numbers(self, encoded: bytes) -> range:
        """The picture's numbers: first, first - 1 and so on."""
        key = hashlib.sha256(encoded).digest()
        if key not in self._firsts:
            rows = self._read(cut(encoded, self._size, self._merge))
            self._firsts[key] = self._next
            self._rows[self._next] = rows
            self._next -= len(rows)
            if len(self._firsts) > MAX_PICTURES:
                del self._rows[self._firsts.popitem(last=False)[1]]
        self._firsts.move_to_end(key)
        first = self._firsts[key]
        return range(first, first - len(self._rows[first]), -1)

    @torch.no_grad()
    def _read(self, patches: Patches) -> Tensor:
        tower = next(self._model.vision_tower.parameters())
        grid = torch.tensor([[1, patches.rows, patches.columns]], device=tower.device)
        pixels = patches.pixels.to(tower.device, tower.dtype)
        rows: Tensor = self._model.get_image_features(pixels, grid).pooler_output[0]
        return rows


def open_reader(module: PreTrainedModel) -> PictureReader | None:
    """None for a model that sees none, or in a way that is not known here."""
    return PictureReader(module) if module.config.model_type == "kimi_k25" else None
