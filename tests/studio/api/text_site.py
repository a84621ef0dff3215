"""A text engine that tests steer from their own thread, and readers of what the server sends."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from dataclasses import replace
from typing import Any

import httpx

from pipelines.text.requests import TextDelta, TextRequest, TextStarted, TokenLogprob
from studio.engine.protocol import EngineStatus
from studio.engine.text_protocol import Piece, TextModel
from studio.errors import BadRequest, Unavailable
from tests.fake_text_engine import FakeTextEngine

TEXT_MODEL = TextModel("tiny-writer", context_tokens=512, adapters=("pirate",))
TOO_LONG = "too long for the context"


def last_words(request: TextRequest) -> str:
    """What the request said last."""
    prompt = request.prompt
    return prompt if isinstance(prompt, str) else prompt[-1].text


def turns(request: TextRequest) -> list[tuple[str, str]]:
    assert not isinstance(request.prompt, str)
    return [(message.role, message.text) for message in request.prompt]


class SteeredEngine(FakeTextEngine):
    """Repeats what was said; may be held, may fail in mid-text, gives logprobs when asked."""

    def __init__(self) -> None:
        super().__init__(last_words, model=TEXT_MODEL)
        self.failure: Exception | None = None  # raised after the first word
        self.extra: TextDelta | None = None  # written after each word
        self.ends_early = False  # after the first word, without a word why
        self.dropped_tokens = 0
        self.unread: asyncio.Event | None = None  # holds streams before their first piece
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()

    def reset(self) -> None:
        self.answer, self.speculation = last_words, None
        self.model, self.status = TEXT_MODEL, EngineStatus("ready")
        self.failure = self.extra = None
        self.ends_early, self.dropped_tokens = False, 0
        self.release()
        self.hold = self.unread = None
        self.requests.clear()
        self.cancelled.clear()

    def hold_streams(self, *, before_reading: bool = False) -> None:
        """Until `release` streams stop before their last word, or before their first piece."""
        self.hold, self.unread = asyncio.Event(), asyncio.Event() if before_reading else None

    def lose(self) -> None:
        """Every stream fails after its first word."""
        self.failure = Unavailable("The text engine was lost.", code="worker_lost")

    def release(self) -> None:
        """Let held streams go on."""
        assert self._loop is not None
        for event in (self.hold, self.unread):
            if event is not None:
                self._loop.call_soon_threadsafe(event.set)

    async def stream(self, request: TextRequest) -> AsyncGenerator[Piece]:
        if self.unread is not None:
            try:
                await self.unread.wait()
            except asyncio.CancelledError:
                self.cancelled.append(request.id)
                raise
        if TOO_LONG in last_words(request):
            raise BadRequest("600 tokens.", param="prompt", code="context_length_exceeded")
        words = super().stream(request)
        try:
            async for piece in words:
                if isinstance(piece, TextStarted):
                    piece = replace(piece, dropped_tokens=self.dropped_tokens)
                if isinstance(piece, TextDelta) and request.top_logprobs is not None:
                    piece = replace(piece, logprobs=(logprob(piece.text, request.top_logprobs),))
                yield piece
                if not isinstance(piece, TextDelta):
                    continue
                if self.extra is not None:
                    yield self.extra
                if self.failure is not None:
                    raise self.failure
                if self.ends_early:
                    return
        finally:
            await words.aclose()


def logprob(text: str, alternatives: int) -> TokenLogprob:
    top = [TokenLogprob("x", float("-inf"), b"x")] * alternatives
    return TokenLogprob(text, -0.5, text.encode(), tuple(top))


def text_body(**changes: Any) -> dict[str, Any]:
    return {"model": "tiny-writer", "input": "one two three", "seed": 7} | changes


def with_options(**options: Any) -> dict[str, Any]:
    return text_body(provider_options={"text": options})


def post_raw(http: httpx.Client, values: dict[str, Any]) -> httpx.Response:
    """JSON with escapes: httpx's own refuses half of a surrogate pair."""
    headers = {"content-type": "application/json"}
    return http.post("/v1/responses", content=json.dumps(values), headers=headers)


def read_events(lines: Iterable[str]) -> list[dict[str, Any]]:
    """The events of a whole stream, which must follow the rules of the wire."""
    frames = "\n".join(lines).strip("\n").split("\n\n")
    assert frames.pop() == "data: [DONE]"
    events = []
    for frame in frames:
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def stream(http: httpx.Client, values: dict[str, Any]) -> list[dict[str, Any]]:
    with http.stream("POST", "/v1/responses", json=values | {"stream": True}) as answer:
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = b"".join(answer.iter_raw()).decode()
    assert "\r" not in text
    assert text.endswith("\n\n")
    return read_events(text.split("\n"))
