"""The table against the fakes: what each server is sent, and what is refused instead of dropped."""

from dataclasses import replace
from typing import Any

import pytest

from pipelines.text.requests import Message, Sampling, TextRequest
from studio.engine.text_http.body import call_of
from studio.engine.text_http.chunks import read_chunk
from studio.engine.text_http.dialects import DIALECTS, dialect_of_card
from studio.errors import BadRequest
from studio.text_request import TextDraft
from studio.texts import Texts
from tests.studio.text_http.engines import TURNS, asked, done, ready, run, text_of, written
from tests.studio.text_http.fake_kinds import KINDS, STANDARD, Json

ALL = Sampling(
    temperature=0.5,
    top_k=30,
    top_p=0.9,
    min_p=0.02,
    repetition_penalty=1.2,
    frequency_penalty=0.3,
    presence_penalty=0.4,
)
SHARED = replace(ALL, top_k=0, min_p=0.0, repetition_penalty=1.0)
FULL = ("vllm", "sglang", "max", "llamacpp")


def body_of(request: TextRequest, name: str) -> dict[str, Any]:
    return call_of(request, DIALECTS[name], model="m", context_tokens=4096).body


def test_there_is_a_fake_for_each_dialect() -> None:
    assert list(KINDS) == list(DIALECTS)
    assert len({dialect.title for dialect in DIALECTS.values()}) == len(DIALECTS)


@pytest.mark.parametrize("name", KINDS)
def test_a_card_of_its_own_gives_a_dialect_away(name: str) -> None:
    found = dialect_of_card(KINDS[name].card)
    assert (found and found.name) == (None if name == "openai" else name)


@pytest.mark.parametrize("name", KINDS)
def test_every_value_is_sent_under_the_servers_name(name: str) -> None:
    sampling = ALL if name in FULL else SHARED
    body = body_of(asked(sampling=sampling, stop=("a", "b"), top_logprobs=2), name)
    dialect = DIALECTS[name]
    expected: dict[str, Any] = {
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": 0.3,
        "presence_penalty": 0.4,
        "max_tokens": 20,
        "seed": 7,
        "stop": ["a", "b"],
        "logprobs": True,
        "top_logprobs": 2,
        "stream": True,
    }
    own = {dialect.top_k: 30, dialect.min_p: 0.02, dialect.repetition_penalty: 1.2}
    expected |= {field: value for field, value in own.items() if field}
    assert body.items() >= expected.items()
    assert set(body) <= STANDARD | KINDS[name].takes


@pytest.mark.parametrize("name", FULL)
def test_neutral_values_switch_the_servers_own_defaults_off(name: str) -> None:
    body = body_of(asked(), name)
    assert body["top_k"] == (0 if name == "llamacpp" else -1)
    assert body["min_p"] == 0.0
    assert body[DIALECTS[name].repetition_penalty or ""] == 1.0


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    *(
        (name, {"sampling": sampling}, param)
        for name in ("openai", "ollama")
        for param, sampling in (
            ("top_k", Sampling(top_k=5)),
            ("min_p", Sampling(min_p=0.1)),
            ("repetition_penalty", Sampling(repetition_penalty=1.1)),
        )
    ),
    *((name, {"adapter": "a"}, "adapter") for name in KINDS),
    *((name, {"prompt": (Message("user", "What?", (b"png",)),)}, "prompt") for name in KINDS),
    *((name, {"truncation": "auto"}, "truncation") for name in KINDS if name != "ollama"),
    ("ollama", {"prompt": "plain"}, "prompt"),
    ("sglang", {"prompt": "plain", "max_tokens": None}, "max_tokens"),
    ("openai", {"prompt": "plain", "max_tokens": None}, "max_tokens"),
    ("vllm", {"top_logprobs": 21}, "top_logprobs"),
]


