"""A text draft to a request: defaults, bounds, and what a model can do."""

from typing import Any

import pytest

from pipelines.text.requests import Message, Sampling
from studio.engine.text_protocol import TextModel
from studio.errors import BadRequest
from studio.request import SEED_LIMIT
from studio.text_request import MAX_INPUT_CHARS, TextDraft
from studio.text_settle import check_adapter, settle_text

MODEL = TextModel("writer")
TURNS = (Message("user", "hello"),)


def refused(draft: TextDraft, model: TextModel = MODEL) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        settle_text(draft, model)
    assert caught.value.message.endswith(".")
    return caught.value


def test_gaps_are_filled_with_what_changes_nothing() -> None:
    request, notices = settle_text(TextDraft(TURNS), MODEL)
    assert request.prompt == TURNS
    assert request.sampling == Sampling()
    assert (request.max_tokens, request.stop, request.top_logprobs) == (None, (), None)
    assert (request.truncation, request.adapter, notices) == ("disabled", None, ())
    assert 0 <= request.seed < SEED_LIMIT


def test_seeds_and_ids_are_drawn() -> None:
    drawn = [settle_text(TextDraft(TURNS), MODEL)[0] for _ in range(20)]
    assert len({request.seed for request in drawn}) > 1
    assert len({request.id for request in drawn}) == 20


def test_what_was_given_is_kept() -> None:
    sampling = Sampling(0.5, 40, 0.9, 0.05, 1.1, 0.2, -0.3)
    given: dict[str, Any] = {name: getattr(sampling, name) for name in Sampling.__slots__}
    draft = TextDraft(
        "Once", seed=3, max_output_tokens=9, stop=("\n",), top_logprobs=2, adapter="a", **given
    )
    request, _ = settle_text(draft, MODEL)
    assert request.sampling == sampling
    assert (request.seed, request.max_tokens, request.stop) == (3, 9, ("\n",))
    assert (request.top_logprobs, request.adapter) == (2, "a")


BOUNDS: list[tuple[str, list[float], list[float]]] = [
    ("temperature", [0, 2.0], [-0.01, 2.01, float("nan"), float("inf"), 10**400]),
    ("top_k", [0, 1, 2**31 - 1], [-1, 2**31]),
    ("top_p", [0.001, 1], [0, -0.1, 1.001]),
    ("min_p", [0, 1], [-0.1, 1.1]),
    ("repetition_penalty", [0.01, 1, 100], [0, -1, 1e-40, 101]),
    ("frequency_penalty", [-2, 2], [-2.01, 2.01]),
    ("presence_penalty", [-2, 2], [-2.01, 2.01]),
    ("max_output_tokens", [1, 2**31 - 1], [0, -1, 2**31]),
    ("top_logprobs", [0, 20], [-1, 21]),
    ("seed", [0, SEED_LIMIT - 1], [-1, SEED_LIMIT, -(10**5000)]),
]


@pytest.mark.parametrize(("name", "good", "bad"), BOUNDS, ids=[name for name, *_ in BOUNDS])
def test_bounds_are_taken_and_what_is_past_them_is_named(
    name: str, good: list[float], bad: list[float]
) -> None:
    for value in good:
        draft: dict[str, Any] = {name: value}
        settle_text(TextDraft(TURNS, **draft), MODEL)
    for value in bad:
        draft = {name: value}
        error = refused(TextDraft(TURNS, **draft))
        assert error.param == name
        assert "it must be" in error.message


def test_a_bound_is_said_in_full() -> None:
    assert "between 0 and 4294967295" in refused(TextDraft(TURNS, seed=-1)).message
    assert "above 0 and at most 1" in refused(TextDraft(TURNS, top_p=0)).message
    assert "at least 1" in refused(TextDraft(TURNS, max_output_tokens=0)).message
    assert "between 0.01 and 100" in refused(TextDraft(TURNS, repetition_penalty=0)).message


@pytest.mark.parametrize(
    "prompt", ["", (), (Message("user", " "),), "\ud800", (Message("user", "a\udfffb"),)]
)
def test_prompts_that_cannot_be_read_are_refused(prompt: Any) -> None:
    assert refused(TextDraft(prompt)).param == "prompt"


def test_raw_text_may_be_blank_but_for_nothing() -> None:
    assert settle_text(TextDraft("\n"), MODEL)[0].prompt == "\n"


def test_a_very_long_prompt_is_refused_before_it_is_tokenised() -> None:
    """All turns together; 100,000 tokens of ordinary text pass and are the engine's to judge."""
    settle_text(TextDraft("word " * 100_000), MODEL)
    half = Message("user", "x" * (MAX_INPUT_CHARS // 2))
    settle_text(TextDraft((half, half)), MODEL)
    error = refused(TextDraft((half, half, Message("user", "x"))))
    assert (error.param, error.code) == ("prompt", "prompt_too_long")
    assert "2,000,001 characters" in error.message


@pytest.mark.parametrize("stop", [("",), ("a",) * 9, ("a" * 201,), ("\ud800",)])
def test_stop_strings_are_bounded(stop: tuple[str, ...]) -> None:
    assert refused(TextDraft(TURNS, stop=stop)).param == "stop"


def test_a_model_is_asked_only_for_what_it_can_do() -> None:
    assert refused(TextDraft("Once"), TextModel("chatter", completes=False)).param == "raw"
    assert refused(TextDraft(TURNS), TextModel("base", chats=False)).param == "prompt"


def test_adapters_are_those_of_the_model() -> None:
    check_adapter(None, MODEL)
    check_adapter("a", TextModel("writer", adapters=("a", "b")))
    with pytest.raises(BadRequest, match="choose one of 'a', 'b'") as caught:
        check_adapter("c", TextModel("writer", adapters=("a", "b")))
    assert caught.value.param == "adapter"
    with pytest.raises(BadRequest, match="leave it out"):
        check_adapter("c", MODEL)


def test_what_narrows_a_choice_of_one_is_said() -> None:
    draft = TextDraft(TURNS, temperature=0, top_k=5, top_p=1.0, min_p=0.1)
    _, notices = settle_text(draft, MODEL)
    assert [notice.param for notice in notices] == ["top_k", "min_p"]
    assert settle_text(TextDraft(TURNS, temperature=0.1, top_k=5), MODEL)[1] == ()
