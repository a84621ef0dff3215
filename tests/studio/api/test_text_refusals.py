"""What `/v1/responses` refuses for a text model, with the field's name, before anything is sent."""

from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI

from studio.api.text_input import MAX_ITEMS
from studio.text_request import MAX_INPUT_CHARS
from tests.studio.api.text_site import TOO_LONG, post_raw, text_body


def part(kind: str, **values: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [{"type": kind, **values}]}]}


def option(**values: Any) -> dict[str, Any]:
    return {"provider_options": {"text": values}}


TEXT_OPTIONS = "provider_options.text"
BAD: list[tuple[dict[str, Any], str]] = [
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"temperature": float("nan")}, "temperature"),
    ({"temperature": 10**400}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.01}, "top_p"),
    ({"presence_penalty": -2.1}, "presence_penalty"),
    ({"presence_penalty": 2.1}, "presence_penalty"),
    ({"frequency_penalty": -2.1}, "frequency_penalty"),
    ({"frequency_penalty": 2.1}, "frequency_penalty"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"max_output_tokens": -1}, "max_output_tokens"),
    ({"max_output_tokens": 10**30}, "max_output_tokens"),
    ({"max_output_tokens": 1.5}, "max_output_tokens"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**32}, "seed"),
    ({"seed": "7"}, "seed"),
    ({"top_logprobs": -1}, "top_logprobs"),
    ({"top_logprobs": 21}, "top_logprobs"),
    (option(top_k=-1), f"{TEXT_OPTIONS}.top_k"),
    (option(top_k=2**31), f"{TEXT_OPTIONS}.top_k"),
    (option(top_k=1.5), f"{TEXT_OPTIONS}.top_k"),
    (option(min_p=-0.1), f"{TEXT_OPTIONS}.min_p"),
    (option(min_p=1.1), f"{TEXT_OPTIONS}.min_p"),
    (option(repetition_penalty=0), f"{TEXT_OPTIONS}.repetition_penalty"),
    (option(repetition_penalty=-1), f"{TEXT_OPTIONS}.repetition_penalty"),
    (option(repetition_penalty=1e-40), f"{TEXT_OPTIONS}.repetition_penalty"),
    (option(stop=""), f"{TEXT_OPTIONS}.stop"),
    (option(stop=["a", ""]), f"{TEXT_OPTIONS}.stop"),
    (option(stop=["a"] * 9), f"{TEXT_OPTIONS}.stop"),
    (option(stop=["a" * 201]), f"{TEXT_OPTIONS}.stop"),
    (option(stop=["\udc00"]), f"{TEXT_OPTIONS}.stop"),
    (option(stop=[7]), f"{TEXT_OPTIONS}.stop.0"),
    (option(stop=7), f"{TEXT_OPTIONS}.stop"),
    (option(raw="yes"), f"{TEXT_OPTIONS}.raw"),
    (option(adapter="sailor"), f"{TEXT_OPTIONS}.adapter"),
    (option(text="x"), f"{TEXT_OPTIONS}.text"),
    (option(raw=True) | {"input": [{"content": "x"}]}, f"{TEXT_OPTIONS}.raw"),
    (option(raw=True) | {"instructions": "Be brief."}, "instructions"),
    (option(raw=True) | {"input": ""}, "input"),
    ({"provider_options": {"image": {}}}, "provider_options.image"),
    ({"input": ""}, "input"),
    ({"input": " \n"}, "input"),
    ({"input": []}, "input"),
    ({"input": None}, "input"),
    ({"input": 7}, "input"),
    ({"input": "x" * (MAX_INPUT_CHARS + 1)}, "input"),
    ({"input": [{"content": "x"}] * (MAX_ITEMS + 1)}, "input"),
    ({"input": "\ud800"}, "input"),
    ({"input": [{"content": "\ud800"}]}, "input"),
    ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role"),
    ({"input": [{"role": "user"}]}, "input.0.content"),
    ({"input": [{"content": "x", "colour": 1}]}, "input.0.colour"),
    ({"input": [{"type": "function_call", "name": "f"}]}, "input.0"),
    ({"input": ["x"]}, "input.0"),
    (part("input_image", image_url="data:,"), "input.0.content.0"),
    (part("input_file"), "input.0.content.0"),
    (part("input_text", txt="x"), "input.0.content.0.text"),
    (part("output_text", text=7), "input.0.content.0.text"),
    (part("input_text", text="x", text2="x"), "input.0.content.0.text2"),
    ({"instructions": "\ud800"}, "instructions"),
    ({"instructions": 7}, "instructions"),
    ({"user": "\ud800"}, "user"),
    ({"metadata": {"k": "\ud800"}}, "metadata.k"),
    ({"metadata": {"k": 7}}, "metadata.k"),
    ({"safety_identifier": "x" * 65}, "safety_identifier"),
    ({"prompt_cache_key": "x" * 65}, "prompt_cache_key"),
    ({"include": ["file_search_call.results"]}, "include.0"),
    ({"truncation": "middle"}, "truncation"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options.include_usage"),
    ({"max_tool_calls": 0}, "max_tool_calls"),
    ({"colour": "red"}, "colour"),
    ({"output_text": "red"}, "output_text"),
    ({"background": True}, "background"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"tools": [{"type": "function", "name": "f"}]}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
    ({"reasoning": {"summary": "auto"}}, "reasoning.summary"),
    ({"text": {"format": {"type": "json_object"}}}, "text.format"),
    ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ({"text": {"colour": "red"}}, "text.colour"),
]


@pytest.mark.parametrize(("change", "param"), BAD, ids=lambda value: str(value)[:60])
@pytest.mark.parametrize("streams", [False, True])
def test_bad_values_are_refused_and_named(
    text_http: httpx.Client, change: dict[str, Any], param: str, streams: bool
) -> None:
    """Also where a stream was asked for: nothing of it is sent yet."""
    answer = post_raw(text_http, text_body(stream=streams) | change)
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert len(error["message"]) > 25
    assert error["message"].endswith(".")


@pytest.mark.parametrize("streams", [False, True])
def test_a_context_that_overflows_is_a_400(text_http: httpx.Client, streams: bool) -> None:
    answer = text_http.post("/v1/responses", json=text_body(input=TOO_LONG, stream=streams))
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == ("input", "context_length_exceeded")


def test_the_sdk_raises_what_was_refused(text_openai: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="temperature is 3"):
        text_openai.responses.create(model="tiny-writer", input="x", temperature=3)


@pytest.mark.parametrize(
    ("content", "param"),
    [
        (b'{"model": "tiny-writer", "input": "\xff\xfe"}', "input"),
        (b'{"model": "x", "input": [{"role": "user", "content": "\xc3"}]}', "input.0.content"),
        (b'{"model": "x", "\xff": 7}', None),
        (b'{"model": "\xff', None),
        (b"\xff", None),
        (b"", None),
    ],
)
def test_invalid_utf8_is_a_400_that_names_its_field(
    text_http: httpx.Client, content: bytes, param: str | None
) -> None:
    headers = {"content-type": "application/json"}
    answer = text_http.post("/v1/responses", content=content, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_json"
    assert "UTF-8" in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == param
