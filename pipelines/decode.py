"""Finished latents to 8-bit pictures, many at once under a bound on pixels."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from pipelines.denoise import Row
from pipelines.errors import NotFinite
from pipelines.flux1 import Flux1, Grid
from pipelines.requests import Pixels

# CUDA: FLUX.1's decoder holds about 1 kB a pixel in bfloat16 (256 + 128 channels at full size and
# what a residual block keeps), calculated. CPU: together is slower than alone; a decoder of the
# embedded one's shape took 142 ms for a picture of 256 x 256, 182 ms each for two, 233 ms for four.
MAX_PIXELS = {"cuda": 4 * 1024 * 1024, "cpu": 256 * 256}


def decode_batches(rows: Sequence[Row], max_pixels: int) -> Iterator[list[Row]]:
    """Rows of one size, `max_pixels` together at most unless a single one has more."""
    by_grid: dict[Grid, list[Row]] = {}
    for row in rows:
        by_grid.setdefault(row.grid, []).append(row)
    for same in by_grid.values():
        count = max(1, max_pixels // (same[0].request.width * same[0].request.height))
        for start in range(0, len(same), count):
            yield same[start : start + count]


def decode_rows(model: Flux1, rows: Sequence[Row]) -> list[Pixels]:
    """Pictures of finished rows of one size. Raises NotFinite where the VAE gives NaN."""
    pictures = model.decode(torch.stack([row.latents for row in rows]), rows[0].grid)
    if not pictures.isfinite().all():
        raise NotFinite("The VAE's picture has values that are not numbers. Try another seed.")
    return to_pixels(pictures)


def to_pixels(pictures: Tensor) -> list[Pixels]:
    """`[rows, 3, height, width]` of -1 to 1 to 8 bits, rounded as diffusers rounds."""
    scaled = (pictures * 0.5 + 0.5).clamp(0, 1) * 255.0
    return list(scaled.round().to(torch.uint8).permute(0, 2, 3, 1).cpu().contiguous().numpy())
