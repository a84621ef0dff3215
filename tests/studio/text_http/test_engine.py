"""Text through fake servers of every dialect: what is sent, what is read, and who hangs up."""

import asyncio
from typing import Any

import pytest

from pipelines.text.requests import Sampling, Speculation, TextDelta, TextStarted
from studio.engine.text_http.answer import Answer
from studio.engine.text_http.dialects import DIALECTS
from studio.engine.text_http.refusals import Site
from studio.errors import BadRequest, StudioError, Unavailable
from tests.studio.text_http.engines import (
    asked,
    done,
    engine_at,
    ready,
    run,
    text_of,
    until,
    written,
)
from tests.studio.text_http.fake_kinds import (
    ACCEPTED,
    CACHED,
    DRAFTED,
    INPUT,
    KINDS,
    OUTPUT,
    STEPS,
    WORDS,
    Json,
)
from tests.studio.text_http.fake_servers import Exchange, serving

SPECULATING = ("vllm", "sglang", "llamacpp")


def of(text: str, **members: Any) -> Json:
    return {"choices": [{"index": 0, "delta": {"content": text}} | members]}


END = of("", finish_reason="stop")


@pytest.mark.parametrize("name", KINDS)
def test_each_server_is_known_and_its_text_read(name: str) -> None:
    async def scenario() -> None:
        async with ready(name) as (engine, _):
            assert engine.model.name == {"ollama": "m:latest"}.get(name, "m")
            tells_context = name not in ("openai", "ollama")
            assert engine.model.context_tokens == (4096 if tells_context else None)
            for _ in range(3):  # one after the other on whatever connection is left
                pieces = await written(engine, asked())
                assert text_of(pieces) == "".join(WORDS)
                assert done(pieces).finish == "stop"
                usage = done(pieces).usage
                counts = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
                assert counts == (INPUT, OUTPUT, CACHED)
                speculation = Speculation(STEPS, DRAFTED, ACCEPTED) if name in SPECULATING else None
                assert usage.speculation == speculation
            total = Speculation(3 * STEPS, 3 * DRAFTED, 3 * ACCEPTED)
            assert engine.speculation == (total if name in SPECULATING else None)

    run(scenario())


@pytest.mark.parametrize("name", ["vllm", "llamacpp"])
def test_a_connection_is_used_again_where_the_server_means_it(name: str) -> None:
    async def scenario() -> None:
        async with ready(name) as (engine, server):
            for _ in range(3):
                await written(engine, asked())
            peers = [seen.peer for seen in server.seen if seen.method == "POST"]
            assert len(peers) == 3
            assert len(set(peers)) == (3 if name == "llamacpp" else 1)
            assert server.dropped == 0  # llama.cpp says keep-alive and answers no second request

    run(scenario())


@pytest.mark.parametrize("name", KINDS)
def test_the_input_is_counted_first_where_the_server_does(name: str) -> None:
    async def scenario() -> None:
        async with ready(name) as (engine, _):
            started = (await written(engine, asked()))[0]
            assert isinstance(started, TextStarted)
            assert started.input_tokens == (INPUT if name in SPECULATING else 0)
            assert started.cached_tokens == (CACHED if name == "llamacpp" else 0)

    run(scenario())


def test_a_text_has_not_started_while_its_prompt_is_read() -> None:
    answer = Answer(asked(), DIALECTS["llamacpp"], Site("http://host/v1"))
    reading, read, *_ = KINDS["llamacpp"].opening
    assert list(answer.take(reading)) == []
    assert list(answer.take(read)) == [TextStarted("r1", INPUT, CACHED)]


def test_a_proxy_of_the_environment_sees_no_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")

    async def scenario() -> None:
        async with ready("vllm") as (engine, _):
            assert text_of(await written(engine, asked())) == "".join(WORDS)

    run(scenario())


@pytest.mark.parametrize("name", [name for name in KINDS if name != "ollama"])
def test_plain_text_is_gone_on_with(name: str) -> None:
    async def scenario() -> None:
        async with ready(name) as (engine, server):
            pieces = await written(engine, asked("Once upon"))
            assert (text_of(pieces), done(pieces).finish) == ("".join(WORDS), "length")
            assert server.seen[-1].path == "/v1/completions"
            assert server.bodies[-1]["prompt"] == "Once upon"

    run(scenario())


def test_plain_text_is_refused_where_it_would_be_a_conversation() -> None:
    async def scenario() -> None:
        async with ready("ollama") as (engine, server):
            assert not engine.model.completes
            with pytest.raises(BadRequest, match="send turns") as caught:
                await written(engine, asked("Once upon"))
            assert caught.value.param == "prompt"
            assert server.bodies == []

    run(scenario())


async def endless(exchange: Exchange) -> None:
    await exchange.begin()
    await exchange.event(of("A"))
    await exchange.gone()


def test_a_closed_generator_hangs_up() -> None:
    async def scenario() -> None:
        async with ready("vllm") as (engine, server):
            server.script = [endless]
            stream = engine.stream(asked())
            seen = [await anext(stream), await anext(stream)]
            assert [type(piece) for piece in seen] == [TextStarted, TextDelta]
            assert not server.hung_up.is_set()
            await stream.aclose()
            await asyncio.wait_for(server.hung_up.wait(), 5)
            assert text_of(await written(engine, asked())) == "".join(WORDS)  # and goes on serving

    run(scenario())


