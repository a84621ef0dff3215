"""Streamed text: the wire, the order of events, failures and hang-ups, against a real server."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from openai import APIError, OpenAI

from pipelines.text.requests import TextDelta
from studio.errors import Unavailable
from tests.studio.api.conftest import TextStudio
from tests.studio.api.text_contract import check_keys
from tests.studio.api.text_site import read_events, stream, text_body
from tests.studio.conftest import wait_until

OPENING = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
]
CLOSING = [
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]
# What the contract requires of each kind, beside `type` and `sequence_number`.
PLACE = {"item_id", "output_index", "content_index"}
REQUIRED = {
    "response.created": {"response"},
    "response.in_progress": {"response"},
    "response.output_item.added": {"output_index", "item"},
    "response.content_part.added": PLACE | {"part"},
    "response.output_text.delta": PLACE | {"delta", "logprobs"},
    "response.output_text.done": PLACE | {"text", "logprobs"},
    "response.content_part.done": PLACE | {"part"},
    "response.output_item.done": {"output_index", "item"},
    "response.completed": {"response"},
}


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"] for event in events]


def test_the_openai_sdk_streams_text(text_openai: OpenAI) -> None:
    events = list(
        text_openai.responses.create(model="tiny-writer", input="one two three", stream=True)
    )
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas == ["one", " two", " three"]
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "one two three"


def test_the_helper_of_the_openai_sdk_gathers_a_stream(text_openai: OpenAI) -> None:
    """It reads `logprobs` of every delta, asked for or not."""
    with text_openai.responses.stream(model="tiny-writer", input="one two") as events:
        snapshots = [e.snapshot for e in events if e.type == "response.output_text.delta"]
        final = events.get_final_response()
    assert snapshots == ["one", "one two"]
    assert final.output_text == "one two"


def test_events_come_in_order_and_complete(text_http: httpx.Client) -> None:
    events = stream(text_http, text_body())
    deltas = ["response.output_text.delta"] * 3
    assert kinds(events) == [*OPENING, *deltas, *CLOSING, "response.completed"]
    for event in events:
        assert set(event) == REQUIRED[event["type"]] | {"type", "sequence_number"}
        if "response" in event:
            check_keys(event["response"])
    created, added, opened, done, last = (events[i] for i in (0, 2, 3, -4, -1))
    assert (created["response"]["status"], created["response"]["output"]) == ("in_progress", [])
    assert created["response"]["usage"] is None
    assert (added["item"]["status"], added["item"]["content"]) == ("in_progress", [])
    assert opened["part"] == {"type": "output_text", "text": "", "annotations": []}
    assert done["text"] == "".join(e["delta"] for e in events if "delta" in e) == "one two three"
    assert events[-3]["part"] == last["response"]["output"][0]["content"][0]
    assert events[-2]["item"] == last["response"]["output"][0]
    assert last["response"]["usage"]["output_tokens"] == 3
    ids = {event["item_id"] for event in events if "item_id" in event}
    assert ids == {added["item"]["id"]}
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1


def test_a_stream_ends_as_the_answer_would(text_http: httpx.Client) -> None:
    """But for what differs between any two answers."""

    def settled(answer: dict[str, Any]) -> str:
        text = json.dumps(answer | {"created_at": 0, "completed_at": 0})
        return text.replace(answer["id"].removeprefix("resp_"), "id")

    asked = text_body(max_output_tokens=2, top_logprobs=1, instructions="x", metadata={"a": "b"})
    whole = text_http.post("/v1/responses", json=asked).json()
    assert settled(stream(text_http, asked)[-1]["response"]) == settled(whole)


def test_a_cut_stream_is_incomplete(text_http: httpx.Client) -> None:
    events = stream(text_http, text_body(max_output_tokens=2))
    assert kinds(events)[-1] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert events[-2]["item"]["status"] == "incomplete"


def test_an_empty_text_has_its_part(text_http: httpx.Client, text_studio: TextStudio) -> None:
    text_studio.engine.answer = lambda request: ""
    events = stream(text_http, text_body())
    assert kinds(events) == [*OPENING, *CLOSING, "response.completed"]
    assert events[4]["text"] == ""


@pytest.mark.parametrize("top", [None, 0, 2])
def test_deltas_carry_the_logprobs_asked_for(text_http: httpx.Client, top: int | None) -> None:
    asked = {"include": ["message.output_text.logprobs"]} if top is not None else {}
    events = stream(text_http, text_body(top_logprobs=top, **asked))
    told = [e["logprobs"] for e in events if e["type"] == "response.output_text.delta"]
    assert [len(tokens) for tokens in told] == [int(top is not None)] * 3
    assert events[-4]["logprobs"] == [token for tokens in told for token in tokens]
    if top is not None:
        assert [len(token["top_logprobs"]) for token in events[-4]["logprobs"]] == [top] * 3


def test_text_of_any_script_survives_the_wire(text_http: httpx.Client) -> None:
    text = "naïve 絵 🍎\u2028line\x85end\r\n\ttab"
    events = stream(text_http, text_body(input=text))
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == text


def test_two_streams_at_once_keep_apart(text_http: httpx.Client, text_studio: TextStudio) -> None:
    engine = text_studio.engine
    engine.hold_streams()
    words = ["a b c", "d e f g"]
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(stream, text_http, text_body(input=text)) for text in words]
        wait_until(lambda: len(engine.requests) == 2, "both are being written")
        engine.release()
        streams = [answer.result(timeout=20) for answer in answers]
    for text, events in zip(words, streams, strict=True):
        assert "".join(event["delta"] for event in events if "delta" in event) == text
    assert engine.cancelled == []


def test_the_first_words_come_before_the_last(
    text_http: httpx.Client, text_studio: TextStudio
) -> None:
    text_studio.engine.hold_streams()
    asked = text_body(stream=True)
    with http_stream(text_http, asked) as answer:
        lines = answer.iter_lines()
        seen = [next(lines)]
        while "two" not in seen[-1]:
            seen.append(next(lines))
        assert text_studio.texts.in_flight == 1
        text_studio.engine.release()
        seen.extend(lines)
    assert kinds(read_events(seen))[-1] == "response.completed"


def http_stream(http: httpx.Client, values: dict[str, Any]) -> Any:
    return http.stream("POST", "/v1/responses", json=values)


def test_a_client_that_hangs_up_cancels_its_stream(
    text_http: httpx.Client, text_studio: TextStudio
) -> None:
    engine = text_studio.engine
    engine.hold_streams()
    with http_stream(text_http, text_body(stream=True)) as answer:
        assert next(answer.iter_lines()) == "event: response.created"
    wait_until(lambda: engine.cancelled, "its text is cancelled")
    assert engine.cancelled == [engine.requests[0].id]
    wait_until(lambda: text_studio.texts.in_flight == 0, "its place is free")


def test_a_client_that_hangs_up_before_the_first_event_cancels_too(
    text_http: httpx.Client, text_studio: TextStudio
) -> None:
    text_studio.engine.hold_streams(before_reading=True)
    with pytest.raises(httpx.ReadTimeout):
        text_http.post("/v1/responses", json=text_body(stream=True), timeout=0.3)
    wait_until(lambda: text_studio.engine.cancelled, "its text is cancelled")
    wait_until(lambda: text_studio.texts.in_flight == 0, "its place is free")


def test_too_many_at_once_are_told_to_wait(
    text_http: httpx.Client, text_studio: TextStudio
) -> None:
    engine = text_studio.engine
    engine.hold_streams()
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(stream, text_http, text_body()) for _ in range(4)]
        wait_until(lambda: text_studio.texts.in_flight == 4, "four are being written")
        for streams in (False, True):
            refused = text_http.post("/v1/responses", json=text_body(stream=streams))
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "2")
            assert refused.json()["error"]["code"] == "too_many_texts"
        engine.release()
        assert all(kinds(answer.result())[-1] == "response.completed" for answer in answers)
    assert text_http.post("/v1/responses", json=text_body()).status_code == 200


def test_a_lost_engine_ends_the_stream_with_a_failure(
    text_http: httpx.Client, text_studio: TextStudio
) -> None:
    text_studio.engine.lose()
    events = stream(text_http, text_body())
    first, *_, failure, last = events[4:]
    assert first["delta"] == "one"
    assert (failure["type"], last["type"]) == ("error", "response.failed")
    assert failure["error"] == {
        "message": "The text engine was lost.",
        "type": "server_error",
        "param": None,
        "code": "worker_lost",
    }
    check_keys(last["response"])
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"] == {
        "code": "worker_lost",
        "message": "The text engine was lost.",
    }
    text_studio.engine.reset()
    assert kinds(stream(text_http, text_body()))[-1] == "response.completed"


def test_the_sdk_raises_a_failure_in_mid_stream(
    text_openai: OpenAI, text_studio: TextStudio
) -> None:
    text_studio.engine.failure = Unavailable("The text engine was lost.")
    events = text_openai.responses.create(model="tiny-writer", input="one two", stream=True)
    with pytest.raises(APIError, match="was lost"):
        list(events)


def test_our_own_mistake_ends_the_stream_without_its_trace(
    text_http: httpx.Client, text_studio: TextStudio
) -> None:
    text_studio.engine.failure = KeyError("secret")
    failure, last = stream(text_http, text_body())[-2:]
    assert failure["error"]["code"] == "internal_error"
    assert "secret" not in json.dumps([failure, last])


def test_a_text_without_an_end_is_a_failure(
    text_http: httpx.Client, text_studio: TextStudio
) -> None:
    text_studio.engine.ends_early = True
    events = stream(text_http, text_body())
    assert kinds(events)[-2:] == ["error", "response.failed"]


def test_a_delta_of_nothing_is_not_sent(text_http: httpx.Client, text_studio: TextStudio) -> None:
    text_studio.engine.extra = TextDelta("", "")
    assert kinds(stream(text_http, text_body())).count("response.output_text.delta") == 3


def test_a_failure_keeps_what_was_written(text_http: httpx.Client, text_studio: TextStudio) -> None:
    text_studio.engine.lose()
    events = stream(text_http, text_body())
    assert kinds(events)[-5:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "error",
        "response.failed",
    ]
    item = events[-3]["item"]
    assert (item["status"], item["content"][0]["text"]) == ("incomplete", "one")
    assert events[-1]["response"]["output"] == [item]
