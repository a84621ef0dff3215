"""Small text servers on loopback, one for each dialect, with the habits that the table states.

They run on the loop of the test and speak raw HTTP, since half of what goes wrong with a server
(a connection that is closed in mid-stream, a keep-alive that is not meant) is below any framework.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from tests.studio.text_http.fake_kinds import KINDS, STANDARD, WORDS, Json, Kind, choice, usage


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Json
    peer: int  # the client's port: one a connection


@dataclass(slots=True)
class Exchange:
    """What an answer may use: the request, and the socket."""

    seen: Seen
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    hung_up: asyncio.Event

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, status: int, body: Json | str, headers: str = "") -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        head = f"HTTP/1.1 {status} x\r\nContent-Type: application/json\r\n{headers}"
        await self.send(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)

    async def begin(self) -> None:
        await self.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
            b"Keep-Alive: timeout=5\r\n\r\n"
        )

    async def chunk(self, data: bytes) -> None:
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def event(self, event: Json | str) -> None:
        data = event if isinstance(event, str) else json.dumps(event)
        await self.chunk(f"data: {data}\n\n".encode())

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def gone(self) -> None:
        """Returns when the client has hung up; the server then knows it too."""
        with suppress(ConnectionError):
            while await self.reader.read(1024):
                pass
        self.hung_up.set()


Script = Callable[[Exchange], Awaitable[None]]


class FakeTextServer:
    """`async with serving("vllm") as server:`; `script` replaces the answers to POSTs in turn."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.port = 0
        self.listener: asyncio.Server | None = None
        self.cards = [kind.card]
        self.seen: list[Seen] = []
        self.script: list[Script] = []
        self.listing: Script | None = None  # replaces the answer to /v1/models
        self.words: tuple[str, ...] = WORDS
        self.hung_up = asyncio.Event()
        self.dropped = 0  # requests on connections that a server of this kind had done with
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: set[asyncio.StreamWriter] = set()  # had a stream

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def bodies(self) -> list[Json]:
        return [seen.body for seen in self.seen if seen.method == "POST"]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while await self._exchange(reader, writer):
                pass
        self._tasks.discard(task)
        writer.close()

    def kill(self) -> None:
        """Close the port and every connection."""
        if self.listener is not None:
            self.listener.close()
        for task in self._tasks:
            task.cancel()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = head[0].split()
        pairs = (line.split(": ", 1) for line in head[1:] if line)
        headers = {name.lower(): value for name, value in pairs}
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        if self.kind.closes and writer in self._ended:
            self.dropped += 1
            return False
        peer = writer.get_extra_info("peername")[1]
        seen = Seen(method, path, headers, json.loads(data) if data else {}, peer)
        self.seen.append(seen)
        exchange = Exchange(seen, reader, writer, self.hung_up)
        if method == "POST":
            script = self.script.pop(0) if self.script else self.write
            await script(exchange)
            self._ended.add(writer)
            return script == self.write
        if path == "/v1/models" and self.listing:
            await self.listing(exchange)
        elif path == "/v1/models":
            await exchange.answer(200, {"object": "list", "data": self.cards})
        else:
            found = self.kind.paths.get(path)
            await exchange.answer(200 if found else 404, found or {"error": {"message": "no"}})
        return True

    async def write(self, exchange: Exchange) -> None:
        """The usual answer, after the checks that such a server makes."""
        body = exchange.seen.body
        if unknown := set(body) - STANDARD - self.kind.takes:
            await exchange.answer(422, {"error": {"message": f"unknown: {sorted(unknown)}"}})
        elif len(body.get("stop", ())) > (self.kind.max_stops or 99):
            await exchange.answer(400, {"error": {"message": "stop: at most 4"}})
        elif exchange.seen.path == "/v1/completions":
            await self._write_completion(exchange)
        else:
            await self._write_chat(exchange)

    async def _write_chat(self, exchange: Exchange) -> None:
        await exchange.begin()
        for opening in self.kind.opening:
            await exchange.event(opening)
        for word in self.words:
            await exchange.event(choice(content=word) | self.kind.each)
        end = choice() | self.kind.each
        end["choices"][0]["finish_reason"] = "stop"
        await exchange.event(end)
        await exchange.event({"choices": [], "usage": usage()} | self.kind.last)
        await exchange.event("[DONE]")
        await exchange.end()

    async def _write_completion(self, exchange: Exchange) -> None:
        await exchange.begin()
        for word in self.words:
            await exchange.event({"choices": [{"text": word, "finish_reason": None}]})
        end = {"choices": [{"text": "", "finish_reason": "length"}], "usage": usage()}
        await exchange.event(end | self.kind.last)
        await exchange.event("[DONE]")
        await exchange.end()


@asynccontextmanager
async def serving(name: str, port: int = 0) -> AsyncIterator[FakeTextServer]:
    """A server of the dialect `name` on loopback, until the end of the block."""
    server = FakeTextServer(KINDS[name])
    server.listener = await asyncio.start_server(server.handle, "127.0.0.1", port)
    server.port = server.listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        server.kill()
