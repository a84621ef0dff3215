"""`prompt_upsampling` and `/v1/expansions`, against a real server with a text engine of words."""

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pipelines.text.embedded import NAME as EMBEDDED
from studio.engine.protocol import EngineStatus
from studio.pictures import read_settings
from studio.texts import Texts
from tests.fake_engine import FakeEngine
from tests.fake_text_engine import FakeTextEngine
from tests.running import RunningStudio
from tests.studio.conftest import wait_until

GOOD = " on a red sofa, soft warm light, open old book, dark green wall, oil paint\n"
EXPANDED = f"a cat,{GOOD.rstrip()}"


@pytest.fixture(scope="module")
def text_engine() -> FakeTextEngine:
    return FakeTextEngine()


@pytest.fixture(scope="module")
def running(
    tmp_path_factory: pytest.TempPathFactory, text_engine: FakeTextEngine
) -> Iterator[RunningStudio]:
    folder = tmp_path_factory.mktemp("expanding")
    with RunningStudio(folder, FakeEngine(), texts=Texts(text_engine)) as studio:
        yield studio


@pytest.fixture
def client(running: RunningStudio, text_engine: FakeTextEngine) -> Iterator[httpx.Client]:
    text_engine.answer = lambda request: GOOD
    text_engine.status = EngineStatus("ready")
    text_engine.requests.clear()
    with httpx.Client(base_url=running.url, timeout=20, trust_env=False) as client:
        yield client


def body(prompt: str = "a cat", **options: Any) -> dict[str, Any]:
    image = {"output_format": "png", "prompt_upsampling": True} | options
    return {"model": "tiny", "input": prompt, "provider_options": {"image": image}}


def post(client: httpx.Client, values: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/v1/responses", json=values)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_pictures_are_made_with_the_expanded_prompt(
    client: httpx.Client, running: RunningStudio
) -> None:
    answer = post(client, body(num_images=2))
    assert running.engine.received[-1].prompt == EXPANDED
    assert not answer["warnings"]
    for part in answer["output"][0]["content"]:
        assert (part["original_prompt"], part["expanded_prompt"]) == ("a cat", EXPANDED)
        file = read_settings(base64.b64decode(part["image_data"]))
        assert file is not None
        assert (file["original_prompt"], file["prompt"]) == ("a cat", EXPANDED)
    newest = client.get("/v1/images", params={"limit": 1}).json()["data"][0]
    assert newest["settings"]["original_prompt"] == "a cat"
    again = client.get(f"/v1/responses/{answer['id']}").json()
    assert again["output"][0]["content"][0]["expanded_prompt"] == EXPANDED


@pytest.mark.parametrize("seed", [None, 7])
def test_the_seed_of_the_pictures_is_that_of_the_expansion(
    client: httpx.Client, text_engine: FakeTextEngine, seed: int | None
) -> None:
    answer = post(client, body() | {"seed": seed})
    assert [request.seed for request in text_engine.requests] == [answer["seed"]]
    assert seed in (None, answer["seed"])


def test_nothing_is_expanded_unasked(
    client: httpx.Client, running: RunningStudio, text_engine: FakeTextEngine
) -> None:
    part = post(client, body(prompt_upsampling=False))["output"][0]["content"][0]
    assert "expanded_prompt" not in part and "original_prompt" not in part
    assert running.engine.received[-1].prompt == "a cat"
    assert not text_engine.requests


def test_what_cannot_be_expanded_is_drawn_as_it_is_and_said(
    client: httpx.Client, running: RunningStudio, text_engine: FakeTextEngine
) -> None:
    text_engine.answer = lambda request: " I love it"
    answer = post(client, body())
    assert running.engine.received[-1].prompt == "a cat"
    assert [(w["code"], w["param"]) for w in answer["warnings"]] == [
        ("prompt_not_expanded", "input")
    ]
    assert "stays as it is" in answer["warnings"][0]["message"]
    assert "expanded_prompt" not in answer["output"][0]["content"][0]


def test_a_background_job_is_expanded_too(client: httpx.Client) -> None:
    first = post(client, body() | {"background": True})
    path = f"/v1/responses/{first['id']}"
    wait_until(lambda: client.get(path).json()["status"] == "completed", "it is completed")
    part = client.get(path).json()["output"][0]["content"][0]
    assert part["expanded_prompt"] == EXPANDED


@pytest.mark.parametrize("change", [{"width": 7}, {"steps": 0}])
def test_the_impossible_is_refused_before_anything_is_written(
    client: httpx.Client, text_engine: FakeTextEngine, change: dict[str, Any]
) -> None:
    answer = client.post("/v1/responses", json=body(**change))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == f"provider_options.image.{next(iter(change))}"
    assert not text_engine.requests


