"""The engine in front of a real llama.cpp server with the embedded text model's file."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from pipelines.text.requests import Message, Sampling, TextDelta, TextStarted
from studio.engine.local import ROOT
from studio.engine.text_http.engine import HttpTextEngine
from studio.errors import BadRequest, Unavailable
from tests.studio.text_http.engines import asked, done, engine_at, run, text_of, until, written
from tests.studio.text_http.llamacpp_server import CONTEXT_TOKENS

GREEDY = Sampling(temperature=0.0)
TURNS = (Message("user", "Name a colour."),)
START = "Once upon a time"


class Running:
    """The server's process and its address."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.studio.text_http.llamacpp_server", str(path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        lines = iter(self.process.stdout.readline, "")
        self.url = next((line.strip() for line in lines if line.startswith("http")), "")
        assert self.url, "the server did not start"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def server(smollm2_gguf: Path) -> Iterator[Running]:
    running = Running(smollm2_gguf)
    yield running
    running.kill()


async def found(engine: HttpTextEngine) -> HttpTextEngine:
    await until(lambda: engine.status.state == "ready")
    return engine


def test_it_is_known_and_writes(server: Running) -> None:
    async def scenario() -> None:
        async with engine_at(server.url) as engine:
            await found(engine)
            assert engine.status.detail.startswith("llama.cpp serves ")
            assert engine.model.context_tokens == CONTEXT_TOKENS
            assert "/" not in engine.model.name
            pieces = await written(engine, asked(TURNS, sampling=GREEDY, max_tokens=6))
            started, end = pieces[0], done(pieces)
            assert isinstance(started, TextStarted)
            assert started.input_tokens == end.usage.input_tokens > 5
            assert (end.finish, end.usage.output_tokens) == ("length", 6)
            assert end.usage.speculation is None
            again = await written(engine, asked(TURNS, sampling=GREEDY, max_tokens=6))
            assert text_of(again) == text_of(pieces) != ""
            assert done(again).usage.cached_tokens > 0

    run(scenario())


def test_plain_text_with_seed_logprobs_and_stop(server: Running) -> None:
    async def scenario() -> None:
        async with engine_at(server.url) as engine:
            await found(engine)
            request = asked(START, max_tokens=12, top_logprobs=2)
            one, two = await written(engine, request), await written(engine, request)
            other = await written(engine, replace(request, seed=8))
            assert text_of(one) == text_of(two) != text_of(other)
            entries = [
                item for piece in one if isinstance(piece, TextDelta) for item in piece.logprobs
            ]
            assert b"".join(item.bytes for item in entries).decode() == text_of(one)
            assert all(item.logprob <= 0 and len(item.top) == 2 for item in entries)
            stop = text_of(one)[4:7]  # in the middle of a token, most likely
            stopped = await written(engine, replace(request, stop=(stop,)))
            assert text_of(stopped) == text_of(one).partition(stop)[0]
            assert done(stopped).finish == "stop"

    run(scenario())


def test_a_prompt_that_does_not_fit(server: Running) -> None:
    async def scenario() -> None:
        async with engine_at(server.url) as engine:
            await found(engine)
            with pytest.raises(BadRequest, match=str(CONTEXT_TOKENS)) as caught:
                await written(engine, asked("word " * 2 * CONTEXT_TOKENS))
            assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")

    run(scenario())


def test_a_closed_generator_frees_the_slot(server: Running) -> None:
    async def is_writing() -> bool:
        async with httpx.AsyncClient(trust_env=False) as client:
            slots = (await client.get(f"{server.url}/slots")).json()
        return any(slot["is_processing"] for slot in slots)

    async def scenario() -> None:
        async with engine_at(server.url) as engine:
            await found(engine)
            stream = engine.stream(asked(START, max_tokens=200, sampling=GREEDY))
            await anext(stream)
            await anext(stream)
            assert await is_writing()
            await stream.aclose()
            for _ in range(200):
                if not await is_writing():
                    return
                await asyncio.sleep(0.01)
            pytest.fail("the slot is still busy after 2 s")

    run(scenario())


def test_a_server_killed_in_mid_text_is_said_so(server: Running) -> None:
    async def scenario() -> None:
        async with engine_at(server.url) as engine:
            await found(engine)
            stream = engine.stream(asked(START, max_tokens=200, sampling=GREEDY))
            await anext(stream)
            await anext(stream)
            server.kill()
            with pytest.raises(Unavailable, match=r"broke off|ended the stream"):
                async for _ in stream:
                    pass
            await until(lambda: engine.status.state == "restarting")
            assert engine.status.restarts == 1

    run(scenario())
