"""A text engine that writes what a test tells it to, a word at a time."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable

from pipelines.text.embedded import NAME as EMBEDDED
from pipelines.text.requests import (
    Speculation,
    TextDelta,
    TextDone,
    TextRequest,
    TextStarted,
    TextUsage,
)
from studio.engine.protocol import EngineStatus
from studio.engine.text_protocol import Piece, TextModel
from studio.errors import Unavailable


class FakeTextEngine:
    """`answer` gives the text for a request; `hold` keeps a stream open before its last word."""

    def __init__(
        self,
        answer: Callable[[TextRequest], str] = lambda request: " a small answer",
        *,
        model: TextModel | None = None,
        status: EngineStatus | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        self.answer = answer
        self.model = model or TextModel(EMBEDDED, context_tokens=8192)
        self.status = status or EngineStatus("ready")
        self.speculation = speculation
        self.requests: list[TextRequest] = []
        self.cancelled: list[str] = []
        self.hold: asyncio.Event | None = None
        self.is_closed = False

    def start(self) -> None:
        """It is ready from the beginning."""

    async def stream(self, request: TextRequest) -> AsyncGenerator[Piece]:
        """The answer's words; ends early with `length` where `max_tokens` words were written."""
        if self.status.state != "ready":
            raise Unavailable(f"The text model is not ready: {self.status.state}.")
        self.requests.append(request)
        words = self._words(request)
        finished = False
        try:
            yield TextStarted(request.id, 5, 2)
            for word in words:
                if self.hold is not None and word is words[-1]:
                    await self.hold.wait()
                await asyncio.sleep(0)
                yield TextDelta(request.id, word)
            was_cut = request.max_tokens is not None and len(words) == request.max_tokens
            finished = True
            usage = TextUsage(5, len(words), 2, self.speculation)
            yield TextDone(request.id, "length" if was_cut else "stop", usage)
        finally:
            if not finished:
                self.cancelled.append(request.id)

    def _words(self, request: TextRequest) -> list[str]:
        text = self.answer(request)
        for stop in request.stop:
            text = text.partition(stop)[0]
        words = re.findall(r"\s*\S+", text)
        return words[: request.max_tokens]

    def close(self) -> None:
        """End it."""
        self.is_closed = True
