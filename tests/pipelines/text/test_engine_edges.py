"""At the edges: what does not fit, what fails, what ends at once, and who waits for whom."""

import pytest
import torch
from torch import Tensor

from pipelines.text.engine import EngineOptions
from pipelines.text.language_model import LanguageModel
from pipelines.text.layout import Layout, Piece
from pipelines.text.requests import (
    Message,
    TextDone,
    TextRequest,
    TextStarted,
)
from tests.pipelines.text.serving import (
    GREEDY,
    PROMPT,
    Parrot,
    ask,
    crowd,
    open_engine,
    run,
    serve,
)
from tests.pipelines.text.tiny_models import (
    CONTEXT,
    make_model,
)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return make_model("llama")


def test_what_does_not_fit_is_refused_with_the_way_out(model: LanguageModel) -> None:
    told = serve(model, [ask("a", "1 " * 200), ask("b"), ask("c", "1 " * 120)])
    assert told.failed("a").code == "context_length_exceeded"
    assert told.failed("a").param == "input" and "200 tokens" in told.failed("a").message
    assert told.failed("c").code == "context_length_exceeded"  # with its 24 tokens of output
    assert told.done("b").finish == "length"


def test_truncation_drops_the_beginning_and_says_so(model: LanguageModel) -> None:
    told = serve(model, [ask(prompt="1 " * 200 + PROMPT, truncation="auto")])
    started = next(event for event in told.events if isinstance(event, TextStarted))
    assert started.dropped_tokens == 200 + 12 - (CONTEXT - 24)
    assert told.text() == serve(model, [ask(prompt="1 " * (CONTEXT - 36) + PROMPT)]).text()


def test_turns_need_a_template(model: LanguageModel) -> None:
    failed = serve(model, [TextRequest("a", (Message("user", "1 2"),), 0)]).failed()
    assert failed.code == "no_chat_template" and "raw" in failed.message


def test_an_unknown_adapter_is_refused(model: LanguageModel) -> None:
    assert serve(model, [ask(adapter="nobody's")]).failed().code == "adapter_not_found"


def test_a_cancelled_prompt_that_was_not_begun_leaves_its_place(model: LanguageModel) -> None:
    """It has a slot and no keys yet."""
    engine, told = open_engine(model, EngineOptions(priority="decode_first"))
    for request in crowd():
        engine.submit(request)
    engine.step()
    engine.cancel("r1")
    run(engine, [])
    assert told.text("r4") == serve(model, [crowd()[4]]).text("r4")


def test_an_end_at_once_is_an_empty_text() -> None:
    first = serve(make_model("llama"), [ask(sampling=GREEDY)]).text().split()[0]
    model = make_model("llama")
    model.tokens.end_ids = frozenset({int(first)})
    told = serve(model, [ask(sampling=GREEDY), ask("b", "1 2 3")])
    assert told.text() == "" and told.done().finish == "stop"
    assert told.done().usage.output_tokens == 0


