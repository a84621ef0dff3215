"""Text from a server that speaks OpenAI's chat completions: vLLM, SGLang, MAX, llama.cpp, Ollama.

The studio keeps nothing there but the running requests: a closed stream is a cancelled request.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, suppress
from dataclasses import replace

import httpx

from pipelines.text.requests import Speculation, TextDone, TextRequest
from studio.engine.protocol import EngineStatus
from studio.engine.text_http.answer import Answer
from studio.engine.text_http.body import Call, call_of
from studio.engine.text_http.dialects import DIALECT_NAMES, DIALECTS, Dialect
from studio.engine.text_http.probe import Found, NotFoundYet, find_server
from studio.engine.text_http.refusals import Refusal, failure_of_answer, lost, site_of
from studio.engine.text_http.sse import BadStream, json_events
from studio.engine.text_protocol import Piece, TextModel
from studio.errors import CannotStart, Unavailable

log = logging.getLogger(__name__)

FIRST_DELAY_S, LAST_DELAY_S = 0.5, 30.0  # between looks for a server that is away
CHECK_S = 30.0  # between looks at one that is there
MAX_SLOW_LOOKS = 3  # in a row, before a server that answers too late counts as away
RETRY_DELAY_S = 0.2
MAX_RETRY_AFTER_S = 2.0  # what a server may ask for before the request is handed back
MAX_REFUSAL_BYTES = 64 * 1024
# Before the first byte of an answer: nothing was begun, or an idle connection had been closed.
_TRIED_AGAIN = (httpx.ConnectError, httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)


class HttpTextEngine:
    """Hands every request to one server. Its methods belong on the server's event loop."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None,
        model: str | None,
        dialect: str = "auto",
        chunk_timeout_s: float = 60.0,
        connect_timeout_s: float = 5.0,
    ) -> None:
        """Raises CannotStart for a URL, a key or a dialect that cannot be meant."""
        if dialect not in DIALECT_NAMES:
            known = ", ".join(DIALECT_NAMES)
            raise CannotStart(f"--text-dialect {dialect} is unknown: give one of {known}.")
        self._site = site_of(url, api_key)
        self._given_model = model
        self._given_dialect = DIALECTS.get(dialect)
        self._chunk_timeout_s = chunk_timeout_s
        self._connect_timeout_s = connect_timeout_s
        self._ssl = httpx.create_ssl_context()
        self._status = EngineStatus("starting", "looking for the text server")
        self._found: Found | None = None
        self._client: httpx.AsyncClient | None = None
        self._speculation: Speculation | None = None
        self._delay_s = FIRST_DELAY_S
        self._slow_looks = 0
        self._look_now = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def status(self) -> EngineStatus:
        """The latest status; never blocks."""
        return self._status

    @property
    def model(self) -> TextModel:
        """What is served; the given name until the server was found."""
        return self._found.model if self._found else TextModel(self._given_model or "")

    @property
    def speculation(self) -> Speculation | None:
        """Sums since the start; None where the server does not tell."""
        return self._speculation

    def start(self) -> None:
        """Look for the server until it is there, then for its end; returns at once."""
        self._spawn(self._watch())

    def close(self) -> None:
        """Hang up on every request and stop looking."""
        self._status = EngineStatus("closed", "the text engine was closed")
        for task in self._tasks:
            task.cancel()
        if self._client is not None:
            self._spawn(self._client.aclose())
            self._client = None

    async def stream(self, request: TextRequest) -> AsyncGenerator[Piece]:
        """As `TextEngine.stream`; a server that was there once is asked, whatever the status."""
        found, client = self._found, self._client
        if found is None or client is None:
            raise Unavailable(f"No text can be written: {self._status.detail}")
        context_tokens = found.model.context_tokens
        call = call_of(request, found.dialect, model=found.wire_name, context_tokens=context_tokens)
        answer = Answer(request, found.dialect, self._site)
        async with aclosing(await self._open(client, call)) as response:
            try:
                async with aclosing(json_events(response)) as events:
                    async for event in events:
                        for piece in answer.take(event):
                            yield piece
                        if answer.is_done:
                            break
            except (BadStream, httpx.HTTPError) as error:
                self._look_now.set()
                if not answer.is_over:
                    raise self._broken(error) from error
        for piece in answer.end():
            if isinstance(piece, TextDone):
                self._count(piece.usage.speculation)
            yield piece

    async def _open(self, client: httpx.AsyncClient, call: Call) -> httpx.Response:
        """The answer to `call`, to be closed by the caller; one more try where that can help."""
        url = f"{self._site.url}/{call.path}"
        for may_try_again in (True, False):
            if client.is_closed:  # while this waited to try again
                raise Unavailable("The text engine was closed before the text was begun.")
            try:
                request = client.build_request("POST", url, json=call.body)
                response = await client.send(request, stream=True)
            except httpx.HTTPError as error:
                self._look_now.set()
                if not (may_try_again and isinstance(error, _TRIED_AGAIN)):
                    raise self._broken(error) from error
                await asyncio.sleep(RETRY_DELAY_S)
                continue
            if response.status_code == 200:
                return response
            refusal = await _refusal(response)
            delay_s = refusal.retry_after_s
            is_brief = delay_s is not None and delay_s <= MAX_RETRY_AFTER_S
            if not (may_try_again and is_brief and refusal.status in (429, 503)):
                if refusal.status in (401, 403, 404):  # not the server that was found
                    self._look_now.set()
                raise failure_of_answer(self._site, refusal, call.path)
            await asyncio.sleep(delay_s or 0)
        raise AssertionError("the second try returns or raises")

    def _broken(self, error: Exception) -> Unavailable:
        """A request that did not come to its end."""
        if self._status.state == "closed":
            return Unavailable("The text engine was closed before the text was complete.")
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return lost(self._site, error)
        if isinstance(error, BadStream):
            return Unavailable(f"The text server {self._site.quoted(str(error))}. Try again.")
        if isinstance(error, httpx.TimeoutException):
            return Unavailable(
                f"The text server sent nothing for {self._chunk_timeout_s:g} s: it is overloaded "
                "or hangs. Look at its log, or try again."
            )
        cause = self._site.quoted(str(error)) or type(error).__name__
        return Unavailable(
            f"The text server broke off before the text was complete ({cause}). Try again."
        )

    def _count(self, done: Speculation | None) -> None:
        if done is not None:
            self._speculation = (self._speculation or Speculation(0, 0, 0)) + done

    async def _watch(self) -> None:
        while True:
            self._look_now.clear()
            await self._look()
            delay_s = CHECK_S if self._status.state == "ready" else self._delay_s
            with suppress(TimeoutError):
                async with asyncio.timeout(delay_s):
                    await self._look_now.wait()

    async def _look(self) -> None:
        """Ask once what is there, and set the status."""
        try:
            async with self._new_client(self._connect_timeout_s, keeps_alive=False) as client:
                found = await find_server(
                    client, self._site, model=self._given_model, dialect=self._given_dialect
                )
        except NotFoundYet as reason:
            self._lose(reason)
        else:
            self._use(found)

    def _lose(self, reason: NotFoundYet) -> None:
        was_ready = self._status.state == "ready"
        self._slow_looks += isinstance(reason.__cause__, httpx.ReadTimeout)
        if was_ready and 0 < self._slow_looks < MAX_SLOW_LOOKS:
            return  # it may only be busy
        is_first = was_ready or self._status.state == "starting"
        self._delay_s = FIRST_DELAY_S if is_first else min(2 * self._delay_s, LAST_DELAY_S)
        status = replace(self._status, state=reason.state, detail=str(reason))
        if status != self._status:
            log.warning("%s (%s)", reason, self._site.url)
        self._status = replace(status, restarts=status.restarts + was_ready)

    def _use(self, found: Found) -> None:
        if self._client is None or not self._is_same_kind(found.dialect):
            if self._client is not None:
                self._spawn(self._client.aclose())
            keeps_alive = found.dialect.keeps_alive
            self._client = self._new_client(self._chunk_timeout_s, keeps_alive=keeps_alive)
        detail = f"{found.dialect.title} serves {found.model.name}"
        if self._status.state != "ready" or self._found != found:
            log.info("%s (%s)", detail, self._site.url)
        self._found = found
        self._slow_looks = 0
        self._status = replace(self._status, state="ready", detail=detail)

    def _is_same_kind(self, dialect: Dialect) -> bool:
        return self._found is not None and self._found.dialect.keeps_alive == dialect.keeps_alive

    def _new_client(self, timeout_s: float, *, keeps_alive: bool) -> httpx.AsyncClient:
        headers = {"Accept-Encoding": "identity"}  # a compressed stream arrives late
        if self._site.key is not None:
            headers["Authorization"] = f"Bearer {self._site.key}"
        return httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(timeout_s, connect=self._connect_timeout_s, pool=None),
            limits=httpx.Limits(max_keepalive_connections=None if keeps_alive else 0),
            follow_redirects=False,  # the key and the prompt are for one host
            trust_env=False,  # no proxy, no .netrc; the context has read SSL_CERT_FILE
            verify=self._ssl,
        )

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _refusal(response: httpx.Response) -> Refusal:
    """Read a failed answer, up to a limit, and close it."""
    body = bytearray()
    async with aclosing(response):
        with suppress(httpx.HTTPError):
            async for part in response.aiter_bytes():
                body += part
                if len(body) >= MAX_REFUSAL_BYTES:
                    break
    after = response.headers.get("retry-after", "")
    return Refusal(
        response.status_code,
        bytes(body[:MAX_REFUSAL_BYTES]),
        min(float(after), 3600.0) if after.isdecimal() else None,
        response.headers.get("location"),
    )
