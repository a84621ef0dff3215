"""An `HttpTextEngine` in front of a fake server, and what a test asks of it."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from pipelines.text.requests import Message, TextDelta, TextDone, TextRequest, TextStarted
from studio.engine.text_http.engine import HttpTextEngine
from studio.engine.text_protocol import Piece
from tests.studio.text_http.fake_servers import FakeTextServer, serving

DEADLINE_S = 10.0
TURNS = (Message("system", "Be brief."), Message("user", "A picture?"))


def asked(prompt: str | tuple[Message, ...] = TURNS, **values: Any) -> TextRequest:
    """A request for a few tokens."""
    return TextRequest("r1", prompt, **{"seed": 7, "max_tokens": 20} | values)


@asynccontextmanager
async def engine_at(url: str, **options: Any) -> AsyncIterator[HttpTextEngine]:
    """A started engine, closed at the end."""
    engine = HttpTextEngine(url, **{"api_key": None, "model": None} | options)
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


@asynccontextmanager
async def ready(name: str, **options: Any) -> AsyncIterator[tuple[HttpTextEngine, FakeTextServer]]:
    """A fake server of the dialect `name` and an engine that has found it."""
    async with serving(name) as server, engine_at(server.url, **options) as engine:
        await until(lambda: engine.status.state == "ready")
        yield engine, server


async def until(is_true: Callable[[], object]) -> None:
    """Let the loop run until `is_true`."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.002)


async def written(engine: HttpTextEngine, request: TextRequest) -> list[Piece]:
    """All pieces of `request`, in the order that the protocol promises."""
    pieces = [piece async for piece in engine.stream(request)]
    assert isinstance(pieces[0], TextStarted)
    assert isinstance(pieces[-1], TextDone)
    assert all(isinstance(piece, TextDelta) for piece in pieces[1:-1])
    assert {piece.request_id for piece in pieces} == {request.id}
    return pieces


def text_of(pieces: list[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))


def done(pieces: list[Piece]) -> TextDone:
    assert isinstance(pieces[-1], TextDone)
    return pieces[-1]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 2 * DEADLINE_S))
