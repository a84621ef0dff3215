"""From finished rows to pictures, in the order of finishing, without holding up those that step.

An engine's tick gives this a turn. A turn begins decodes of `max_px` pixels in all, and only when
the last turn's are done. On a GPU they run on a stream of their own, beside the next steps, and are
fetched in a later turn. Elsewhere a turn does them at once, so the others' steps wait for so many
pixels and no longer.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import torch

from pipelines.decode import Decoding, decode_rows
from pipelines.decode_memory import measure_max_px
from pipelines.errors import NotFinite, OutOfMemory
from pipelines.failures import Failure, attempt
from pipelines.flux import Flux
from pipelines.requests import Pixels
from pipelines.row import Row
from pipelines.strip_decoder import use_strips

NOT_FINITE = Failure(
    NotFinite.code, "The VAE's picture has values that are not numbers. Try another seed."
)
log = logging.getLogger(__name__)
T = TypeVar("T")


class DecodeQueue:
    """Finished rows in the order of finishing. Free of tensors."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def add(self, row: Row) -> None:
        self._rows.append(row)

    def drop(self, request_id: str) -> None:
        self._rows = [row for row in self._rows if row.request.id != request_id]

    def take(self, max_px: int) -> list[list[Row]]:
        """Batches of one size, `max_px` pixels in all unless the first row alone has more.

        Each is headed by the row that has waited longest, so no size waits for ever.
        """
        batches: list[list[Row]] = []
        while self._rows and (not batches or pixels(self._rows[:1]) <= max_px):
            batch = self._head(max_px)
            max_px -= pixels(batch)
            batches.append(batch)
        return batches

    def _head(self, max_px: int) -> list[Row]:
        """The oldest, with as many of its size behind it as there is room for."""
        grid = self._rows[0].grid
        count = max(1, max_px // pixels(self._rows[:1]))
        batch = [row for row in self._rows if row.grid == grid][:count]
        self._rows = [row for row in self._rows if row not in batch]
        return batch


class DecodeLine:
    """Batches rows under a bound on pixels that is measured first, and falls where it was wrong.

    A single picture above the bound is decoded in strips, where the VAE's decoder is a known one.
    """

    def __init__(
        self,
        model: Flux,
        decode: Callable[[Flux, Sequence[Row]], Decoding] = decode_rows,
    ) -> None:
        self._model = model
        self._decode = decode
        self._queue = DecodeQueue()
        self._under_way: list[Decoding] = []
        self._failed: list[tuple[Row, Failure]] = []
        self._side = SideStream(model.device)
        self.max_px = measure_max_px(model)
        self._strips = use_strips(model.vae, self.max_px)

    def add(self, row: Row) -> None:
        self._queue.add(row)

    def drop(self, request_id: str) -> None:
        """Forgets a request's rows; pictures of it that are under way are not told."""
        self._queue.drop(request_id)
        for decoding in self._under_way:
            decoding.dropped.add(request_id)

    def turn(self, may_wait: bool) -> list[tuple[Row, Pixels | Failure]]:
        """Begins what there is room for and tells what is done.

        `may_wait`: nothing else is to be done meanwhile, so pictures under way are waited for.
        """
        told = self._collect(may_wait)
        if not self._under_way:
            for batch in self._queue.take(self.max_px):
                self._begin(batch)
            told += self._collect(may_wait)
        failed, self._failed = self._failed, []
        return told + failed

    def _collect(self, may_wait: bool) -> list[tuple[Row, Pixels | Failure]]:
        told: list[tuple[Row, Pixels | Failure]] = []
        while self._under_way and (may_wait or self._under_way[0].is_ready):
            decoding = self._under_way.pop(0)
            for row, picture in zip(decoding.rows, decoding.pictures(), strict=True):
                if row.request.id not in decoding.dropped:
                    told.append((row, NOT_FINITE if picture is None else picture))
        return told

    def _begin(self, rows: list[Row]) -> bool:
        """Whether no row failed: where a batch does, its halves are tried, down to one row."""
        begun = attempt(partial(self._side.run, partial(self._decode, self._model, rows)))
        if isinstance(begun, Decoding):
            self._under_way.append(begun)
            return True
        is_memory = begun.code == OutOfMemory.code
        if len(rows) == 1:
            if is_memory and self._strips and pixels(rows) <= self._strips.max_plain_px:
                self._lower_bound(pixels(rows) // 2)
                return self._begin(rows)  # in strips now
            self._failed.append((rows[0], begun))
            return False
        middle = len(rows) // 2
        are_fine = self._begin(rows[:middle]) & self._begin(rows[middle:])
        if is_memory and are_fine:
            # No row was at fault: the batch was too large, and would be again.
            self._lower_bound(pixels(rows) // 2)
        return are_fine

    def _lower_bound(self, px: int) -> None:
        if px < self.max_px:
            log.warning("Out of memory: from now on %d pixels are decoded at once", px)
            self.max_px = px
            if self._strips:
                self._strips.max_plain_px = px


class SideStream:
    """Runs work beside the current stream of a CUDA device, and on other devices as it is."""

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def run(self, work: Callable[[], T]) -> T:
        """Queues `work` behind what the current stream was given until now."""
        if self._stream is None:
            return work()
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            return work()


def pixels(rows: Sequence[Row]) -> int:
    return sum(row.request.width * row.request.height for row in rows)
