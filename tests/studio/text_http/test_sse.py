"""Event streams in every shape that the standard allows, cut into pieces at every byte."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from studio.engine.text_http.sse import BadStream, StreamCut, json_events

DONE = b"data: [DONE]\n\n"
TEXT = "é🙂\u2028\x85\x0b-"  # httpx's own lines would end at three of these


class Pieces(httpx.AsyncByteStream):
    """A body in chunks of `size` bytes."""

    def __init__(self, body: bytes, size: int) -> None:
        self.body = body
        self.size = size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.body), self.size):
            yield self.body[start : start + self.size]


def read(body: bytes, *, size: int = 10_000, kind: str = "text/event-stream") -> list[Any]:
    async def scenario() -> list[Any]:
        headers = {"Content-Type": kind}
        response = httpx.Response(200, headers=headers, stream=Pieces(body, size))
        return [event async for event in json_events(response)]

    return asyncio.run(scenario())


def data(value: object) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode()


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 10_000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_all_line_ends_and_all_boundaries(size: int, end: bytes) -> None:
    values = [{"text": TEXT}, {"text": "b"}]
    body = b"".join(data(value) + end + end for value in values)
    body += b"data: [DONE]" + end + end
    if end == b"\r":
        body += b":\r"  # a last CR may be the first half of CRLF, so the reader waits behind it
    assert read(body, size=size) == values


def test_comments_names_and_several_lines_of_data() -> None:
    body = b': ping\n\n\nevent: message\nid: 3\ndata: {"text":\ndata:"a"}\nretry: 5\n\n: x\n\n'
    assert read(body + DONE) == [{"text": "a"}]


def test_what_stands_behind_the_end_is_nothing() -> None:
    assert read(data({"a": 1}) + b"\n\n" + DONE + b"data: {nonsense\n\n") == [{"a": 1}]


def test_an_event_named_error_is_one() -> None:
    assert read(b'event: error\ndata: {"message": "m"}\n\n' + DONE) == [{"error": {"message": "m"}}]


@pytest.mark.parametrize("body", [b"", data({"a": 1}) + b"\n\n", data({"a": 1}), b": ping\n\n"])
def test_a_stream_without_an_end_is_cut(body: bytes) -> None:
    with pytest.raises(StreamCut):
        read(body)


@pytest.mark.parametrize("body", [b"data: {\n\n", b"data: [1]\n\n", b'data: "a"\n\n'])
def test_what_is_no_object_is_bad(body: bytes) -> None:
    with pytest.raises(BadStream, match="JSON"):
        read(body + DONE)


def test_an_answer_that_is_no_stream_is_bad() -> None:
    with pytest.raises(BadStream, match="application/json"):
        read(b"{}", kind="application/json")
