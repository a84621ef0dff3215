"""`/v1/responses` for a text model, as one JSON answer, against a real server."""

from typing import Any

import httpx
import pytest
from openai import OpenAI

from pipelines.text.requests import Sampling, Speculation
from studio.engine.protocol import EngineStatus
from tests.studio.api.conftest import TextStudio
from tests.studio.api.text_contract import check_keys
from tests.studio.api.text_site import text_body, turns, with_options
from tests.studio.conftest import wait_until


def post(http: httpx.Client, values: dict[str, Any]) -> dict[str, Any]:
    answer = http.post("/v1/responses", json=values)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def part_of(answer: dict[str, Any]) -> dict[str, Any]:
    return dict(answer["output"][0]["content"][0])


def test_the_openai_sdk_gets_text(text_openai: OpenAI, text_studio: TextStudio) -> None:
    response = text_openai.responses.create(
        model="tiny-writer",
        input=[
            {"role": "developer", "content": "Rhyme."},
            {"role": "user", "content": [{"type": "input_text", "text": "a red apple"}]},
        ],
        instructions="Be brief.",
        temperature=0.5,
        max_output_tokens=40,
        extra_body={"seed": 42, "provider_options": {"text": {"top_k": 5, "stop": "END"}}},
    )
    assert response.output_text == "a red apple"
    assert response.status == "completed"
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.total_tokens) == (5, 8)
    (asked,) = text_studio.engine.requests
    assert turns(asked) == [("system", "Be brief."), ("system", "Rhyme."), ("user", "a red apple")]
    assert asked.sampling == Sampling(temperature=0.5, top_k=5)
    assert (asked.seed, asked.max_tokens, asked.stop) == (42, 40, ("END",))


def test_the_answer_has_every_key_of_the_contract(text_http: httpx.Client) -> None:
    asked = {
        "metadata": {"k": "v"},
        "user": "someone",
        "safety_identifier": "hash",
        "prompt_cache_key": "key",
        "parallel_tool_calls": False,
        "max_tool_calls": 3,
        "tool_choice": "none",
        "truncation": "auto",
        "instructions": "Be brief.",
        "presence_penalty": 1,
        "max_output_tokens": 9,
    }
    answer = post(text_http, text_body(**asked))
    check_keys(answer)
    assert {key: answer[key] for key in asked} == asked
    assert answer["completed_at"] >= answer["created_at"]
    assert (answer["seed"], answer["temperature"], answer["warnings"]) == (7, 1.0, [])
    assert answer["text"] == {"format": {"type": "text"}}
    (item,) = answer["output"]
    assert set(item) == {"type", "id", "status", "role", "content"}
    part = {"type": "output_text", "text": "one two three", "annotations": []}
    assert item["content"] == [part]


def test_a_seed_is_drawn_and_told(text_http: httpx.Client, text_studio: TextStudio) -> None:
    seeds = [post(text_http, text_body(seed=None))["seed"] for _ in range(2)]
    assert seeds == [request.seed for request in text_studio.engine.requests]
    assert seeds[0] != seeds[1]


def test_an_answer_goes_back_as_a_turn(text_http: httpx.Client, text_studio: TextStudio) -> None:
    first = post(text_http, text_body(include=["message.output_text.logprobs"]))
    again = {"role": "user", "content": "again"}
    given = [{"role": "user", "content": "one two three"}, *first["output"], again]
    post(text_http, text_body(input=given))
    assert turns(text_studio.engine.requests[-1]) == [
        ("user", "one two three"),
        ("assistant", "one two three"),
        ("user", "again"),
    ]


def test_raw_text_goes_on_without_a_template(
    text_http: httpx.Client, text_studio: TextStudio
) -> None:
    post(text_http, with_options(raw=True) | {"input": "Prompt: a red"})
    assert text_studio.engine.requests[-1].prompt == "Prompt: a red"


def test_a_cut_text_is_incomplete(text_http: httpx.Client) -> None:
    answer = post(text_http, text_body(max_output_tokens=2))
    check_keys(answer)
    assert (answer["status"], answer["completed_at"]) == ("incomplete", None)
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    assert answer["output"][0]["status"] == "incomplete"
    assert part_of(answer)["text"] == "one two"


def test_a_stop_string_ends_a_text(text_http: httpx.Client) -> None:
    answer = post(text_http, with_options(stop=[" three"]))
    assert (answer["status"], part_of(answer)["text"]) == ("completed", "one two")


def test_usage_tells_what_speculation_did(text_http: httpx.Client, text_studio: TextStudio) -> None:
    text_studio.engine.speculation = Speculation(steps=4, drafted=12, accepted=6)
    usage = post(text_http, text_body())["usage"]
    assert usage == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 8,
        "speculative_decoding": {
            "steps": 4,
            "drafted_tokens": 12,
            "accepted_tokens": 6,
            "acceptance_rate": 0.5,
            "tokens_per_step": 2.5,
        },
    }
    text_studio.engine.speculation = Speculation(steps=4, drafted=0, accepted=0)
    told = post(text_http, text_body())["usage"]["speculative_decoding"]
    assert (told["acceptance_rate"], told["tokens_per_step"]) == (None, 1.0)
    text_studio.engine.speculation = None
    assert post(text_http, text_body())["usage"]["speculative_decoding"] is None


