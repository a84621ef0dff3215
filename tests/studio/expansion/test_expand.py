"""From an idea to a prompt with a text engine that writes what the test tells it to."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from itertools import pairwise

import pytest

from pipelines.specs import EMBEDDED_FOLDER
from pipelines.text.embedded import NAME as EMBEDDED
from pipelines.text.requests import TextDelta, TextRequest, TextStarted
from studio.engine.protocol import EngineStatus
from studio.engine.text_protocol import Piece, TextModel
from studio.errors import BadRequest, ExpansionFailed, TooManyRequests, Unavailable
from studio.expansion.expand import TRIES, Expander, Expansion, Progress
from studio.texts import Texts
from studio.world import read_world
from tests.fake_text_engine import FakeTextEngine
from tests.studio.conftest import SPEC

GOOD = (
    " curled up in a worn velvet armchair, soft morning light, dust in the air, muted green "
    "wallpaper, shallow depth of field, film photograph\n"
)
PROSE = " I love you, you know, it is a story"
ROOMY = replace(SPEC, max_sequence_length=512)
WORLD = read_world(str(EMBEDDED_FOLDER))
CHATTY = TextModel("a-large-model")


def run(
    engine: FakeTextEngine, idea: str, *, seed: int = 1, in_world: bool = False
) -> list[Progress | Expansion]:
    async def steps() -> list[Progress | Expansion]:
        world = WORLD if in_world else None
        expanding = Expander(Texts(engine)).expand(
            idea, owner="me", spec=ROOMY, world=world, seed=seed
        )
        async with aclosing(expanding):
            return [step async for step in expanding]

    return asyncio.run(steps())


def last(steps: list[Progress | Expansion]) -> Expansion:
    assert isinstance(steps[-1], Expansion)
    assert all(isinstance(step, Progress) for step in steps[:-1])
    return steps[-1]


def writes(*texts: str) -> Callable[[TextRequest], str]:
    """One text after the other, the last again and again."""
    left = list(texts)
    return lambda request: left.pop(0) if len(left) > 1 else left[0]


def test_an_idea_becomes_a_prompt_that_begins_with_it() -> None:
    steps = run(FakeTextEngine(writes(GOOD)), "A cat. ")
    done = last(steps)
    assert done.original == "A cat. "
    assert done.text == f"A cat,{GOOD.rstrip()}"
    assert (done.seed, done.model, done.attempts) == (1, EMBEDDED, 1)
    assert done.usage.output_tokens == len(GOOD.split())


def test_what_is_shown_only_grows() -> None:
    steps = run(FakeTextEngine(writes(GOOD)), "a cat")
    texts = [step.text for step in steps]
    assert texts[0] == "a cat" and len(texts) > 5
    assert all(later.startswith(text) for text, later in pairwise(texts))


def test_a_text_that_fails_the_checks_is_tried_again_with_another_seed() -> None:
    engine = FakeTextEngine(writes(PROSE, PROSE, GOOD))
    steps = run(engine, "a cat", seed=2**32 - 1)
    assert last(steps).attempts == 3
    assert last(steps).seed == 2**32 - 1
    seeds = [request.seed for request in engine.requests]
    assert len(set(seeds)) == 3 and seeds[0] == 2**32 - 1 and max(seeds) < 2**32
    words = len(PROSE.split()) * 2 + len(GOOD.split())
    assert last(steps).usage.output_tokens == words
    assert {step.attempt for step in steps if isinstance(step, Progress)} == {1, 2, 3}


def test_after_some_tries_it_says_why_not() -> None:
    engine = FakeTextEngine(writes(PROSE))
    with pytest.raises(
        ExpansionFailed, match=r"added too little\. The prompt stays as it is"
    ) as failed:
        run(engine, "a cat")
    assert (failed.value.code, failed.value.param) == ("prompt_not_expanded", "prompt")
    assert len(engine.requests) == TRIES


def test_the_same_request_gives_the_same_prompt() -> None:
    def by_seed(request: TextRequest) -> str:
        return f" tone{'abcdefghij'[request.seed % 10]} sky,{GOOD}"

    first, again, other = (
        last(run(FakeTextEngine(by_seed), "a cat", seed=seed)).text for seed in (4, 4, 5)
    )
    assert first == again != other


@pytest.mark.parametrize("idea", ["", "  ", " ,. "])
def test_an_empty_idea_is_refused(idea: str) -> None:
    with pytest.raises(BadRequest, match="nothing to expand"):
        run(FakeTextEngine(), idea)


def test_a_prompt_that_is_long_already_stays() -> None:
    engine = FakeTextEngine()
    with pytest.raises(ExpansionFailed, match="more than 45 words"):
        run(engine, "word " * 46)
    assert not engine.requests


def test_a_chat_model_answers_with_the_whole_prompt() -> None:
    answer = f'Here is your prompt:\n\n"A sleepy cat,{GOOD.rstrip()}."\n\nThis prompt adds light.'
    done = last(run(FakeTextEngine(writes(answer), model=CHATTY), "a cat"))
    assert done.text == f"A sleepy cat,{GOOD.rstrip()}"


def test_a_chat_answer_without_the_subject_fails() -> None:
    engine = FakeTextEngine(writes(f"A sleepy dog,{GOOD}"), model=CHATTY)
    with pytest.raises(ExpansionFailed, match="lost cat"):
        run(engine, "a cat")


def test_other_languages_go_through_and_are_told_when_it_fails() -> None:
    done = last(run(FakeTextEngine(writes(GOOD)), "eine Katze"))
    assert done.text.startswith("eine Katze, curled up")
    engine = FakeTextEngine(writes(f"A cat,{GOOD}"), model=CHATTY)
    with pytest.raises(ExpansionFailed, match="lost eine, katze"):
        run(engine, "eine Katze")


def test_an_example_is_not_taken_for_an_expansion() -> None:
    leaky = GOOD.replace("soft morning", "violin")
    engine = FakeTextEngine(writes(leaky))
    with pytest.raises(ExpansionFailed, match="copied an example"):
        run(engine, "a cat")


def test_a_world_is_kept_to_whatever_the_model_writes() -> None:
    steps = run(
        FakeTextEngine(writes(" small, yellow, on the left, blue background\n")),
        "a cat",
        in_world=True,
    )
    assert last(steps).text == "a small yellow cat on the left, on a blue background"
    shown = [step.text for step in steps[:-1]]
    assert shown == ["a small cat", "a small yellow cat", "a small yellow cat on the left"]
    wild = last(run(FakeTextEngine(writes(PROSE)), "a cat", in_world=True))
    assert "cat" in wild.text and "love" not in wild.text
    assert wild == last(run(FakeTextEngine(writes(PROSE)), "a cat", in_world=True))


def test_words_that_a_world_does_not_have_are_named_before_anything_is_written() -> None:
    engine = FakeTextEngine()
    with pytest.raises(ExpansionFailed, match="does not know: happy"):
        run(engine, "a happy cat", in_world=True)
    assert not engine.requests


def test_a_model_that_is_not_ready_is_unavailable() -> None:
    engine = FakeTextEngine(status=EngineStatus("loading"))
    with pytest.raises(Unavailable):
        run(engine, "a cat")
    assert Expander(Texts(engine)).status == engine.status


@pytest.mark.parametrize("in_world", [False, True])
def test_closing_it_ends_the_text_models_work(in_world: bool) -> None:
    async def close_early() -> FakeTextEngine:
        engine = FakeTextEngine(writes(" small, yellow, blue, in the snow, at night, soft light"))
        engine.hold = asyncio.Event()
        expanding = Expander(Texts(engine)).expand(
            "a cat", owner="me", spec=ROOMY, world=WORLD if in_world else None, seed=0
        )
        await anext(expanding)
        await expanding.aclose()
        return engine

    engine = asyncio.run(close_early())
    assert engine.cancelled == [engine.requests[0].id]


class Halting(FakeTextEngine):
    """Stops in mid-text, without a word why."""

    async def stream(self, request: TextRequest) -> AsyncGenerator[Piece]:
        yield TextStarted(request.id, 1, 0)
        yield TextDelta(request.id, " small,")


@pytest.mark.parametrize("in_world", [False, True])
def test_an_engine_that_stops_in_mid_text_is_told(in_world: bool) -> None:
    with pytest.raises(Unavailable, match="stopped in mid-text"):
        run(Halting(), "a cat", in_world=in_world)


def test_an_expansion_takes_a_place_of_its_owner() -> None:
    async def two_at_once() -> None:
        expander = Expander(Texts(FakeTextEngine(writes(GOOD)), max_per_owner=1))
        first = expander.expand("a cat", owner="me", spec=ROOMY)
        await anext(first)
        with pytest.raises(TooManyRequests, match="of yours"):
            await anext(expander.expand("a dog", owner="me", spec=ROOMY))
        others = expander.expand("a dog", owner="you", spec=ROOMY)
        await anext(others)
        await others.aclose()
        await first.aclose()
        again = expander.expand("a dog", owner="me", spec=ROOMY)
        await anext(again)
        await again.aclose()

    asyncio.run(two_at_once())


class Refusing(FakeTextEngine):
    """Takes no request."""

    async def stream(self, request: TextRequest) -> AsyncGenerator[Piece]:
        raise BadRequest("The text server takes no top_p.", param="top_p")
        yield


def test_an_expansions_error_names_no_field_of_the_text_request() -> None:
    with pytest.raises(BadRequest, match="top_p") as caught:
        run(Refusing(), "a cat")
    assert caught.value.param is None
