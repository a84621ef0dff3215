"""Server-sent events on the wire: frames, writes, and a source that is closed in time."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from studio.api.event_stream import EventStream
from studio.api.text_events import frame


def test_a_frame_is_one_line_of_ascii_data() -> None:
    data = frame({"type": "x", "delta": "a\r\nb\u2028c絵"})
    assert data.isascii()
    assert data.startswith(b"event: x\ndata: ")
    assert data.count(b"\n") == 3
    assert data.endswith(b"\n\n")
    assert b"\r" not in data


def test_each_frame_is_one_write() -> None:
    """A reader may keep an event's lines for one read only."""

    async def run() -> list[dict[str, Any]]:
        sent: list[dict[str, Any]] = []

        async def send(message: Any) -> None:
            sent.append(message)

        async def receive() -> Any:
            await asyncio.Event().wait()

        async def frames() -> AsyncGenerator[bytes]:
            for name in (b"a\n\n", b"b\n\n"):
                yield name

        source = frames()
        await EventStream(await anext(source), source)({"type": "http"}, receive, send)
        return sent

    start, *bodies = asyncio.run(run())
    assert dict(start["headers"])[b"x-accel-buffering"] == b"no"
    assert [message["body"] for message in bodies] == [b"a\n\n", b"b\n\n", b""]


def test_a_source_that_waits_between_frames_is_closed_when_the_client_goes() -> None:
    """The client goes while a frame is being sent: no exception reaches the source by itself."""
    closed: list[bool] = []

    async def run() -> None:
        async def send(message: Any) -> None:
            if message.get("body"):
                await asyncio.Event().wait()

        async def receive() -> Any:
            return {"type": "http.disconnect"}

        async def frames() -> AsyncGenerator[bytes]:
            try:
                yield b"a"
            finally:
                closed.append(True)

        source = frames()
        await EventStream(await anext(source), source)({"type": "http"}, receive, send)
        assert closed == [True]

    asyncio.run(run())
