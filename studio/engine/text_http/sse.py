"""The JSON objects of a server's event stream.

httpx-sse reads the events: it breaks lines at CR and LF alone, where httpx's own `aiter_lines`
also breaks them at U+2028, which JSON may hold. This adds what text servers put into events.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError

Event = dict[str, object]
END = "[DONE]"
DRAIN_S = 0.1  # the last byte mostly comes with the last event


class BadStream(Exception):
    """The stream cannot be read on; the message says what the server did."""


class StreamCut(BadStream):
    """It ended without `[DONE]`."""


async def json_events(response: httpx.Response) -> AsyncGenerator[Event]:
    """Every object until `[DONE]`. An event named `error` becomes `{"error": …}`.

    Raises StreamCut, BadStream for what is no object in JSON, and httpx's own errors.
    """
    try:
        async with aclosing(EventSource(response).aiter_sse()) as events:
            async for event in events:
                if event.data.strip() == END:
                    await _drain(events)
                    return
                if event.data:  # a ping has none
                    value = _object(event.data)
                    is_error = event.event == "error" and "error" not in value
                    yield {"error": value} if is_error else value
    except SSEError as error:
        kind = response.headers.get("content-type", "nothing")
        raise BadStream(f"answered with {kind} where a stream was asked for") from error
    raise StreamCut("ended the stream before the text was complete")


async def _drain(events: AsyncGenerator[ServerSentEvent]) -> None:
    """Read a body to its last byte: a connection that is left before it cannot be used again."""
    with suppress(TimeoutError, httpx.HTTPError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in events:
                pass


def _object(data: str) -> Event:
    try:
        value = json.loads(data)
    except ValueError as error:
        raise BadStream("sent a line that is not JSON") from error
    if not isinstance(value, dict):
        raise BadStream("sent JSON that is no object")
    return value