@pytest.mark.parametrize(
    ("asked", "top"),
    [
        ({"include": ["message.output_text.logprobs"]}, 0),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 2}, 2),
        ({"top_logprobs": 1}, 1),
        ({"top_logprobs": 0}, None),
        ({}, None),
    ],
    ids=str,
)
def test_logprobs_come_when_asked_for(
    text_http: httpx.Client, asked: dict[str, Any], top: int | None
) -> None:
    answer = post(text_http, text_body(**asked))
    assert answer["top_logprobs"] == (top or 0)
    if top is None:
        assert "logprobs" not in part_of(answer)
        return
    told = part_of(answer)["logprobs"]
    other = {"token": "x", "logprob": -9999.0, "bytes": [120]}  # JSON has no infinity
    assert told[0] == {
        "token": "one",
        "logprob": -0.5,
        "bytes": [111, 110, 101],
        "top_logprobs": [other] * top,
    }
    assert len(told) == 3


NEUTRAL: list[dict[str, Any]] = [
    {"tools": []},
    {"tools": None},
    {"tool_choice": "auto"},
    {"background": False},
    {"store": False},
    {"stream": False, "stream_options": {"include_obfuscation": False}},
    {"reasoning": {"effort": None, "summary": None}},
    {"reasoning": {"effort": "none"}},
    {"text": {"format": {"type": "text"}, "verbosity": "medium"}},
    {"service_tier": "auto"},
    {"input": [{"content": "x", "id": None, "status": None}]},
    {"provider_options": {"text": {}}},
    {"provider_options": {"text": {"adapter": "pirate"}}},
]


@pytest.mark.parametrize("change", NEUTRAL, ids=str)
def test_what_asks_for_nothing_is_taken(text_http: httpx.Client, change: dict[str, Any]) -> None:
    answer = post(text_http, text_body(**change))
    check_keys(answer)
    assert answer["warnings"] == []


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"store": True}, "store"),
        ({"service_tier": "priority"}, "service_tier"),
        ({"include": ["reasoning.encrypted_content"]}, "include"),
        ({"provider_options": {"max": {"target_endpoint": "x"}}}, "provider_options.max"),
        ({"temperature": 0, "top_p": 0.5}, "top_p"),
        (
            {"temperature": 0, "provider_options": {"text": {"top_k": 5}}},
            "provider_options.text.top_k",
        ),
    ],
    ids=str,
)
def test_what_cannot_act_is_said(
    text_http: httpx.Client, change: dict[str, Any], param: str
) -> None:
    (warning,) = post(text_http, text_body(**change))["warnings"]
    assert (warning["code"], warning["param"]) == ("option_without_effect", param)


def test_a_cut_input_is_said(text_http: httpx.Client, text_studio: TextStudio) -> None:
    text_studio.engine.dropped_tokens = 1200
    (warning,) = post(text_http, text_body(truncation="auto"))["warnings"]
    assert (warning["code"], warning["param"]) == ("prompt_truncated", "input")
    assert "1,200 tokens" in warning["message"]


def test_a_model_that_is_loading_is_a_503(text_http: httpx.Client, text_studio: TextStudio) -> None:
    text_studio.engine.status = EngineStatus("loading", "weights", 0.25)
    for streams in (False, True):
        answer = text_http.post("/v1/responses", json=text_body(stream=streams))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "unavailable")


def test_a_client_that_hangs_up_cancels_its_text(
    text_http: httpx.Client, text_studio: TextStudio
) -> None:
    engine = text_studio.engine
    engine.hold_streams()
    with pytest.raises(httpx.ReadTimeout):
        text_http.post("/v1/responses", json=text_body(), timeout=0.3)
    wait_until(lambda: engine.cancelled, "its text is cancelled")
    assert engine.cancelled == [engine.requests[0].id]
    wait_until(lambda: text_studio.texts.in_flight == 0, "its place is free")


def test_a_lost_engine_is_a_503(text_http: httpx.Client, text_studio: TextStudio) -> None:
    text_studio.engine.lose()
    answer = text_http.post("/v1/responses", json=text_body())
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "worker_lost")


def test_a_text_without_an_end_is_a_503(text_http: httpx.Client, text_studio: TextStudio) -> None:
    text_studio.engine.ends_early = True
    answer = text_http.post("/v1/responses", json=text_body())
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_failed")


def test_pictures_are_made_beside_texts(text_http: httpx.Client) -> None:
    answer = post(text_http, {"model": "tiny", "input": "an apple", "temperature": 0.5})
    assert part_of(answer)["type"] == "output_image"
    assert answer["warnings"][0]["param"] == "temperature"
    refused = text_http.post(
        "/v1/responses", json={"model": "tiny", "input": "x", "top_logprobs": 1}
    )
    assert refused.json()["error"]["param"] == "top_logprobs"


def test_the_document_shows_both_bodies(text_http: httpx.Client) -> None:
    document = text_http.get("/openapi.json").json()
    body = document["paths"]["/v1/responses"]["post"]["requestBody"]["content"]
    bodies = [entry["$ref"] for entry in body["application/json"]["schema"]["oneOf"]]
    assert [name.rpartition("/")[2] for name in bodies] == ["ResponsesBody", "TextBody"]
    assert "<" not in "".join(document["components"]["schemas"])
