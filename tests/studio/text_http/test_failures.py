"""Servers that refuse, break off, hang or talk nonsense: a sentence each, and never the key."""

import asyncio
import logging
from typing import Any

import pytest

from studio.engine.text_http.engine import HttpTextEngine
from studio.engine.text_http.refusals import site_of
from studio.errors import BadRequest, CannotStart, StudioError, TooManyRequests, Unavailable
from tests.studio.text_http.engines import asked, engine_at, ready, run, text_of, until, written
from tests.studio.text_http.fake_kinds import WORDS, Json
from tests.studio.text_http.fake_servers import Exchange, Script, serving
from tests.studio.text_http.test_engine import END, of

KEY = "sk-very-secret-7531"


def saying(status: int, body: Json | str, headers: str = "") -> Script:
    async def script(exchange: Exchange) -> None:
        await exchange.answer(status, body, headers)

    return script


def streaming(*parts: Json | str | bytes, cut: bool = False) -> Script:
    """Events (or raw bytes), then `[DONE]` unless `cut`."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin()
        for part in parts:
            await (exchange.chunk(part) if isinstance(part, bytes) else exchange.event(part))
        if not cut:
            await exchange.event("[DONE]")
            await exchange.end()

    return script


def failure(*scripts: Script, name: str = "vllm", **options: Any) -> StudioError:
    """What a request meets; the server is asked again afterwards and must still be served."""
    caught: list[StudioError] = []

    async def scenario() -> None:
        async with ready(name, api_key=KEY, **options) as (engine, server):
            server.script = list(scripts)
            with pytest.raises(StudioError) as raised:
                await written(engine, asked())
            caught.append(raised.value)
            assert not server.script, "it was not asked as often as expected"
            assert text_of(await written(engine, asked())) == "".join(WORDS)

    run(scenario())
    assert KEY not in str(caught[0])
    return caught[0]


OVERFLOWS: dict[str, Json] = {
    "llamacpp": {
        "error": {
            "code": 400,
            "message": "request (731 tokens) exceeds the available context size (512 tokens)",
            "type": "exceed_context_size_error",
        }
    },
    "vllm": {
        "error": {
            "message": "This model's maximum context length is 4096 tokens. However, you requested "
            "20 output tokens and your prompt contains at least 4100 input tokens.",
            "type": "BadRequestError",
            "code": 400,
        }
    },
    "sglang": {
        "object": "error",
        "message": "The input (5000 tokens) is longer than the model's context length (4096).",
        "code": 400,
    },
    "max": {
        "error": {
            "code": "400",
            "message": "Prompt is too long: 5000 tokens exceeds the configured maximum context "
            "length of 4096 tokens. Please shorten your prompt.",
        }
    },
    "ollama": {"error": {"message": "the input length exceeds the context length"}},
    "openai": {"error": {"message": "Too long.", "code": "context_length_exceeded"}},
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_a_prompt_that_does_not_fit_is_the_same_error_everywhere(name: str) -> None:
    error = failure(saying(400, OVERFLOWS[name]), name=name)
    assert isinstance(error, BadRequest)
    assert (error.code, error.param) == ("context_length_exceeded", "input")


def test_an_overflow_inside_the_stream_is_one_too() -> None:
    error = failure(streaming(OVERFLOWS["max"], cut=True), name="max")
    assert isinstance(error, BadRequest)
    assert error.code == "context_length_exceeded"


def test_other_refusals_hand_on_the_words_and_the_field() -> None:
    said = {"error": {"message": "min_p is not supported with\n speculation", "param": "min_p"}}
    error = failure(saying(400, said))
    assert isinstance(error, BadRequest)
    assert error.param == "min_p"
    assert error.message.endswith("refused the request: min_p is not supported with speculation.")


@pytest.mark.parametrize(
    "script",
    [
        streaming(of("A"), cut=True),
        streaming(of("A")),  # [DONE] without a reason
        streaming(of("A"), of("", finish_reason="abort")),
        streaming(of("A"), b"data: {not JSON}\n\n"),
        streaming(of("A"), "[1, 2]"),
        streaming(of("A"), {"error": {"message": "out of memory", "code": 500}}),
        streaming(of("A"), {"error": "CUDA error"}),
        streaming(of("A"), b'event: error\ndata: {"message": "worker died"}\n\n'),
        streaming({"object": "error", "message": "Internal", "code": 500}),
        saying(200, {"choices": []}),  # no stream
        saying(500, "<html>oops</html>"),
        saying(502, ""),
        saying(404, {"error": {"message": "The model `m` does not exist."}}),
    ],
)
def test_what_is_no_complete_text_is_unavailable(script: Script) -> None:
    error = failure(script)
    assert isinstance(error, Unavailable)
    assert "127.0.0.1" not in error.message
    assert error.message.endswith((".", "…"))


def test_an_ended_text_survives_the_loss_of_what_comes_behind() -> None:
    async def scenario() -> None:
        async with ready("openai") as (engine, server):
            server.script = [streaming(of("A"), END, cut=True)]
            assert text_of(await written(engine, asked())) == "A"

    run(scenario())


def test_a_wrong_key_is_the_studios_and_named_so() -> None:
    error = failure(saying(401, {"error": {"message": f"Incorrect API key: {KEY}"}}))
    assert isinstance(error, Unavailable)
    assert "--text-key" in error.message


def test_the_servers_words_never_hold_its_host() -> None:
    site = site_of("http://gpu-7.corp:8000", None)
    said = "certificate is not valid for 'GPU-7.corp': http://gpu-7.corp:8000/v1, not xgpu-7.corp"
    expected = "certificate is not valid for '***': http://***:8000/v1, not xgpu-7.corp"
    assert site.quoted(said) == expected


def test_the_servers_words_never_hold_the_key() -> None:
    assert "***" in failure(saying(400, {"error": {"message": f"bad header {KEY}"}})).message


@pytest.mark.parametrize("status", [429, 503])
def test_busy_servers_are_tried_once_more_when_they_name_a_short_time(status: int) -> None:
    async def scenario() -> None:
        async with ready("vllm") as (engine, server):
            server.script = [saying(status, {}, "Retry-After: 0\r\n")]
            assert text_of(await written(engine, asked())) == "".join(WORDS)
            assert len(server.bodies) == 2

    run(scenario())


def test_busy_servers_with_a_long_time_are_handed_on() -> None:
    error = failure(saying(429, {}, "Retry-After: 90\r\n"))
    assert isinstance(error, TooManyRequests)
    assert error.headers["Retry-After"] == "90"
    assert isinstance(failure(saying(503, {"error": "Loading model"})), Unavailable)
    twice = [saying(503, {}, "Retry-After: 0\r\n")] * 2
    assert isinstance(failure(*twice), Unavailable)


def test_a_kept_connection_that_the_server_had_closed_costs_a_second_try() -> None:
    """llama.cpp's habit, in front of a client that does not know it."""

    async def hanging_up(exchange: Exchange) -> None:
        exchange.writer.close()

    async def scenario() -> None:
        async with ready("openai") as (engine, server):
            server.script = [hanging_up]
            assert text_of(await written(engine, asked())) == "".join(WORDS)
            server.script = [hanging_up, hanging_up]
            with pytest.raises(Unavailable, match="broke off"):
                await written(engine, asked())

    run(scenario())


