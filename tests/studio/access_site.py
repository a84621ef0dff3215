"""A site behind the access middleware, and clients for it without a network."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message
from starlette.websockets import WebSocket

from studio.api.access import AccessMiddleware, AccessPolicy

KEY, OTHER_KEY = "correct-horse-battery", "staple-0123456789"
OWNER = f"key-{hashlib.sha256(KEY.encode()).hexdigest()[:12]}"
BEARER = {"Authorization": f"Bearer {KEY}"}
BROWSER = {"Accept": "text/html,application/xhtml+xml"}
LIMIT = 1000


async def show(request: Request) -> Response:
    return JSONResponse({"owner": request.state.owner, "bytes": len(await request.body())})


async def page(request: Request) -> Response:
    return HTMLResponse(f"<p>{request.state.owner}</p>")


async def stream_and_catch(request: Request) -> Response:
    """A handler that turns every failure into its own 200: the 413 must win."""
    try:
        async for _ in request.stream():
            pass
    except Exception:
        return JSONResponse({"caught": True})
    return JSONResponse({"caught": False})


async def socket_owner(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text(websocket.state.owner)
    await websocket.close()


def site() -> Starlette:
    routes: list[Route | WebSocketRoute] = [
        Route("/", page),
        Route("/show", show, methods=["GET", "POST", "DELETE", "OPTIONS"]),
        Route("/catch", stream_and_catch, methods=["POST"]),
        Route("/health/live", show),
        Route("/health/ready", show),
        WebSocketRoute("/ws", socket_owner),
    ]
    return Starlette(routes=routes)


def policy(*keys: str, open: bool = False, hosts: tuple[str, ...] = ("127.0.0.1",)) -> AccessPolicy:
    return AccessPolicy(api_keys=keys, open=open, allowed_hosts=hosts, max_body_bytes=LIMIT)


class Client:
    """Requests without a network; keeps cookies like a browser."""

    def __init__(
        self,
        rules: AccessPolicy,
        *,
        app: ASGIApp | None = None,
        base: str = "http://127.0.0.1:7860",
    ) -> None:
        self.app = AccessMiddleware(app or site(), rules)
        self.base = base
        self.cookies = httpx.Cookies()

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=True)
            async with httpx.AsyncClient(
                transport=transport, base_url=self.base, cookies=self.cookies
            ) as client:
                response = await client.request(method, path, **options)
                self.cookies = client.cookies
                return response

        return asyncio.run(send())


def code_of(response: httpx.Response) -> Any:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error["code"]


def run_raw(app: ASGIApp, scope: dict[str, Any], incoming: list[Message]) -> list[Message]:
    """One ASGI call with the given messages; what was sent. Reading more than given fails."""
    sent: list[Message] = []

    async def receive() -> Message:
        return incoming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    return sent


def raw_scope(kind: str, path: str, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    """A POST or a WebSocket handshake from this machine, as uvicorn would describe it."""
    scope: dict[str, Any] = {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "ws" if kind == "websocket" else "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1:7860"), *headers],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 7860),
    }
    extra: dict[str, Any] = {"subprotocols": []} if kind == "websocket" else {"method": "POST"}
    return scope | extra


async def chunks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * 100