def test_a_cancelled_task_hangs_up_before_the_first_byte() -> None:
    async def silent(exchange: Exchange) -> None:
        await exchange.gone()

    async def scenario() -> None:
        async with ready("sglang") as (engine, server):
            server.script = [silent]
            task = asyncio.create_task(written(engine, asked()))
            await until(lambda: server.bodies)
            task.cancel()
            await asyncio.wait_for(server.hung_up.wait(), 5)

    run(scenario())


def test_closing_the_engine_ends_a_running_text() -> None:
    async def scenario() -> None:
        async with ready("vllm") as (engine, server):
            server.script = [endless]
            stream = engine.stream(asked())
            await anext(stream)
            await anext(stream)
            engine.close()
            for late in (stream, engine.stream(asked())):
                with pytest.raises(Unavailable, match="closed"):
                    await anext(late)
            await asyncio.wait_for(server.hung_up.wait(), 5)
            assert engine.status.state == "closed"

    run(scenario())


def test_thoughts_are_not_the_answer() -> None:
    entry = {"token": "x", "logprob": -1.0, "bytes": [120], "top_logprobs": []}

    async def thinking(exchange: Exchange) -> None:
        await exchange.begin()
        for field in ("reasoning", "reasoning_content"):
            delta = {"content": None, field: "Hm."}
            await exchange.event({"choices": [{"delta": delta, "logprobs": {"content": [entry]}}]})
        await exchange.event(of("Yes", logprobs={"content": [entry | {"token": "Yes"}]}))
        await exchange.event(END)
        await exchange.event("[DONE]")

    async def scenario() -> None:
        async with ready("vllm") as (engine, server):
            server.script = [thinking]
            pieces = await written(engine, asked(top_logprobs=0))
            assert text_of(pieces) == "Yes"
            tokens = [item.token for piece in pieces[1:-1] for item in piece.logprobs]  # type: ignore[union-attr]
            assert tokens == ["Yes"]

    run(scenario())


def test_a_stop_string_that_the_server_streams_out_is_cut() -> None:
    async def scenario() -> None:
        async with ready("max") as (engine, server):
            server.words = ("one E", "N", "D two")
            pieces = await written(engine, asked(stop=("END",)))
            assert (text_of(pieces), done(pieces).finish) == ("one ", "stop")
            assert done(pieces).usage.output_tokens == OUTPUT  # it was waited for

    run(scenario())


def test_a_stop_string_too_many_for_the_server_ends_its_work() -> None:
    async def writing_on(exchange: Exchange) -> None:
        await exchange.begin()
        for word in ("one E", "ND", *(" more",) * 8):
            await exchange.event(of(word))
        await exchange.gone()

    async def scenario() -> None:
        async with ready("vllm") as (engine, server):
            server.script = [writing_on]
            stops = ("a", "b", "c", "d", "END")
            pieces = await written(engine, asked(stop=stops))
            assert (text_of(pieces), done(pieces).finish) == ("one ", "stop")
            assert server.bodies[-1]["stop"] == list(stops[:4])
            await asyncio.wait_for(server.hung_up.wait(), 5)

    run(scenario())


def test_half_a_stop_string_at_the_end_is_text() -> None:
    async def scenario() -> None:
        async with ready("openai") as (engine, server):
            server.words = ("one E", "N")
            pieces = await written(engine, asked(stop=("END",)))
            assert text_of(pieces) == "one EN"

    run(scenario())


def test_a_server_down_at_first_is_found_later() -> None:
    async def scenario() -> None:
        async with ready("vllm") as (_, server):
            url, port = server.url, server.port
        async with engine_at(url) as engine:
            await until(lambda: engine.status.state == "restarting")
            with pytest.raises(Unavailable, match="The text server cannot be reached"):
                await written(engine, asked())
            async with serving("llamacpp", port):
                await until(lambda: engine.status.state == "ready")
                assert "llama.cpp" in engine.status.detail
                assert text_of(await written(engine, asked())) == "".join(WORDS)

    run(scenario())


def test_a_lost_server_is_said_and_found_again() -> None:
    async def scenario() -> None:
        async with serving("vllm") as server:
            port = server.port
            async with engine_at(server.url) as engine:
                await until(lambda: engine.status.state == "ready")
                server.kill()
                with pytest.raises(StudioError, match="cannot be reached"):
                    await written(engine, asked())
                await until(lambda: engine.status.state == "restarting")
                async with serving("vllm", port):
                    await until(lambda: engine.status.state == "ready")
                    assert engine.status.restarts == 1
                    assert text_of(await written(engine, asked())) == "".join(WORDS)

    run(scenario())


def test_neutral_values_are_sent_too() -> None:
    async def scenario() -> None:
        async with ready("llamacpp") as (engine, server):
            await written(engine, asked(sampling=Sampling()))
            body = server.bodies[-1]
            assert (body["temperature"], body["top_k"], body["min_p"]) == (1.0, 0, 0.0)
            assert (body["repeat_penalty"], body["repeat_last_n"]) == (1.0, 4096)

    run(scenario())
