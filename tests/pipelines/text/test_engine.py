"""The loop: what a request gets does not depend on who is served beside it."""

from collections.abc import Sequence as Items
from typing import Any

import pytest
import torch
from torch import Tensor

from pipelines.text.drafts import NgramDrafter
from pipelines.text.engine import EngineOptions
from pipelines.text.language_model import LanguageModel
from pipelines.text.layout import Layout, Piece
from pipelines.text.requests import (
    Message,
    Priority,
    Sampling,
    TextCancelled,
    TextDone,
    TextRequest,
    TextStarted,
)
from pipelines.text.sequence import Sequence
from pipelines.text.speculative import Draft, Verdict, verify
from tests.pipelines.text.serving import open_engine, run, serve
from tests.pipelines.text.tiny_models import (
    CONTEXT,
    VOCABULARY,
    make_model,
    make_module,
)

PROMPT = "5 17 3 60 42 8 8 21 9 33 71 2"
GREEDY = Sampling(temperature=0)
WARM = Sampling(temperature=0.9, top_p=0.95, repetition_penalty=1.1, frequency_penalty=0.2)


class Parrot:
    """Drafts what the text will be, with a wrong token every third time."""

    def __init__(self, text: str, prompt_tokens: int) -> None:
        self._ids = [int(word) for word in text.split()]
        self._prompt_tokens = prompt_tokens

    def propose(self, rows: Items[Sequence], width: int) -> list[Draft]:
        return [Draft(tuple(self._next(row, width))) for row in rows]

    def _next(self, row: Sequence, width: int) -> list[int]:
        at = len(row.ids) - self._prompt_tokens
        wrong = [
            (token + 1) % VOCABULARY if i % 3 == 2 else token for i, token in enumerate(self._ids)
        ]
        return wrong[at : at + width]

    def read(self, row: Sequence, start: int, hidden: Tensor) -> None:
        pass

    def judged(self, row: Sequence, draft: Draft, accepted: int) -> None:
        pass

    def move(self, row: Sequence, target: int) -> None:
        pass

    def leave(self, row: Sequence) -> None:
        pass


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return make_model("llama")


def ask(name: str = "a", prompt: str = PROMPT, seed: int = 7, **more: object) -> TextRequest:
    values: dict[str, object] = {"sampling": WARM, "max_tokens": 24} | more
    return TextRequest(name, prompt, seed, **values)  # type: ignore[arg-type]


def crowd(**more: object) -> list[TextRequest]:
    prompts = [PROMPT, "1 2 3", "90 " * 30, "11 12 13 14 15 16 17", "4"]
    return [ask(f"r{i}", prompt, seed=i, **more) for i, prompt in enumerate(prompts)]


@pytest.mark.parametrize("priority", ["prefill_first", "decode_first", "balanced", "per_replica"])
def test_a_text_is_the_same_alone_and_in_company(model: LanguageModel, priority: Priority) -> None:
    alone = {request.id: serve(model, [request]).text(request.id) for request in crowd()}
    together = serve(model, crowd(), EngineOptions(priority=priority), apart=2)
    assert {name: together.text(name) for name in alone} == alone
    assert len(set(alone.values())) == len(alone)


def test_another_seed_gives_another_text(model: LanguageModel) -> None:
    texts = {serve(model, [ask(seed=seed)]).text() for seed in range(4)}
    assert len(texts) == 4


@pytest.mark.parametrize("sampling", [GREEDY, WARM])
def test_drafts_do_not_change_the_text(model: LanguageModel, sampling: Sampling) -> None:
    plain = serve(model, [ask(sampling=sampling)])
    options = EngineOptions(is_adaptive=False)
    parrot = Parrot(plain.text(), plain.done().usage.input_tokens)
    drafted = serve(model, [ask(sampling=sampling)], options, parrot)
    assert drafted.text() == plain.text()
    speculation = drafted.done().usage.speculation
    assert speculation is not None and speculation.accepted > 8
    assert speculation.drafted > speculation.accepted
    assert speculation.steps + speculation.accepted == 23  # the first token came with the prompt


def test_drafts_of_different_luck_in_one_batch(model: LanguageModel) -> None:
    requests = crowd(sampling=GREEDY, max_tokens=40)
    alone = {request.id: serve(model, [request]).text(request.id) for request in requests}
    options = EngineOptions(is_adaptive=False)
    together = serve(model, requests, options, NgramDrafter(), apart=1)
    assert {name: together.text(name) for name in alone} == alone
    accepted = {together.done(name).usage.speculation.accepted for name in alone}  # type: ignore[union-attr]
    assert len(accepted) > 1


def test_a_width_that_adapts_keeps_the_text(model: LanguageModel) -> None:
    requests = crowd(sampling=GREEDY, max_tokens=60)
    plain = serve(model, requests)
    drafted = serve(model, requests, drafter=NgramDrafter())
    assert all(plain.text(request.id) == drafted.text(request.id) for request in requests)


def test_a_prompt_read_before_is_not_read_again(model: LanguageModel) -> None:
    engine, told = open_engine(model)
    long = "7 " * 20
    run(engine, [ask("a", long + "1 2"), ask("b", long + "3"), ask("c", long + "3")], apart=9)
    assert told.done("a").usage.cached_tokens == 0
    assert told.done("b").usage.cached_tokens == 19  # one shared token is read for its state
    assert told.done("c").usage.cached_tokens == 20  # all but the last, which gives the logits
    for name, tail in (("b", "3"), ("c", "3")):
        assert told.text(name) == serve(model, [ask(name, long + tail)]).text(name)


