"""What an owner can do with text: places in flight, cancelling, an engine that is not there."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from pipelines.text.embedded import NAME as EMBEDDED
from pipelines.text.requests import Message, Speculation, TextDone, TextRequest, TextStarted
from studio.engine.protocol import EngineStatus
from studio.engine.text_protocol import Piece, TextModel
from studio.errors import BadRequest, NotFound, StudioError, TooManyRequests, Unavailable
from studio.text_request import TextDraft
from studio.texts import Texts
from tests.fake_text_engine import FakeTextEngine

DRAFT = TextDraft((Message("user", "hello"),))


class Halting(FakeTextEngine):
    """Stops without a word why."""

    async def stream(self, request: TextRequest) -> AsyncGenerator[Piece]:
        yield TextStarted(request.id, 1, 0)


async def written(texts: Texts, owner: str = "me", draft: TextDraft = DRAFT) -> list[Piece]:
    request, _ = texts.plan(draft)
    return [piece async for piece in texts.stream(request, owner=owner)]


async def begun(texts: Texts, owner: str) -> AsyncGenerator[Piece]:
    """A stream whose prompt was read."""
    stream = texts.stream(texts.plan(DRAFT)[0], owner=owner)
    assert isinstance(await anext(stream), TextStarted)
    return stream


def test_a_text_is_planned_and_written() -> None:
    engine = FakeTextEngine(speculation=Speculation(3, 6, 2))
    texts = Texts(engine)
    texts.start()
    pieces = asyncio.run(written(texts))
    assert isinstance(pieces[0], TextStarted)
    assert isinstance(pieces[-1], TextDone)
    assert (texts.status, texts.model) == (engine.status, engine.model)
    assert texts.speculation == Speculation(3, 6, 2)
    assert texts.in_flight == 0
    texts.close()
    assert engine.is_closed


def test_without_an_engine_there_is_no_text() -> None:
    texts = Texts()
    texts.start()
    texts.close()
    assert (texts.status, texts.model, texts.speculation) == (None, None, None)
    with pytest.raises(NotFound, match="writes no text"):
        texts.plan(DRAFT)
    with pytest.raises(NotFound, match="writes no text"):
        asyncio.run(anext(texts.stream(TextRequest("1", "x", 0), owner="me")))


def test_another_model_is_not_found() -> None:
    texts = Texts(FakeTextEngine())
    assert texts.model_of(None) == texts.model_of(EMBEDDED) == texts.model
    with pytest.raises(NotFound, match=f"'{EMBEDDED}'") as caught:
        texts.plan(TextDraft("x", model="other"))
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


def test_a_model_that_is_not_known_yet_is_unavailable() -> None:
    engine = FakeTextEngine(model=TextModel(""), status=EngineStatus("starting", "looking"))
    texts = Texts(engine)
    assert texts.model is None
    for name in (None, "", "some-model"):
        with pytest.raises(Unavailable, match="looking") as caught:
            texts.plan(TextDraft("x", model=name))
        assert caught.value.headers == {"Retry-After": "2"}


def test_an_adapter_is_judged_once_the_model_is_known() -> None:
    engine = FakeTextEngine(model=TextModel("m"), status=EngineStatus("loading"))
    draft = TextDraft("x", adapter="pirate")
    Texts(engine).plan(draft)
    engine.status = EngineStatus("ready")
    with pytest.raises(BadRequest, match="'pirate'"):
        Texts(engine).plan(draft)


def test_places_are_bounded_by_owner_and_in_all() -> None:
    async def run() -> None:
        texts = Texts(FakeTextEngine(), max_in_flight=3, max_per_owner=2)
        mine = [await begun(texts, "me") for _ in range(2)]
        with pytest.raises(TooManyRequests, match="2 texts of yours"):
            await begun(texts, "me")
        theirs = await begun(texts, "you")
        with pytest.raises(TooManyRequests, match="3 texts are being") as caught:
            await begun(texts, "they")
        assert caught.value.headers == {"Retry-After": "2"}
        assert texts.in_flight == 3
        await mine[0].aclose()
        mine.append(await begun(texts, "me"))  # its place was free again
        for stream in (*mine, theirs):
            await stream.aclose()
        assert texts.in_flight == 0

    asyncio.run(run())


def test_a_closed_stream_cancels_its_request() -> None:
    engine = FakeTextEngine()

    async def run() -> None:
        async with aclosing(await begun(Texts(engine), "me")) as stream:
            await anext(stream)
        assert engine.cancelled == [engine.requests[0].id]  # now, and not when it is collected

    asyncio.run(run())


@pytest.mark.parametrize(
    ("engine", "code"),
    [(FakeTextEngine(status=EngineStatus("loading")), "unavailable"), (Halting(), "engine_failed")],
)
def test_a_failure_frees_its_place(engine: FakeTextEngine, code: str) -> None:
    texts = Texts(engine)
    with pytest.raises(Unavailable) as caught:
        asyncio.run(written(texts))
    error: StudioError = caught.value
    assert (error.code, texts.in_flight) == (code, 0)


@pytest.mark.parametrize(
    ("speculation", "told"),
    [(Speculation(3, 6, 2), "acceptance 0.33"), (None, "acceptance unknown")],
)
def test_a_finished_text_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture, speculation: Speculation | None, told: str
) -> None:
    with caplog.at_level(logging.INFO, logger="studio.texts"):
        asyncio.run(written(Texts(FakeTextEngine(speculation=speculation))))
    (line,) = [record.getMessage() for record in caplog.records]
    assert "3 tokens after 5 (2 cached) in 0.0" in line
    assert "tokens/s" in line
    assert told in line
    assert "hello" not in line