@pytest.mark.parametrize(("name", "values", "param"), REFUSED)
def test_what_a_server_cannot_do_is_refused_by_name(
    name: str, values: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        body_of(asked(**values), name)
    assert caught.value.param == param
    assert caught.value.message.endswith(".")


LONG = (Message("user", "word " * 400),)
WARNED: list[tuple[str, TextDraft, list[str]]] = [
    ("sglang", TextDraft(TURNS, seed=7), ["seed"]),
    ("sglang", TextDraft(TURNS), []),  # none was asked for
    ("sglang", TextDraft(TURNS, seed=7, temperature=0.0), []),  # nothing is drawn
    ("max", TextDraft(TURNS, frequency_penalty=0.5), ["frequency_penalty"]),
    ("max", TextDraft(TURNS, repetition_penalty=1.1), ["repetition_penalty"]),
    ("max", TextDraft(TURNS, presence_penalty=0.0), []),
    ("ollama", TextDraft(TURNS), ["top_k"]),
    ("ollama", TextDraft(LONG, temperature=0.0), ["truncation"]),
    ("ollama", TextDraft(LONG, temperature=0.0, truncation="auto"), []),
    ("vllm", TextDraft(LONG, seed=7, frequency_penalty=0.5), []),
]


@pytest.mark.parametrize(("name", "draft", "params"), WARNED)
def test_what_a_server_may_drop_silently_is_a_warning(
    name: str, draft: TextDraft, params: list[str]
) -> None:
    async def scenario() -> None:
        async with ready(name) as (engine, _):
            request, notices = Texts(engine).plan(draft)
            assert [notice.param for notice in notices] == params
            assert {notice.code for notice in notices} <= {"option_not_assured"}
            await written(engine, request)  # and it is no refusal

    run(scenario())


def test_no_limit_is_said_in_each_servers_way() -> None:
    plain = asked("plain", max_tokens=None)
    assert body_of(plain, "vllm")["max_tokens"] is None  # left out it would be 16
    assert "max_tokens" not in body_of(plain, "llamacpp")
    assert "max_tokens" not in body_of(asked(max_tokens=None), "vllm")


@pytest.mark.parametrize(
    ("name", "seed", "sent"),
    [
        ("max", 0, 2**63 - 1),  # 0 would draw a seed
        ("max", 1, 1),
        ("llamacpp", 2**32 - 1, 0),  # the server's word for any seed
        ("llamacpp", 2**32 - 2, 2**32 - 2),
        ("vllm", 0, 0),
    ],
)
def test_a_seed_is_always_one_that_repeats(name: str, seed: int, sent: int) -> None:
    assert body_of(asked(seed=seed), name)["seed"] == sent


def test_llamacpp_samples_in_our_order_over_the_whole_context() -> None:
    body = body_of(asked(), "llamacpp")
    assert body["samplers"] == ("penalties", "temperature", "top_k", "top_p", "min_p")
    assert body["repeat_last_n"] == 4096
    unknown = call_of(asked(), DIALECTS["llamacpp"], model="m", context_tokens=None)
    assert "repeat_last_n" not in unknown.body


@pytest.mark.parametrize("name", KINDS)
def test_the_chosen_tokens_logprob_comes_without_others(name: str) -> None:
    least = 1 if name in ("max", "llamacpp") else 0  # which tell none at all at 0
    assert body_of(asked(top_logprobs=0), name)["top_logprobs"] == least
    assert "logprobs" not in body_of(asked(), name)


def test_turns_become_messages() -> None:
    turns = (Message("system", "s"), Message("user", "u"))
    sent = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert body_of(asked(turns), "vllm")["messages"] == sent


@pytest.mark.parametrize("name", KINDS)
def test_the_fakes_take_what_the_table_sends(name: str) -> None:
    """Each fake answers 4xx to a field it does not know and to too many stop strings."""

    async def scenario() -> None:
        async with ready(name) as (engine, _):
            sampling = ALL if name in FULL else SHARED
            stops = ("1", "2", "3", "4", "5", "6")
            request = asked(sampling=sampling, stop=stops, top_logprobs=0)
            assert done(await written(engine, request)).finish == "stop"

    run(scenario())


def test_a_wrong_line_in_the_table_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fakes' strictness is what the test above rests on."""
    wrong = replace(DIALECTS["llamacpp"], repetition_penalty="repetition_penalty")
    monkeypatch.setattr("studio.engine.text_http.probe.dialect_of_card", lambda card: wrong)

    async def scenario() -> None:
        async with ready("llamacpp") as (engine, _):
            with pytest.raises(BadRequest, match="unknown"):
                await written(engine, asked())

    run(scenario())


def test_a_given_dialect_is_not_asked_for() -> None:
    async def scenario() -> None:
        async with ready("vllm", dialect="openai") as (engine, server):
            await written(engine, asked())
            assert "top_k" not in server.bodies[-1]

    run(scenario())


def test_where_the_card_does_not_tell_the_servers_own_paths_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("studio.engine.text_http.probe.dialect_of_card", lambda card: None)

    async def scenario() -> None:
        async with ready("llamacpp") as (engine, _):
            assert "llama.cpp" in engine.status.detail
            assert text_of(await written(engine, asked()))

    run(scenario())


# --- chunks ------------------------------------------------------------------------------------

CONTENT = {
    "token": "é",
    "logprob": -0.5,
    "bytes": [195, 169],
    "top_logprobs": [{"token": "é", "logprob": -0.5, "bytes": None}, {"token": "e", "logprob": -2}],
}
LISTS = {"tokens": ["é"], "token_logprobs": [-0.5], "top_logprobs": [{"e": -2, "é": -0.5}]}


@pytest.mark.parametrize(
    "logprobs", [{"content": [CONTENT]}, LISTS, {k: v for k, v in LISTS.items() if k != "tokens"}]
)
def test_logprobs_of_every_form_are_the_same(logprobs: dict[str, Any]) -> None:
    event = {"choices": [{"text": "é", "logprobs": logprobs}]}
    (entry,) = read_chunk(event, DIALECTS["max"], 2).logprobs
    assert (entry.token, entry.logprob, entry.bytes) == ("é", -0.5, "é".encode())
    assert [(top.token, top.logprob) for top in entry.top] == [("é", -0.5), ("e", -2.0)]
    (entry,) = read_chunk(event, DIALECTS["max"], 0).logprobs  # sent although not asked for
    assert entry.top == ()
    assert read_chunk(event, DIALECTS["max"], None).logprobs == ()


def test_what_is_not_told_is_none_and_never_zero() -> None:
    event: Json = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    usage = read_chunk(event | {"timings": {"predicted_n": 2}}, DIALECTS["llamacpp"], None).usage
    assert usage is not None and usage.speculation is None
    drafted = {"timings": {"draft_n": 0, "draft_n_accepted": 0}}
    usage = read_chunk(event | drafted, DIALECTS["llamacpp"], None).usage
    assert usage is not None and usage.speculation is not None
    assert (usage.speculation.steps, usage.speculation.acceptance_rate) == (2, None)


@pytest.mark.parametrize(
    "event",
    [
        {},
        {"choices": None, "usage": None},
        {"choices": [None], "usage": []},
        {"choices": [{"delta": None, "logprobs": [], "finish_reason": ""}]},
        {"choices": [{"delta": {"content": 3}, "logprobs": {"content": [None]}}]},
        {"usage": {"prompt_tokens": float("inf"), "completion_tokens": True}},
        {"choices": [{"text": None, "logprobs": {"token_logprobs": ["x"], "top_logprobs": 3}}]},
    ],
)
def test_chunks_with_holes_are_empty_and_no_crash(event: dict[str, Any]) -> None:
    for dialect in DIALECTS.values():
        chunk = read_chunk(event, dialect, 2)
        assert (chunk.text, chunk.finish, chunk.usage) == ("", None, None)


def test_a_gateway_may_stand_before_any_server() -> None:
    every = {place for dialect in DIALECTS.values() for place in dialect.speculation}
    assert every == set(DIALECTS["openai"].speculation)