def test_a_kept_prompt_is_no_ones_who_differs_early(model: LanguageModel) -> None:
    engine, told = open_engine(model)
    run(engine, [ask("a", "9 " + "7 " * 20), ask("b", "8 " + "7 " * 20)], apart=30)
    assert told.done("b").usage.cached_tokens == 0


def test_a_long_prompt_is_read_in_chunks(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = serve(model, [ask(prompt="3 1 4 1 5 9 " * 12)]).text()
    monkeypatch.setattr("pipelines.text.scheduler.plan.__defaults__", (7,))
    engine, told = open_engine(model)
    engine.submit(ask(prompt="3 1 4 1 5 9 " * 12))
    engine.step()
    assert not told.has(TextStarted)
    run(engine, [])
    assert told.text() == whole


def test_a_cancelled_request_says_nothing_more_and_leaves_its_place(model: LanguageModel) -> None:
    engine, told = open_engine(model, EngineOptions(max_rows=2))
    for request in (ask("a"), ask("b", seed=8), ask("c", seed=9)):
        engine.submit(request)
    for _ in range(4):
        engine.step()
    engine.cancel("a")
    said = told.text("a")
    run(engine, [])
    assert told.has(TextCancelled, "a") and not told.has(TextDone, "a")
    assert told.text("a") == said
    for name, seed in (("b", 8), ("c", 9)):
        assert told.text(name) == serve(model, [ask(name, seed=seed)]).text(name)


def test_a_waiting_request_can_be_cancelled(model: LanguageModel) -> None:
    engine, told = open_engine(model, EngineOptions(max_rows=1))
    engine.submit(ask("a"))
    engine.submit(ask("b"))
    engine.step()
    engine.cancel("b")
    engine.cancel("nobody")
    run(engine, [])
    assert told.has(TextCancelled, "b") and not told.has(TextStarted, "b")


def test_a_stop_string_ends_the_text_before_it(model: LanguageModel) -> None:
    whole = serve(model, [ask()]).text()
    words = whole.split()
    stop = f"{words[5]} {words[6]}"
    told = serve(model, [ask(stop=(stop, "never"))])
    assert told.text() == whole.partition(stop)[0]
    assert told.done().finish == "stop"


def test_the_end_token_ends_a_text_and_is_not_shown() -> None:
    plain = serve(make_model("llama"), [ask(sampling=GREEDY)]).text().split()
    end = next(word for word in plain if plain.index(word) > 2)
    model = make_model("llama")
    model.tokens.end_ids = frozenset({int(end)})
    told = serve(model, [ask(sampling=GREEDY)])
    assert told.text().split() == plain[: plain.index(end)]
    assert told.done().finish == "stop"


def test_the_limit_is_exact_with_drafts(model: LanguageModel) -> None:
    plain = serve(model, [ask(max_tokens=30, sampling=GREEDY)])
    parrot = Parrot(plain.text(), plain.done().usage.input_tokens)
    for limit in range(1, 9):
        told = serve(
            model,
            [ask(max_tokens=limit, sampling=GREEDY)],
            EngineOptions(is_adaptive=False),
            parrot,
        )
        assert told.text().split() == plain.text().split()[:limit]
        assert told.done().finish == "length"
        assert told.done().usage.output_tokens == limit


def test_logprobs_are_those_of_the_model(model: LanguageModel) -> None:
    told = serve(model, [ask(top_logprobs=3, max_tokens=6)])
    written = [int(word) for word in told.text().split()]
    ids = [int(word) for word in PROMPT.split()] + written
    module = make_module("llama")
    module.set_attn_implementation("eager")
    expected = module(torch.tensor([ids])).logits[0].log_softmax(-1)
    items = told.logprobs()
    assert [item.token for item in items] == [str(token) for token in written]
    for place, item in enumerate(items):
        row = expected[len(ids) - len(written) - 1 + place]
        assert item.logprob == pytest.approx(float(row[written[place]]), abs=1e-4)
        assert [other.token for other in item.top] == [str(i) for i in row.topk(3).indices.tolist()]


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_shorter_numbers_in_the_cache_act(model: LanguageModel, dtype: torch.dtype) -> None:
    """What they cost is measured on a real model: benchmarks/text_quality.py."""
    request = ask(prompt="3 1 4 1 5 9 " * 10, top_logprobs=0, max_tokens=1, sampling=GREEDY)
    engine, told = open_engine(model, EngineOptions(kv_dtype=dtype))
    run(engine, [request])
    short, full = told.logprobs()[0].logprob, serve(model, [request]).logprobs()[0].logprob
    assert short != full and short == pytest.approx(full, abs=0.5)
    assert engine.cache.bytes_per_token == 3 * 2 * 2 * 8 * dtype.itemsize


def test_a_broken_rollback_is_seen(model: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that takes the keys of refused drafts for the text's own: without a refusal it
    passes, so the comparisons above do look at the rollback."""
    plain = serve(model, [ask(sampling=GREEDY)])
    parrot = Parrot(plain.text(), plain.done().usage.input_tokens)

    def keeps_all(*values: Any) -> Verdict:
        verdict = verify(*values)
        return Verdict(len(values[2].tokens), verdict.tokens)

    options = EngineOptions(is_adaptive=False)
    assert serve(model, [ask(sampling=GREEDY)], options, parrot).text() == plain.text()
    monkeypatch.setattr("pipelines.text.engine.verify", keeps_all)
    assert serve(model, [ask(sampling=GREEDY)], options, parrot).text() != plain.text()


def test_a_warm_up_leaves_no_trace(model: LanguageModel) -> None:
    engine, told = open_engine(model, drafter=NgramDrafter())
    engine.warm_up()
    assert not told.events and not engine.is_busy and engine.speculation.steps == 0
    run(engine, [ask()])
    assert told.text() == serve(model, [ask()]).text()


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
