"""What the studio asks of an engine, wherever it runs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from pipelines.requests import Event, RenderRequest

EngineState = Literal["starting", "loading", "ready", "restarting", "failed", "closed"]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """What the engine is doing, in words for the page and for `/health/ready`."""

    state: EngineState
    detail: str = ""
    fraction: float | None = None  # of the loading, 0 to 1
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The process that made pictures ended; what it held must be handed in again."""

    cause: str


EngineEvent = Event | EngineStatus | WorkerLost


class Engine(Protocol):
    """Makes pictures. Events arrive on a thread of the engine's own, in order."""

    @property
    def status(self) -> EngineStatus:
        """The latest status; never blocks."""
        ...

    def start(self, on_event: Callable[[EngineEvent], None]) -> None:
        """Begin to load; returns at once."""
        ...

    def submit(self, request: RenderRequest, *, restarts: int) -> None:
        """Hand in one request; its events follow.

        `restarts` is that of the last `ready` status the caller has handled. When the engine has
        started again since, the request is dropped: `WorkerLost` is among the caller's events.
        """
        ...

    def cancel(self, request_id: str) -> None:
        """Stop before the next step; `RequestCancelled` follows. Unknown ids do nothing."""
        ...

    def close(self) -> None:
        """End the engine and everything that it started."""
        ...
