"""The text engine in a child process: streams, cancels, kills; with a worker that has no model."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from pipelines.text.requests import Speculation, TextDelta, TextDone, TextRequest, TextStarted
from studio.engine.messages import TextWorkerConfig
from studio.engine.protocol import EngineState, EngineStatus
from studio.engine.text_local import LocalTextEngine, _not_ready
from studio.errors import BadRequest, Unavailable

TIMEOUT_S = 30


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not is_true():  # noqa: ASYNC110 (another process is waited for)
            await asyncio.sleep(0.01)


@asynccontextmanager
async def started(
    model: str = "tiny", state: EngineState = "ready"
) -> AsyncIterator[LocalTextEngine]:
    """An engine that has come to `state`."""
    config = TextWorkerConfig(model, Path("."))
    engine = LocalTextEngine(config, command=("-m", "tests.studio.fake_text_worker"))
    engine.start()
    try:
        await until(lambda: engine.status.state == state)
        yield engine
    finally:
        engine.close()


def ask(prompt: str, name: str = "a") -> TextRequest:
    return TextRequest(name, prompt, 0)


async def text(engine: LocalTextEngine, request: TextRequest) -> str:
    pieces = [piece async for piece in engine.stream(request)]
    assert isinstance(pieces[0], TextStarted) and isinstance(pieces[-1], TextDone)
    return "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))


def test_a_text_comes_from_the_child() -> None:
    async def check() -> None:
        async with started() as engine:
            assert engine.model.name == "tiny-text" and engine.model.adapters == ("expansion",)
            assert await text(engine, ask("a")) == "one two"
            assert engine.speculation == Speculation(1, 3, 1)

    asyncio.run(check())


def test_texts_side_by_side_do_not_mix() -> None:
    async def check() -> None:
        async with started() as engine:
            texts = await asyncio.gather(*(text(engine, ask("a", str(i))) for i in range(8)))
            assert texts == ["one two"] * 8
            assert engine.speculation == Speculation(8, 24, 8)

    asyncio.run(check())


def test_closing_the_stream_cancels_and_the_next_is_served() -> None:
    async def check() -> None:
        async with started() as engine:
            async with aclosing(engine.stream(ask("hang"))) as pieces:
                async for piece in pieces:
                    if isinstance(piece, TextDelta):
                        break
            assert await text(engine, ask("a", "b")) == "one two"

    asyncio.run(check())


def test_a_refusal_names_its_field() -> None:
    async def check() -> None:
        async with started() as engine:
            with pytest.raises(BadRequest) as caught:
                await text(engine, ask("refuse"))
            assert (caught.value.param, caught.value.code) == ("input", "context_length_exceeded")

    asyncio.run(check())


def test_kill_9_in_mid_text_is_told_and_the_worker_comes_back() -> None:
    async def check() -> None:
        async with started() as engine:
            with pytest.raises(Unavailable, match="SIGKILL") as caught:
                await text(engine, ask("die"))
            assert caught.value.code == "worker_lost"
            await until(lambda: engine.status.state == "ready")
            assert await text(engine, ask("a", "b")) == "one two"

    asyncio.run(check())


def test_before_the_model_is_there_the_cause_is_named() -> None:
    async def check() -> None:
        async with started("slow", "loading") as engine:
            await until(lambda: engine.status.detail.startswith("fetching"))
            with pytest.raises(Unavailable, match="coming: fetching the text model") as coming:
                await text(engine, ask("a"))
            assert int(coming.value.headers["Retry-After"]) > 0
        async with started("broken", "failed") as engine:
            with pytest.raises(Unavailable, match=r"config\.json") as caught:
                await text(engine, ask("a"))
            assert caught.value.code == "engine_failed"
        with pytest.raises(Unavailable, match="shutting down"):
            await text(engine, ask("a"))

    asyncio.run(check())


def test_a_cause_that_is_a_sentence_gets_no_second_full_stop() -> None:
    error = _not_ready(EngineStatus("restarting", "The machine may have run out of memory."))
    assert "run out of memory. Try again" in error.message
