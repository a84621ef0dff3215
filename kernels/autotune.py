"""Which of several ways to the same tensor is the fastest, measured once and kept on disk.

A file for each device, driver and set of versions, of at most ``MAX_CHOICES`` choices. Two
processes that measure at once both keep what the other wrote; a file that cannot be read is left
out with a notice and written anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import statistics
import tempfile
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from kernels.backend import TritonError, triton

log = logging.getLogger(__name__)
Candidate = Callable[[], Tensor]
MAX_CHOICES = 4096
RUNS = 7  # of each candidate; the median counts
FOLDER = "STUDIO_KERNELS_CACHE"


def choose(key: tuple[Hashable, ...], x: Tensor, candidates: Mapping[str, Candidate]) -> Tensor:
    """The answer of the fastest candidate for this key, the device and the dtype of ``x``.

    A candidate that fails is out, unless it is the only one; the first wins where all are equal.
    """
    choices = choices_of(x.device)
    name = "|".join(map(str, (*key, x.dtype)))
    chosen = choices.get(name)
    if chosen is None or chosen not in candidates:
        chosen = fastest(candidates, x.device)
        choices.put(name, chosen)
    return candidates[chosen]()


def size_class(x: Tensor) -> int:
    """Of a picture's pixels: a choice serves all sizes up to twice as large, and any number."""
    return (x.shape[2] * x.shape[3]).bit_length()


def fastest(candidates: Mapping[str, Candidate], device: torch.device) -> str:
    """Raises what the last one raised where none can run, and where memory is short."""
    seconds: dict[str, float] = {}
    left = len(candidates)
    for name, candidate in candidates.items():
        left -= 1
        try:
            seconds[name] = measure(candidate, device)
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TritonError):
            if not (seconds or left):
                raise
            log.warning("The kernel %s cannot run here and is left out.", name, exc_info=True)
    return min(seconds, key=lambda name: seconds[name])


def measure(candidate: Candidate, device: torch.device) -> float:
    """Median seconds of ``RUNS`` runs behind one that compiles and warms up."""
    with torch.cuda.device(device):
        candidate()
        times = []
        for _ in range(RUNS):
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            began.record()
            candidate()
            ended.record()
            ended.synchronize()
            times.append(began.elapsed_time(ended) / 1000)
    return statistics.median(times)


class Choices:
    """Key -> name of the chosen candidate, in memory and in a JSON file; the oldest go."""

    def __init__(self, path: Path, limit: int = MAX_CHOICES) -> None:
        self._path, self._limit = path, limit
        self._known = self._read()

    def get(self, key: str) -> str | None:
        return self._known.get(key)

    def put(self, key: str, chosen: str) -> None:
        """Keeps it, with what other processes kept meanwhile. A folder without room is a notice."""
        self._known[key] = chosen
        try:
            with _locked(self._path):
                self._known = self._read() | self._known
                for oldest in list(self._known)[: -self._limit]:
                    del self._known[oldest]
                _write(self._path, json.dumps(self._known, indent=0))
        except OSError as error:
            log.warning("Kernel choices cannot be kept in %s: %s.", self._path, error)

    def _read(self) -> dict[str, str]:
        try:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            if not isinstance(kept, dict) or not all(isinstance(v, str) for v in kept.values()):
                raise ValueError("it holds no table of names")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("Kernel choices in %s are ignored: %s.", self._path, error)
            return {}
        return kept


@cache
def choices_of(device: torch.device) -> Choices:
    """Those of the device under this driver and these versions."""
    about = describe(device)
    digest = hashlib.sha256("|".join(about).encode()).hexdigest()[:16]
    return Choices(folder() / f"{digest}.json")


def describe(device: torch.device) -> tuple[str, ...]:
    """What a measurement depends on."""
    properties = torch.cuda.get_device_properties(device)
    return (
        properties.name,
        f"{properties.major}.{properties.minor}",
        str(torch.version.cuda),
        str(torch.backends.cudnn.version()),
        torch.__version__,
        "" if triton is None else triton.__version__,
        _sources(),
        _driver(),
    )


def _sources() -> str:
    """Of the kernels: another one may be faster."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _driver() -> str:
    path = Path("/proc/driver/nvidia/version")
    return path.read_text(encoding="utf-8").splitlines()[0] if path.exists() else ""


def folder() -> Path:
    """``STUDIO_KERNELS_CACHE``, or the user's cache."""
    if said := os.environ.get(FOLDER):
        return Path(said)
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "flux-studio" / "kernels"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """No other process writes meanwhile."""
    import fcntl  # absent on Windows, where no kernel runs

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    Path(file.name).replace(path)
