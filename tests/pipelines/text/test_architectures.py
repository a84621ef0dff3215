"""Every served architecture writes what transformers' own `generate` writes, token for token."""

from collections.abc import Sequence

import pytest
from torch import Tensor

from pipelines.text.drafts import NgramDrafter
from pipelines.text.engine import EngineOptions
from pipelines.text.language_model import LanguageModel
from pipelines.text.requests import Sampling, TextRequest
from pipelines.text.sequence import Sequence as Row
from pipelines.text.speculative import Draft
from tests.pipelines.text.serving import open_engine
from tests.pipelines.text.tiny_models import (
    CONFIGS,
    VOCABULARY,
    Stock,
    make_model,
    make_module,
    random_ids,
    text_of,
)

WRITTEN = 24
NEAR_TIE = 1e-4  # of logits with a spread of several: two orders of sums may choose either
PROMPTS = {"first": random_ids(20, 1), "second": random_ids(9, 2), "late": random_ids(31, 3)}
DRAFTS = EngineOptions(widths=(0, 3), is_adaptive=False)


class Run:
    """An engine, and what it wrote by request."""

    def __init__(self, model: LanguageModel, options: EngineOptions | None = None) -> None:
        drafter = NgramDrafter() if options is not None else None
        self.engine, self.told = open_engine(model, options, drafter)

    def submit(self, name: str, ids: Sequence[int]) -> None:
        greedy = Sampling(temperature=0)
        request = TextRequest(name, text_of(ids), seed=0, sampling=greedy, max_tokens=WRITTEN)
        self.engine.submit(request)

    def step(self, count: int = 1000) -> None:
        for _ in range(count):
            if self.engine.is_busy:
                self.engine.step()

    def written(self, name: str) -> list[int]:
        return [int(word) for word in self.told.text(name).split()]


class HalfRight:
    """Drafts what will be written, at every second step with a wrong token in it."""

    def __init__(self, texts: dict[tuple[int, ...], list[int]]) -> None:
        self._texts = texts
        self._calls = 0

    def propose(self, rows: Sequence[Row], width: int) -> list[Draft]:
        self._calls += 1
        return [self._draft(row, width) for row in rows]

    def _draft(self, row: Row, width: int) -> Draft:
        text = self._texts[tuple(row.ids[: row.prompt_tokens])]
        tokens = text[row.written : row.written + width]
        if self._calls % 2:
            tokens[1:2] = [(token + 1) % VOCABULARY for token in tokens[1:2]]
        return Draft(tuple(tokens))

    def read(self, row: Row, start: int, hidden: Tensor) -> None: ...

    def judged(self, row: Row, draft: Draft, accepted: int) -> None: ...

    def move(self, row: Row, target: int) -> None: ...

    def leave(self, row: Row) -> None: ...


@pytest.fixture(scope="module", params=CONFIGS)
def served(request) -> tuple[LanguageModel, Stock]:
    model = make_model(request.param)
    return model, Stock(model.module)


def check(
    stock: Stock, prompt: Sequence[int], written: Sequence[int], count: int = WRITTEN
) -> None:
    assert len(written) == count
    for place, (ours, theirs) in enumerate(
        zip(written, stock.generate(prompt, count), strict=True)
    ):
        if ours != theirs:
            assert stock.gap([*prompt, *written[:place]], ours, theirs) < NEAR_TIE, place
            return


def test_a_request_alone(served):
    model, stock = served
    run = Run(model)
    run.submit("only", PROMPTS["first"])
    run.step()
    check(stock, PROMPTS["first"], run.written("only"))


@pytest.mark.parametrize("options", [None, DRAFTS], ids=["plain", "drafts"])
def test_requests_of_different_lengths_that_come_and_go(served, options):
    model, stock = served
    run = Run(model, options)
    run.submit("first", PROMPTS["first"])
    run.submit("second", PROMPTS["second"])
    run.step(3)
    run.submit("late", PROMPTS["late"])
    run.step(4)
    run.engine.cancel("first")  # slot 0: another one moves in
    run.step()
    check(stock, PROMPTS["second"], run.written("second"))
    check(stock, PROMPTS["late"], run.written("late"))
    cut = run.written("first")
    assert 0 < len(cut) < WRITTEN
    check(stock, PROMPTS["first"], cut, len(cut))


def test_drafts_are_verified_in_one_forward(served):
    model, stock = served
    prompts = [PROMPTS["first"], PROMPTS["second"]]
    run = Run(model, DRAFTS)
    run.engine.drafter = HalfRight({tuple(p): stock.generate(p, WRITTEN) for p in prompts})
    for name in ("first", "second"):
        run.submit(name, PROMPTS[name])
    run.step()
    told = run.told.speculation
    assert 0 < told.accepted < told.drafted
    for name in ("first", "second"):
        check(stock, PROMPTS[name], run.written(name))


def test_a_prompt_goes_on_from_a_kept_beginning(served):
    """Several tokens are read at once behind others that are in the cache."""
    model, stock = served
    run = Run(model)
    run.submit("before", PROMPTS["late"])
    run.step()
    prompt = [*PROMPTS["late"][:25], *random_ids(12, 5)]
    run.submit("again", prompt)
    run.step()
    check(stock, prompt, run.written("again"))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("mistral", {"sliding_window": 1000}),
        ("olmo3", {"sliding_window": 1000}),
        ("gpt-oss", {"sliding_window": 1000}),
        ("deepseek-v3.2", {"index_topk": 1000}),
    ],
)
def test_the_texts_are_long_enough_for_masks_to_matter(name, change):
    """With the window or the choice of tokens left out, another text would be written."""
    right, wrong = Stock(make_module(name)), Stock(make_module(name, **change))
    for prompt in (PROMPTS["first"], PROMPTS["late"]):
        assert right.generate(prompt, WRITTEN) != wrong.generate(prompt, WRITTEN)


def test_sinks_matter():
    right, wrong = make_module("gpt-oss"), make_module("gpt-oss")
    for layer in wrong.model.layers:
        layer.self_attn.sinks.fill_(-1e4)
    prompt = PROMPTS["first"]
    assert Stock(right).generate(prompt, WRITTEN) != Stock(wrong).generate(prompt, WRITTEN)
