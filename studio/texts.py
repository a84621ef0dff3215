"""What an owner can do with text: plan a request and have it written. Page and API speak to it."""

import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Final

from pipelines.text.requests import Speculation, TextDone, TextRequest
from studio.engine.protocol import EngineStatus
from studio.engine.text_protocol import Piece, TextEngine, TextModel
from studio.errors import TooManyRequests, Unavailable, unknown_model
from studio.request import Notice
from studio.text_request import TextDraft
from studio.text_settle import check_adapter, settle_text

# Texts that may be read or written at one time. An engine writes them side by side or in turn;
# what is over this would only wait, with its prompt in memory.
MAX_IN_FLIGHT: Final = 64
MAX_PER_OWNER: Final = 32
RETRY_AFTER_S: Final = 2

log = logging.getLogger(__name__)


class Texts:
    """The texts of one studio. Methods are called on the server's event loop."""

    def __init__(
        self,
        engine: TextEngine | None = None,
        *,
        max_in_flight: int = MAX_IN_FLIGHT,
        max_per_owner: int = MAX_PER_OWNER,
    ) -> None:
        self._engine = engine  # None: this studio writes no text
        self._max_in_flight = max_in_flight
        self._max_per_owner = max_per_owner
        self._in_flight: Counter[str] = Counter()  # by owner

    def start(self) -> None:
        """Start the engine. Returns at once."""
        if self._engine is not None:
            self._engine.start()

    def close(self) -> None:
        """End the engine, and with it all texts in flight."""
        if self._engine is not None:
            self._engine.close()

    @property
    def status(self) -> EngineStatus | None:
        """What the engine is doing; None without one. Never blocks."""
        return self._engine.status if self._engine is not None else None

    @property
    def model(self) -> TextModel | None:
        """The served model, complete once the status is `ready`.

        None without an engine, and until one that looks for a server knows what that serves.
        """
        model = self._engine.model if self._engine is not None else None
        return model if model is not None and model.name else None

    @property
    def speculation(self) -> Speculation | None:
        """Sums of all texts since the start; None where the engine does not tell."""
        return self._engine.speculation if self._engine is not None else None

    @property
    def in_flight(self) -> int:
        """Texts that are read or written now."""
        return self._in_flight.total()

    def model_of(self, name: str | None) -> TextModel:
        """A served model; None is the default. Raises `NotFound`, and `Unavailable` too early."""
        status, model = self.status, self.model
        if status is None:
            raise unknown_model("This studio writes no text; start it with a text engine.")
        if model is None:
            message = f"The text engine does not know its model yet. {status.detail}"
            raise Unavailable(message, retry_after_s=RETRY_AFTER_S)
        if name not in (None, model.name):
            served = f"this studio writes text with {model.name!r}"
            raise unknown_model(f"There is no text model {str(name)[:100]!r} here; {served}.")
        return model

    def plan(self, draft: TextDraft) -> tuple[TextRequest, tuple[Notice, ...]]:
        """What `stream` would write. Raises `BadRequest`, and what `model_of` raises."""
        model = self.model_of(draft.model)
        planned = settle_text(draft, model)
        status = self.status
        if status is not None and status.state == "ready":
            check_adapter(draft.adapter, model)  # before that nobody knows them
        return planned

    async def stream(self, request: TextRequest, *, owner: str) -> AsyncGenerator[Piece]:
        """`TextStarted`, then deltas, then `TextDone`; closing the generator cancels the request.

        Raises a `StudioError` at the first piece or later: `TooManyRequests` where this owner or
        all owners have too many texts in flight, and whatever the engine raises.
        """
        if self._engine is None:
            raise unknown_model("This studio writes no text; start it with a text engine.")
        begun, is_done = time.monotonic(), False
        with self._place(owner):
            async with aclosing(self._engine.stream(request)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, TextDone):
                        is_done = True
                        _log_finished(piece, time.monotonic() - begun)
                    yield piece
        if not is_done:
            message = "The text engine stopped in mid-text. Try again."
            raise Unavailable(message, code="engine_failed")

    @contextmanager
    def _place(self, owner: str) -> Iterator[None]:
        if self._in_flight[owner] >= self._max_per_owner:
            raise _too_many(f"{self._max_per_owner} texts of yours are being written")
        if self.in_flight >= self._max_in_flight:
            raise _too_many(f"{self._max_in_flight} texts are being written")
        self._in_flight[owner] += 1
        try:
            yield
        finally:
            self._in_flight[owner] -= 1
            if not self._in_flight[owner]:
                del self._in_flight[owner]


def _too_many(cause: str) -> TooManyRequests:
    return TooManyRequests(
        f"{cause} already, which is the limit. Wait for one to end, and send this again.",
        code="too_many_texts",
        retry_after_s=RETRY_AFTER_S,
    )


def _log_finished(done: TextDone, seconds: float) -> None:
    usage = done.usage
    rate = usage.speculation.acceptance_rate if usage.speculation is not None else None
    log.info(
        "text %s: %d tokens after %d (%d cached) in %.2f s, %.1f tokens/s, %s, acceptance %s",
        done.request_id,
        usage.output_tokens,
        usage.input_tokens,
        usage.cached_tokens,
        seconds,
        usage.output_tokens / max(seconds, 1e-6),
        done.finish,
        f"{rate:.2f}" if rate is not None else "unknown",
    )
