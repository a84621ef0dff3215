"""The loop: what a request gets does not depend on who is served beside it."""

from typing import Any

import pytest
import torch

from pipelines.text.drafts import NgramDrafter
from pipelines.text.engine import EngineOptions
from pipelines.text.language_model import LanguageModel
from pipelines.text.requests import (
    Priority,
    Sampling,
    TextCancelled,
    TextDone,
    TextStarted,
)
from pipelines.text.speculative import Verdict, verify
from tests.pipelines.text.serving import (
    GREEDY,
    PROMPT,
    WARM,
    Parrot,
    ask,
    crowd,
    open_engine,
    run,
    serve,
)
from tests.pipelines.text.tiny_models import (
    make_model,
    make_module,
)


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return make_model("llama")


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
    assert not told.events and not engine.is_busy
    run(engine, [ask()])
    assert told.text() == serve(model, [ask()]).text()
