"""Cheap looks at a picture that is still being made. Nothing here touches the picture itself."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from pipelines.decode import to_pixels
from pipelines.failures import Failure, attempt
from pipelines.flux import Flux
from pipelines.grid import unpack
from pipelines.requests import Pixels
from pipelines.row import Row

INTERVAL_S = 0.5  # between two previews of one request: a person follows no faster
PAUSE = 4  # times the last preview's cost before the next of any request: a fifth of the time
MAX_VAE_TOKENS = 256  # FLUX.1 at 256 x 256; beyond, a decode costs as much as a good part of a step


class Previewer:
    """Draws one row at a time, with the VAE where pictures are small, else by a matrix to RGB.

    Decoding pooled latents would be four times cheaper, but gave blobs (21 dB against the pooled
    full decode, on the embedded VAE).
    """

    def __init__(self, model: Flux, clock: Callable[[], float]) -> None:
        self._model = model
        self._clock = clock
        self._next_s = -math.inf
        self._matrix: Tensor | None = None  # [channels + 1, 3]
        if model.spec.max_pixels > MAX_VAE_TOKENS * model.spec.size_multiple**2:
            # An engine must start without, too; then the first preview tries again.
            matrix = attempt(partial(fit_matrix, model))
            self._matrix = None if isinstance(matrix, Failure) else matrix

    def choose(self, rows: Sequence[Row]) -> Row | None:
        """The row that was shown longest ago, of a request that is due, if there is time at all."""
        now_s = self._clock()
        if now_s < self._next_s:
            return None
        shown_s: dict[str, float] = {}
        for row in rows:
            shown_s[row.request.id] = max(row.previewed_s, shown_s.get(row.request.id, -math.inf))
        due = [row for row in rows if now_s - shown_s[row.request.id] >= INTERVAL_S]
        return min(
            (row for row in due if not row.is_finished),
            key=lambda row: row.previewed_s,
            default=None,
        )

    def draw(self, row: Row) -> Pixels:
        """The finished picture as foreseen now; of latent size where the matrix draws it."""
        began_s = self._clock()
        try:
            return self._pixels(row)
        finally:
            row.previewed_s = self._clock()
            self._next_s = row.previewed_s + PAUSE * (row.previewed_s - began_s)

    def _pixels(self, row: Row) -> Pixels:
        latents = row.clean_latents()[None]
        if row.grid.tokens <= MAX_VAE_TOKENS:
            return to_pixels(self._model.decode(latents, row.grid))[0]
        if self._matrix is None:
            self._matrix = fit_matrix(self._model)
        return to_pixels(_project(unpack(latents, row.grid), self._matrix))[0]


@torch.inference_mode()
def fit_matrix(model: Flux) -> Tensor:
    """Least squares from the latents of drawn colour patches to the patches' colours.

    Fitted on the VAE at hand, so no table of numbers belongs to one checkpoint.
    """
    scale = model.spec.size_multiple // 2  # pixels a latent
    picture = _patches(side=16, patch_px=2 * scale)
    shown = model.reference(to_pixels(picture[None])[0])
    latents = unpack(shown.latents[None], shown.grid)
    colours = F.avg_pool2d(picture.to(model.device), scale)
    inputs = _with_one(latents)[0].flatten(1).T
    return torch.linalg.lstsq(inputs.cpu(), colours.flatten(1).T.cpu()).solution.to(model.device)


def _patches(side: int, patch_px: int) -> Tensor:
    """`[3, height, width]`: `side` x `side` random colours, blurred a little into one another."""
    generator = torch.Generator("cpu").manual_seed(0)
    colours = torch.rand((1, 3, side, side), generator=generator) * 2 - 1
    size = (side * patch_px, side * patch_px)
    return F.interpolate(colours, size=size, mode="bilinear", align_corners=False)[0]


def _project(latents: Tensor, matrix: Tensor) -> Tensor:
    return torch.einsum("nchw,cd->ndhw", _with_one(latents), matrix)


def _with_one(latents: Tensor) -> Tensor:
    return torch.cat([latents, torch.ones_like(latents[:, :1])], dim=1)
