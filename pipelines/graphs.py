"""CUDA graphs: a small forward's launches recorded once and replayed by one.

A forward of a small picture, or of the first block alone, ends on the device before Python has
launched the next one. A graph is a recording for tensors of fixed shapes at fixed addresses, so
inputs are copied in, the rows of very small ones are filled up to a bucket, and what comes out is
copied away. It reads the weights where they lay: one that was replaced, wrapped or hooked ends all
recordings.
"""

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from cachetools import LRUCache
from torch import Tensor, nn

log = logging.getLogger(__name__)
# Of all rows with their text: two pictures of 512 x 512. Not yet measured on a device.
MAX_TOKENS = 2 * (1024 + 512)
# Rows are filled up to one of these where all then have at most so many tokens: their time is the
# launches'. Above, a row more costs what a row costs, and each number has a recording of its own.
ROWS = (1, 2, 4, 8)
MAX_FILLED_TOKENS = 1024
MAX_RECORDINGS = 32
WARM_UPS = 2  # runs before the recording, in which libraries choose their kernels

Outputs = tuple[Tensor | None, ...]
Function = Callable[..., Outputs]
Replay = Callable[[], Outputs]  # runs the recording; its outputs lie where they lay
Record = Callable[[Function, Sequence[Tensor]], Replay]


@dataclass(frozen=True, slots=True)
class Recording:
    function: Function  # what it holds, such as rotary angles, lies where the recording reads it
    inputs: tuple[Tensor, ...]
    replay: Replay

    def run(self, inputs: Sequence[Tensor]) -> Outputs:
        """Of inputs with at most as many rows; the rows beyond repeat the last one."""
        rows = len(inputs[0])
        for held, given in zip(self.inputs, inputs, strict=True):
            held[:rows].copy_(given)
            held[rows:].copy_(given[-1:].expand_as(held[rows:]))
        return tuple(None if each is None else each[:rows].clone() for each in self.replay())


class Graphs:
    """Recordings of one module's functions, by key and bucket of rows; the least used one goes."""

    def __init__(
        self,
        module: nn.Module,
        record: Record,
        *,
        max_tokens: int = MAX_TOKENS,
        max_recordings: int = MAX_RECORDINGS,
    ) -> None:
        self._module = module
        self._record = record
        self._max_tokens = max_tokens
        self._layout = Layout(module)
        self._recordings: LRUCache[Hashable, Recording | None] = LRUCache(max_recordings)

    def run(
        self, key: Hashable, function: Function, inputs: Sequence[Tensor], tokens: int
    ) -> Outputs:
        """`function(*inputs)`, replayed where its forward of so many tokens a row is small.

        `key` names all that decides what the function does beside its inputs, which have their rows
        first and are on the device. Raises what the function raises.
        """
        rows = _filled(len(inputs[0]), tokens)
        if rows * tokens > self._max_tokens:
            return function(*inputs)
        recording = self._recording((key, rows), function, inputs, rows)
        return function(*inputs) if recording is None else recording.run(inputs)

    def clear(self) -> None:
        """Gives the recordings' memory back."""
        self._recordings.clear()

    def _recording(
        self, key: Hashable, function: Function, inputs: Sequence[Tensor], rows: int
    ) -> Recording | None:
        """None where it cannot be made: it is not tried again for this key."""
        if not self._layout.is_unchanged():
            self._recordings.clear()
            self._layout = Layout(self._module)
        if key not in self._recordings:
            held = tuple(each[-1:].repeat(rows, *(1,) * (each.ndim - 1)) for each in inputs)
            self._recordings[key] = self._try(function, held)
        return self._recordings[key]

    def _try(self, function: Function, inputs: tuple[Tensor, ...]) -> Recording | None:
        try:
            return Recording(function, inputs, self._record(function, inputs))
        except (torch.OutOfMemoryError, torch.AcceleratorError):
            raise
        except RuntimeError:
            # An error of the function itself comes again when it runs as it is.
            log.warning("A CUDA graph cannot be recorded: this size runs without.", exc_info=True)
            return None


def _filled(rows: int, tokens: int) -> int:
    """Rows of the recording that serves so many of so many tokens each."""
    bucket = next((each for each in ROWS if each >= rows), rows)
    return bucket if bucket * tokens <= MAX_FILLED_TOKENS else rows


class Layout:
    """Which modules a module is made of, where their weights lie, and how many hooks they have."""

    def __init__(self, module: nn.Module) -> None:
        modules = list(module.modules())
        self._parts = [(m._modules, name, child) for m in modules for name, child in _parts(m)]
        self._weights = [
            (weights, name, address)
            for m in modules
            for weights in (m._parameters, m._buffers)
            for name, address in _addresses(weights)
        ]
        self._hooks = [
            (hooks, len(hooks))
            for m in modules
            for hooks in (m._forward_hooks, m._forward_pre_hooks)
        ]

    def is_unchanged(self) -> bool:
        """Some thousand look-ups. New values at the old address are no change: graphs read them."""
        return (
            all(parts.get(name) is child for parts, name, child in self._parts)
            and all(_address(weights.get(name)) == at for weights, name, at in self._weights)
            and all(len(hooks) == count for hooks, count in self._hooks)
        )


def _parts(module: nn.Module) -> Iterator[tuple[str, nn.Module | None]]:
    yield from module._modules.items()


def _addresses(weights: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for name, weight in weights.items():
        yield name, _address(weight)


def _address(weight: Tensor | None) -> int:
    return 0 if weight is None else weight.data_ptr()


class CudaRecorder:
    """Records on a CUDA device. All recordings share one pool, since none runs beside another."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        # Two for good: CUDA has 32 in all, and libraries keep a workspace for each that they met.
        self._beside, self._recorded = (torch.cuda.Stream(device) for _ in range(2))

    def __call__(self, function: Function, inputs: Sequence[Tensor]) -> Replay:
        """Raises what the function raises, and RuntimeError where something cannot be recorded."""
        with torch.cuda.device(self._device):
            now, beside = torch.cuda.current_stream(), self._beside
            beside.wait_stream(now)
            with torch.cuda.stream(beside):
                for _ in range(WARM_UPS):
                    function(*inputs)
            now.wait_stream(beside)
            graph = torch.cuda.CUDAGraph()
            # "thread_local": a decode may run on a stream of its own meanwhile.
            with torch.cuda.graph(
                graph,
                pool=self._pool,
                stream=self._recorded,
                capture_error_mode="thread_local",
            ):
                outputs = function(*inputs)

        def replay() -> Outputs:
            graph.replay()
            return outputs

        return replay