def test_a_text_model_that_loads_is_unavailable(
    client: httpx.Client, running: RunningStudio, text_engine: FakeTextEngine
) -> None:
    text_engine.status = EngineStatus("loading")
    made = len(running.engine.received)
    for path, values in (("/v1/responses", body()), ("/v1/expansions", {"input": "a cat"})):
        assert client.post(path, json=values).status_code == 503
    assert len(running.engine.received) == made


def test_without_a_text_model_the_way_out_is_named(http: httpx.Client) -> None:
    for path, values in (("/v1/responses", body()), ("/v1/expansions", {"input": "a cat"})):
        answer = http.post(path, json=values)
        assert answer.status_code == 503
        assert "--text-engine" in answer.json()["error"]["message"]
        assert answer.json()["error"]["code"] == "no_text_engine"


def expand(client: httpx.Client, **values: Any) -> httpx.Response:
    return client.post("/v1/expansions", json={"input": "a cat"} | values)


def test_an_expansion_by_itself(client: httpx.Client, text_engine: FakeTextEngine) -> None:
    answer = expand(client, seed=5, model="tiny").json()
    assert (answer["original_prompt"], answer["expanded_prompt"]) == ("a cat", EXPANDED)
    assert (answer["seed"], answer["text_model"], answer["attempts"]) == (5, EMBEDDED, 1)
    usage = answer["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"] > 0
    assert [request.seed for request in text_engine.requests] == [5]


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.headers["content-type"].startswith("text/event-stream")
    lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_a_stream_shows_the_prompt_as_it_grows(client: httpx.Client) -> None:
    events = events_of(expand(client, stream=True))
    texts = [event["text"] for event in events[:-1]]
    assert texts[0] == "a cat" and texts == sorted(set(texts), key=len)
    assert {event["type"] for event in events[:-1]} == {"expansion.progress"}
    assert events[-1]["type"] == "expansion.completed"
    assert events[-1]["expansion"] == expand(client).json()


def test_a_stream_that_fails_ends_with_the_error(
    client: httpx.Client, text_engine: FakeTextEngine
) -> None:
    text_engine.answer = lambda request: " I love it"
    events = events_of(expand(client, stream=True))
    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["code"] == "prompt_not_expanded"
    refused = expand(client)
    assert refused.status_code == 400
    assert refused.json()["error"] == events[-1]["error"] | {"param": "input"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"input": " "}, 400, "input"),
        ({"input": "word " * 50}, 400, "input"),
        ({"input": 7}, 400, "input"),
        ({"input": "x" * 30_000}, 400, "input"),
        ({"seed": -1}, 400, "seed"),
        ({"seed": 2**32}, 400, "seed"),
        ({"model": "other"}, 404, "model"),
        ({"colour": "red"}, 400, "colour"),
    ],
)
def test_bad_bodies_are_refused(
    client: httpx.Client, change: dict[str, Any], status: int, param: str, stream: bool
) -> None:
    answer = expand(client, **change, stream=stream)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("/v1/responses", body()),
        ("/v1/expansions", {"input": "a cat"}),
        ("/v1/expansions", {"input": "a cat", "stream": True}),
    ],
)
def test_a_client_that_hangs_up_ends_the_text_models_work(
    client: httpx.Client,
    running: RunningStudio,
    text_engine: FakeTextEngine,
    path: str,
    values: dict[str, Any],
) -> None:
    made = len(running.engine.received)
    text_engine.hold = asyncio.Event()  # never set: its last word does not come
    try:
        with pytest.raises(httpx.ReadTimeout):
            client.post(path, json=values, timeout=0.3)
        ids = [request.id for request in text_engine.requests]
        wait_until(lambda: set(ids) <= set(text_engine.cancelled), "the text is given up")
    finally:
        text_engine.hold = None
    assert len(ids) == 1 and len(running.engine.received) == made


def test_our_own_mistake_ends_the_stream_without_its_trace(
    client: httpx.Client, text_engine: FakeTextEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*_: object) -> str:
        raise KeyError("secret")

    monkeypatch.setattr("studio.expansion.expand.fault_of", wrong)
    events = events_of(expand(client, stream=True))
    assert events[0]["type"] == "expansion.progress"
    assert (events[-1]["type"], events[-1]["error"]["code"]) == ("error", "internal_error")
    assert "secret" not in json.dumps(events)
    assert expand(client).status_code == 500
