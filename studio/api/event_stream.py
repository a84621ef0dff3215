"""Server-sent events: one write a frame, and the source is closed when the client hangs up."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from studio.api.disconnect import ClientGone, hung_up, until_disconnect

# A proxy that gathers what it passes on would hold the events back.
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def streamed(request: Request, frames: AsyncGenerator[bytes]) -> Response:
    """The answer that sends `frames`; what fails before the first of them is raised."""
    try:
        return EventStream(await until_disconnect(request, _first(frames)), frames)
    except ClientGone:
        return hung_up()


class EventStream(StreamingResponse):
    """Sends `first`, then what `frames`, which has been started, gives after it.

    Starlette's own leaves a generator open that waits between two frames when the client goes.
    """

    media_type = "text/event-stream"

    def __init__(self, first: bytes, frames: AsyncGenerator[bytes]) -> None:
        super().__init__(_chained(first, frames), headers=HEADERS)
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientGone):
            await until_disconnect(Request(scope, receive), self._write(send))

    async def _write(self, send: Send) -> None:
        async with aclosing(self._frames):
            await self.stream_response(send)


async def _first(frames: AsyncGenerator[bytes]) -> bytes:
    return await anext(frames)


async def _chained(first: bytes, frames: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    async for frame in frames:
        yield frame