def test_a_row_without_finite_numbers_fails_alone(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = model.logits

    def broken(hidden: Tensor) -> Tensor:
        rows = logits(hidden)
        rows[-1] = float("nan")
        return rows

    engine, told = open_engine(model)
    for request in (ask("a"), ask("b", seed=8)):
        engine.submit(request)
    engine.step()
    with monkeypatch.context() as patch:
        patch.setattr(model, "logits", broken)
        engine.step()
    run(engine, [])
    assert told.failed("b").code == "not_finite"
    assert told.text("a") == serve(model, [ask("a")]).text("a")


def test_a_tokenizer_that_breaks_fails_one_request(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = model.tokens.encode

    def breaks(prompt: str) -> list[int]:
        if prompt == "bad":
            raise TypeError("no such letter")
        return encode(prompt)

    monkeypatch.setattr(model.tokens, "encode", breaks)
    told = serve(model, [ask("a", "bad"), ask("b")])
    assert told.failed("a").param == "input" and told.done("b").finish == "length"


def test_drafting_stops_before_the_context_ends(model: LanguageModel) -> None:
    plain = serve(model, [ask(prompt="1 2 3", max_tokens=None, sampling=GREEDY)])
    parrot = Parrot(plain.text(), 3)
    told = serve(
        model,
        [ask(prompt="1 2 3", max_tokens=None, sampling=GREEDY)],
        EngineOptions(is_adaptive=False),
        parrot,
    )
    assert told.text() == plain.text()
    assert told.done().usage.output_tokens == CONTEXT - 3


@pytest.mark.parametrize("place", range(3, 9))
def test_what_stands_behind_a_stop_string_is_not_counted(model: LanguageModel, place: int) -> None:
    """With drafts the model has written further than the stop when it is seen."""
    whole = serve(model, [ask(sampling=GREEDY)])
    words = whole.text().split()
    asked = ask(sampling=GREEDY, stop=(f" {words[place]}",), top_logprobs=0)
    plain = serve(model, [asked])
    drafted = serve(model, [asked], EngineOptions(is_adaptive=False), Parrot(whole.text(), 12))
    assert drafted.text() == plain.text()
    assert drafted.done().usage.output_tokens == plain.done().usage.output_tokens
    assert [item.token for item in drafted.logprobs()] == plain.text().split()


def test_the_oldest_prompt_is_read_first(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Younger ones move into freed slots before it, again and again."""
    monkeypatch.setattr("pipelines.text.scheduler.plan.__defaults__", (8,))
    engine, told = open_engine(model, EngineOptions(max_rows=3))
    engine.submit(ask("first", "1 2", max_tokens=1))
    engine.submit(ask("old", "5 " * 90, max_tokens=1))
    for number in range(60):
        engine.submit(ask(f"young{number}", f"{number} 2 3 4 5 6", max_tokens=1))
        engine.step()
        if told.has(TextDone, "old"):
            break
    assert number < 20


def test_truncation_keeps_the_turns_in_order_and_begins_with_the_user() -> None:
    model = make_model("llama")
    model.tokens._tokenizer.chat_template = (
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('alternate') }}{% endif %}{{ m.content }} {% endfor %}"
    )
    roles = ("user", "assistant")
    turns = tuple(Message(roles[i % 2], f"{i % 90} " * 9) for i in range(41))  # type: ignore[arg-type]
    request = TextRequest("a", turns, 0, GREEDY, max_tokens=20, truncation="auto")
    told = serve(model, [request])
    started = next(event for event in told.events if isinstance(event, TextStarted))
    assert started.dropped_tokens % 18 == 0 and started.input_tokens <= CONTEXT - 20
    assert told.done().finish == "length"


def test_one_long_text_does_not_slow_all_others() -> None:
    """It is read in a group of its own: the others are not read as far."""
    pieces = [Piece(0, 100, 1), Piece(1, 4000, 1), Piece(2, 120, 1), Piece(3, 130, 1)]
    groups = Layout(pieces, torch.device("cpu")).groups
    assert [group.slots for group in groups] == [[0], [1], [2, 3]]
    assert [group.length for group in groups] == [101, 4001, 131]


def test_long_inputs_are_tokenised_a_few_at_a_time(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several in a row would keep those who write waiting for seconds."""
    monkeypatch.setattr("pipelines.text.engine.ADMITTED_LETTERS", 100)
    engine, told = open_engine(model)
    engine.submit(ask("a"))
    engine.step()
    for number in range(4):
        engine.submit(ask(f"long{number}", "7 " * 45, max_tokens=2))
    written = len(told.text("a").split())
    engine.step()
    assert len(engine._slots.rows) == 3  # two of 90 letters, then it is enough
    assert len(told.text("a").split()) == written + 1
    run(engine, [])
    assert all(told.has(TextDone, f"long{number}") for number in range(4))