def test_silence_is_counted_from_chunk_to_chunk() -> None:
    async def slow(exchange: Exchange) -> None:
        await exchange.begin()
        for _ in range(4):  # each pause is short, all of them are not
            await exchange.event(of("A"))
            await asyncio.sleep(0.1)
        await exchange.gone()

    async def scenario() -> None:
        async with ready("vllm", chunk_timeout_s=0.25) as (engine, server):
            server.script = [slow]
            seen = []
            with pytest.raises(Unavailable, match=r"sent nothing for 0\.25 s"):
                async for piece in engine.stream(asked()):
                    seen.append(piece)
            assert text_of(seen) == "AAAA"

    run(scenario())


def test_a_redirect_is_logged_and_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving("vllm") as other, ready("vllm", api_key=KEY) as (engine, server):
            server.script = [saying(307, {}, f"Location: {other.url}/chat/completions\r\n")]
            with pytest.raises(Unavailable, match="redirects") as raised:
                await written(engine, asked())
            assert other.url not in raised.value.message
            assert f"redirects to {other.url}" in caplog.text
            assert other.seen == []  # neither key nor prompt
            assert {seen.headers["authorization"] for seen in server.seen} == {f"Bearer {KEY}"}

    run(scenario())


def test_an_unknown_model_is_a_failure_that_lists_the_served_ones() -> None:
    async def scenario() -> None:
        async with serving("ollama") as server:
            server.cards = [{"id": name, "owned_by": "library"} for name in ("a:latest", "b:1b")]
            async with engine_at(server.url, model="c") as engine:
                await until(lambda: engine.status.state == "failed")
                assert "does not serve c. It serves a:latest, b:1b" in engine.status.detail
                with pytest.raises(Unavailable, match="does not serve c"):
                    await written(engine, asked())
                server.cards.append({"id": "c:latest", "owned_by": "library"})
                await until(lambda: engine.status.state == "ready")  # it keeps looking
                assert engine.model.name == "c:latest"

    run(scenario())


def test_neither_status_nor_logs_hold_the_key(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving("vllm") as server:
            server.cards = []
            async with engine_at(server.url, api_key=KEY) as engine:
                await until(lambda: engine.status.state == "failed")
                assert KEY not in engine.status.detail
                server.cards = [server.kind.card]
                await until(lambda: engine.status.state == "ready")
                await written(engine, asked())

    with caplog.at_level(logging.DEBUG):
        run(scenario())
    assert caplog.text and KEY not in caplog.text


@pytest.mark.parametrize(
    "url",
    ["host:8000", "ftp://host", "http://", "http://me:pw@host", "http://host?a=b", "http://h:x"],
)
def test_a_url_that_cannot_be_meant_is_refused_at_once(url: str) -> None:
    with pytest.raises(CannotStart, match="--text-url") as caught:
        HttpTextEngine(url, api_key=None, model=None)
    assert "pw" not in str(caught.value)


def test_a_url_without_a_path_gets_the_usual_one() -> None:
    assert site_of("http://host:8000/", None).url == "http://host:8000/v1"
    assert site_of("https://host/proxy/v1/", None).root == "https://host/proxy"
    with pytest.raises(CannotStart, match="--text-key"):
        site_of("http://host", "ключ")
    with pytest.raises(CannotStart, match="--text-dialect"):
        HttpTextEngine("http://host", api_key=None, model=None, dialect="grpc")
