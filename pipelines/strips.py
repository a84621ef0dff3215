"""A feature map in strips of whole rows, with the moments that a GroupNorm over all rows needs."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


class Moments:
    """Mean and variance of each channel over every row that was added.

    Strips are merged by the update of Chan, Golub and LeVeque (1979), so that a mean far from zero
    costs no accuracy.
    """

    def __init__(self) -> None:
        self._pixels = 0
        # [pictures, channels], float64: the mean, and the sum of squared distances to it.
        self._mean: Tensor | float = 0.0
        self._squares: Tensor | float = 0.0

    def add(self, x: Tensor) -> None:
        """Rows `[pictures, channels, rows, width]`; a strip is summed in float32."""
        x = x.float()
        mean = x.mean((2, 3), keepdim=True)
        # 28 ms for 128 channels of 64 x 1024 pixels, where torch.var_mean takes 47 (CPU, one core).
        squares = (x - mean).square_().sum((2, 3)).double()
        added = x.shape[2] * x.shape[3]
        total = self._pixels + added
        apart = mean[:, :, 0, 0].double() - self._mean
        self._mean = self._mean + apart * (added / total)
        self._squares = self._squares + squares + apart**2 * (self._pixels * added / total)
        self._pixels = total

    def scale_and_shift(self, norm: nn.GroupNorm) -> tuple[Tensor, Tensor]:
        """The norm as `x * scale + shift`, each `[pictures, channels, 1, 1]`, float32."""
        assert isinstance(self._mean, Tensor) and isinstance(self._squares, Tensor)
        means = self._mean.unflatten(1, (norm.num_groups, -1))  # [pictures, groups, channels]
        mean = means.mean(2, keepdim=True)
        between = (means - mean).square().mean(2, keepdim=True)
        within = (self._squares / self._pixels).view_as(means).mean(2, keepdim=True)
        scale = (within + between + norm.eps).rsqrt().expand_as(means).flatten(1) * norm.weight
        shift = norm.bias - mean.expand_as(means).flatten(1) * scale
        return scale[:, :, None, None].float(), shift[:, :, None, None].float()


@dataclass(slots=True)
class Part:
    """One strip. `near` is its copy on the model's device while it is being read."""

    first: int  # its uppermost row
    kept: Tensor  # [pictures, channels, rows, width], where strips wait
    near: Tensor | None = None

    @property
    def end(self) -> int:
        return self.first + self.kept.shape[2]


class Strips:
    """`[pictures, channels, height, width]`: filled and read from the top down."""

    def __init__(self) -> None:
        self.moments = Moments()
        self.height = 0
        self._parts: list[Part] = []
        self._device = torch.device("cpu")  # the model's, known with the first rows

    @property
    def channels(self) -> int:
        return self._parts[0].kept.shape[1]

    @property
    def width(self) -> int:
        return self._parts[0].kept.shape[3]

    def append(self, x: Tensor) -> None:
        """Rows that follow below."""
        self.moments.add(x)
        self._device = x.device
        self._parts.append(Part(self.height, put_by(x)))
        self.height += x.shape[2]

    def rows(self, top: int, bottom: int) -> Tensor:
        """From `top` to before `bottom`, as far as there are, on the model's device.

        A copy there is dropped once reading has passed it.
        """
        found = []
        for part in self._parts:
            if part.end <= top:
                part.near = None
            elif part.first < bottom:
                part.near = fetch(part.kept, self._device) if part.near is None else part.near
                found.append(part.near[:, :, max(0, top - part.first) : bottom - part.first])
        return found[0] if len(found) == 1 else torch.cat(found, dim=2)

    def forget(self, above: int) -> None:
        """Frees the strips that end above that row."""
        self._parts = [part for part in self._parts if part.end > above]


# Strips wait beside the model on a CPU, and in pinned memory of the host for a GPU. Both copies of
# those run on the current stream without the host's waiting for them, so nothing may read a strip
# but what `fetch` gave, and a strip is fetched whole: the host would gather a part of its rows.


def put_by(x: Tensor) -> Tensor:
    """Without the halo that was cut off, in the memory layout that it has."""
    is_last = x.stride(1) == 1
    x = x.contiguous(memory_format=torch.channels_last if is_last else torch.contiguous_format)
    return x.to("cpu", non_blocking=True) if x.device.type == "cuda" else x


def fetch(kept: Tensor, device: torch.device) -> Tensor:
    return kept.to(device, non_blocking=True)
