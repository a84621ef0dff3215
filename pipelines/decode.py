"""Finished latents to 8-bit pictures, many at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pipelines.flux import Flux
from pipelines.requests import Pixels
from pipelines.row import Row


@dataclass(slots=True, eq=False)
class Decoding:
    """Pictures under way on the device's stream to the host. `rows` keeps what it reads alive."""

    rows: list[Row]
    packed: Tensor  # [rows, height * width * 3 + 1], 8 bits; not to be read before `ready`
    ready: torch.cuda.Event | None  # None: already here
    dropped: set[str] = field(default_factory=set)  # requests that no longer want their pictures

    @property
    def is_ready(self) -> bool:
        return self.ready is None or self.ready.query()

    def pictures(self) -> list[Pixels | None]:
        """Waits for them. None stands for one with NaN or infinity in it."""
        if self.ready is not None:
            self.ready.synchronize()
        request = self.rows[0].request
        shape = (request.height, request.width, 3)
        return [row[:-1].reshape(shape) if row[-1] else None for row in self.packed.numpy()]


def decode_rows(model: Flux, rows: Sequence[Row]) -> Decoding:
    """Begins the pictures of finished rows of one size, all in one decode and one copy."""
    pictures = model.decode(torch.stack([row.latents for row in rows]), rows[0].grid)
    is_finite = pictures.isfinite().flatten(1).all(1, keepdim=True)
    packed = torch.cat([to_8_bits(pictures).flatten(1), is_finite.to(torch.uint8)], dim=1)
    if packed.device.type != "cuda":
        return Decoding(list(rows), packed.cpu(), None)
    packed = packed.to("cpu", non_blocking=True)  # pinned, so the host need not wait
    ready = torch.cuda.Event()
    ready.record()
    return Decoding(list(rows), packed, ready)


def to_pixels(pictures: Tensor) -> list[Pixels]:
    """`[rows, 3, height, width]` of -1 to 1 to pictures of 8 bits."""
    return list(to_8_bits(pictures).cpu().numpy())


def to_8_bits(pictures: Tensor) -> Tensor:
    """`[rows, 3, height, width]`, float32, to `[rows, height, width, 3]`, as diffusers rounds."""
    scaled = (pictures * 0.5 + 0.5).clamp(0, 1) * 255.0
    return scaled.round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
