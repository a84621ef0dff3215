"""A limit on request bodies that holds for announced and for streamed lengths alike."""

from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from studio.errors import TooLarge

Refuse = Callable[[TooLarge], Awaitable[None]]


def check_announced(content_length: str | None, max_bytes: int) -> None:
    """Raises TooLarge for a Content-Length over the limit, before anything is read.

    A client that waits for `100 Continue` gets the refusal instead and sends nothing.
    """
    if content_length and content_length.isdecimal() and int(content_length) > max_bytes:
        raise _too_large(max_bytes)


async def call_counted(
    app: ASGIApp, scope: Scope, receive: Receive, send: Send, max_bytes: int, refuse: Refuse
) -> None:
    """Call the app, but no further than `max_bytes` of body.

    Past the limit the app is told that the client hung up, so that it stops; whatever it then
    answers is dropped and `refuse` answers instead.
    """
    counter = _Counter(receive, send, max_bytes)
    try:
        await app(scope, counter.receive, counter.send)
    except ClientDisconnect:
        if not counter.is_over:
            raise
    if counter.is_over and not counter.has_started:
        await refuse(_too_large(max_bytes))


class _Counter:
    def __init__(self, receive: Receive, send: Send, max_bytes: int) -> None:
        self._receive = receive
        self._send = send
        self._left_bytes = max_bytes
        self.has_started = False

    @property
    def is_over(self) -> bool:
        return self._left_bytes < 0

    async def receive(self) -> Message:
        if self.is_over:
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.request":
            self._left_bytes -= len(message.get("body", b""))
        return {"type": "http.disconnect"} if self.is_over else message

    async def send(self, message: Message) -> None:
        if self.is_over and not self.has_started:
            return
        self.has_started = True
        await self._send(message)


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(
        f"The request body is larger than {max_bytes:,} bytes. Send smaller pictures, or fewer "
        "in one request.",
        code="body_too_large",
    )
