"""The text engine as a child process on this machine, beside the one that makes pictures."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from pipelines.text.embedded import NAME as EMBEDDED
from pipelines.text.requests import (
    Speculation,
    TextCancelled,
    TextDelta,
    TextDone,
    TextFailed,
    TextRequest,
    TextStarted,
)
from studio.engine.local import LocalEngine
from studio.engine.messages import TextWorkerConfig
from studio.engine.protocol import EngineStatus, WorkerLost
from studio.engine.text_protocol import Piece, TextModel
from studio.errors import BadRequest, StudioError, Unavailable

RETRY_AFTER_S = 5  # loading takes some seconds; the first start fetches the model before it

Told = TextStarted | TextDelta | TextDone | TextFailed | TextCancelled | StudioError


class LocalTextEngine:
    """Hands requests to the worker and its events to whoever waits for them."""

    def __init__(
        self,
        config: TextWorkerConfig,
        *,
        command: tuple[str, ...] = ("-m", "studio.engine.text_worker"),
    ) -> None:
        self._child = LocalEngine(config, command=command)
        # A path is nobody's business, and no name that a request could give.
        self._model = TextModel(config.model if config.model == EMBEDDED else "")
        self._streams: dict[str, asyncio.Queue[Told]] = {}
        self._speculation = Speculation(0, 0, 0)
        self._ready_after: int | None = None  # restarts of the worker that is ready

    @property
    def status(self) -> EngineStatus:
        """The latest status; never blocks."""
        return self._child.status

    @property
    def model(self) -> TextModel:
        """What is served; complete once the status is `ready`."""
        return self._model

    @property
    def speculation(self) -> Speculation | None:
        """Sums over the texts that were finished."""
        return self._speculation

    @property
    def pid(self) -> int | None:
        """The worker's process."""
        return self._child.pid

    def start(self) -> None:
        """Start the worker; returns at once."""
        loop = asyncio.get_running_loop()

        def hand_on(event: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._handle, event)

        self._child.start(hand_on)

    async def stream(self, request: TextRequest) -> AsyncGenerator[Piece]:
        """`TextStarted`, deltas, `TextDone`; closing the generator cancels the request."""
        if self._ready_after is None:
            raise _not_ready(self.status)
        told: asyncio.Queue[Told] = asyncio.Queue()
        self._streams[request.id] = told
        self._child.submit(request, restarts=self._ready_after)
        is_over = False
        try:
            while not is_over:
                event = await told.get()
                is_over = not isinstance(event, TextStarted | TextDelta)
                yield _piece(event)
        finally:
            del self._streams[request.id]
            if not is_over:
                self._child.cancel(request.id)

    def close(self) -> None:
        """End the worker; texts in flight end with it."""
        self._ready_after = None
        self._child.close()
        for told in self._streams.values():
            told.put_nowait(_not_ready(self.status))

    def _handle(self, event: Any) -> None:
        """An event of the worker, on the event loop."""
        match event:
            case EngineStatus(state=state, restarts=restarts):
                self._ready_after = restarts if state == "ready" else None
            case TextModel():
                self._model = event
            case WorkerLost(cause):
                self._ready_after = None
                for told in self._streams.values():
                    told.put_nowait(
                        Unavailable(f"{cause} Send the request again.", code="worker_lost")
                    )
            case _:
                self._tell(event)

    def _tell(self, event: Any) -> None:
        if isinstance(event, TextDone) and (more := event.usage.speculation):
            self._speculation += more
        if event.request_id in self._streams:
            self._streams[event.request_id].put_nowait(event)


def _piece(event: Told) -> Piece:
    """What the caller is told; raises what it cannot be served for."""
    match event:
        case StudioError():
            raise event
        case TextFailed(_, code, message, param):
            raise BadRequest(message, param=param, code=code)
        case TextCancelled():
            raise Unavailable("The text was cancelled.", code="cancelled")
        case _:
            return event


def _not_ready(status: EngineStatus) -> Unavailable:
    if status.state == "failed":
        return Unavailable(
            f"The text model could not be loaded: {status.detail}", code="engine_failed"
        )
    if status.state == "closed":
        return Unavailable("The studio is shutting down.", code="engine_closed")
    detail = f": {status.detail.rstrip('.')}" if status.detail else ""
    return Unavailable(
        f"The text model is coming{detail}. Try again in a moment.", retry_after_s=RETRY_AFTER_S
    )
