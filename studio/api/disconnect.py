"""Notices that a client hung up while its plain POST is waited for."""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

CLIENT_CLOSED_REQUEST = 499  # nginx's: nobody is there to read it, but the log says it

Result = TypeVar("Result")


class ClientGone(Exception):
    """The client hung up before its answer was there."""


async def until_disconnect(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Await `work`; cancel it and raise `ClientGone` when the client of `request` hangs up.

    The request's body must have been read: only then does the server tell of a disconnect.
    """
    working = asyncio.create_task(work)
    watching = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone
    finally:
        for task in (working, watching):
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task


async def answered(request: Request, work: Coroutine[Any, Any, Any]) -> Response:
    """The answer of what `work` returns, for JSON; a client that hangs up cancels it."""
    try:
        return JSONResponse(await until_disconnect(request, work))
    except ClientGone:
        return hung_up()


def hung_up() -> Response:
    """For a client that is gone."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
