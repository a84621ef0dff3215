"""Finding a server and its model, in the forms in which servers list them."""

import asyncio
import logging
from typing import Any

import pytest

from studio.engine.text_http import engine as http_engine
from studio.errors import BadRequest, StudioError
from tests.studio.text_http.engines import asked, engine_at, ready, run, until, written
from tests.studio.text_http.fake_kinds import Json
from tests.studio.text_http.fake_servers import Exchange, Script, serving


def listing(status: int, body: Json | str) -> Script:
    async def script(exchange: Exchange) -> None:
        await exchange.answer(status, body)

    return script


async def detail_at(state: str, listed: Script, **options: Any) -> str:
    """What the engine says of a server that lists so."""
    async with serving("openai") as server:
        server.listing = listed
        async with engine_at(server.url, **options) as engine:
            await until(lambda: engine.status.state not in ("starting",))
            assert engine.status.state == state
            return engine.status.detail


@pytest.mark.parametrize(
    ("state", "status", "body", "says"),
    [
        ("failed", 401, {"error": "no"}, "--text-key"),
        ("failed", 404, "not here", "--text-url"),
        ("failed", 200, {"data": []}, "lists no model"),
        ("failed", 200, "<html>", "lists no model"),
        ("failed", 200, {"data": [{"id": 3}, None]}, "lists no model"),
        ("failed", 302, "", "redirects"),
        ("loading", 503, {"error": {"message": "Loading model"}}, "Loading model"),
        ("failed", 500, "oops", "oops"),
    ],
)
def test_what_is_wrong_is_said(state: str, status: int, body: Json | str, says: str) -> None:
    async def scenario() -> None:
        detail = await detail_at(state, listing(status, body))
        assert says in detail
        assert "127.0.0.1" not in detail  # /health/ready is open to all

    run(scenario())


def test_a_server_without_a_list_is_believed_the_name() -> None:
    async def scenario() -> None:
        detail = await detail_at("ready", listing(404, {}), model="gpt")
        assert detail.endswith("serves gpt")

    run(scenario())


@pytest.mark.parametrize(
    ("card", "given", "name"),
    [
        ({"id": "/models/a-b.gguf"}, "a-b", "a-b"),
        ({"id": "/models/a-b.gguf"}, "a-b.gguf", "a-b"),
        ({"id": "/models/a-b.gguf", "aliases": ["short"]}, "short", "a-b"),
        ({"id": "llama3:latest"}, "llama3", "llama3:latest"),
        ({"id": "org/model"}, "model", "org/model"),
    ],
)
def test_a_model_may_be_called_what_people_call_it(card: Json, given: str, name: str) -> None:
    async def scenario() -> None:
        async with serving("openai") as server:
            server.cards = [{"id": "other"}, card]
            async with engine_at(server.url, model=given) as engine:
                await until(lambda: engine.status.state == "ready")
                assert engine.model.name == name
                await written(engine, asked())
                assert server.bodies[-1]["model"] == card["id"]

    run(scenario())


def test_the_first_model_that_is_no_lora_is_taken() -> None:
    async def scenario() -> None:
        async with serving("vllm") as server:
            server.cards = [server.kind.card | {"id": "lora", "parent": "m"}, server.kind.card]
            async with engine_at(server.url) as engine:
                await until(lambda: engine.status.state == "ready")
                assert engine.model.name == "m"

    run(scenario())


def test_a_server_that_is_slow_to_list_is_busy_before_it_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_engine, "CHECK_S", 0.01)

    async def scenario() -> None:
        async with ready("vllm", connect_timeout_s=0.05) as (engine, server):
            states = []

            async def never(exchange: Exchange) -> None:
                states.append(engine.status.state)
                await exchange.gone()

            server.listing = never
            await until(lambda: engine.status.state == "restarting")
            assert states == ["ready"] * http_engine.MAX_SLOW_LOOKS
            await written(engine, asked())  # it is asked nevertheless
            server.listing = None
            await until(lambda: engine.status.state == "ready")

    run(scenario())


def test_a_server_without_raw_completions_says_so_by_404() -> None:
    async def missing(exchange: Exchange) -> None:
        await exchange.answer(404, {"detail": "Not Found"})

    async def scenario() -> None:
        async with ready("openai") as (engine, server):
            server.script = [missing]
            with pytest.raises(BadRequest, match="send turns") as caught:
                await written(engine, asked("plain"))
            assert caught.value.param == "prompt"

    run(scenario())


def test_the_name_is_known_before_the_server_is() -> None:
    async def scenario() -> None:
        engine = http_engine.HttpTextEngine("http://127.0.0.1:9", api_key=None, model="m")
        assert (engine.model.name, engine.status.state) == ("m", "starting")
        assert engine.speculation is None
        engine.close()
        await asyncio.sleep(0)

    run(scenario())


def test_the_address_is_in_the_log_and_not_in_the_open_status(
    caplog: pytest.LogCaptureFixture,
) -> None:
    details: list[str] = []

    async def scenario() -> None:
        async with serving("vllm") as server, engine_at(server.url) as engine:
            details.append(engine.status.detail)
            await until(lambda: engine.status.state == "ready")
            details.append(engine.status.detail)
            server.kill()
            with pytest.raises(StudioError):
                await written(engine, asked())
            await until(lambda: engine.status.state == "restarting")
            details.append(engine.status.detail)
            told = [record.message for record in caplog.records if server.url in record.message]
            assert any("vLLM serves m" in message for message in told)
            assert any("cannot be reached" in message for message in told)

    with caplog.at_level(logging.INFO, "studio"):
        run(scenario())
    assert all(details) and not any("127.0.0.1" in detail for detail in details)
