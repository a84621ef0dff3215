"""Who drafts: the text itself, a smaller model, a head over the target's states."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from pipelines.text.draft_head import DraftHead, HeadShape, load_head, save_head
from pipelines.text.drafts import TRUST_FLOOR, NgramDrafter
from pipelines.text.engine import EngineOptions, TextEngine
from pipelines.text.head_drafter import HeadDrafter
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel, Read
from pipelines.text.model_drafter import ModelDrafter
from pipelines.text.ngram import NgramIndex
from pipelines.text.requests import Rule, Sampling, TextDone, TextRequest
from pipelines.text.sequence import Sequence
from pipelines.text.speculative import NOTHING
from tests.pipelines.text.serving import Told, open_engine, run, serve
from tests.pipelines.text.tiny_models import (
    VOCABULARY,
    language_model,
    make_model,
    make_module,
)
from training.speculation.train import Look

GREEDY = Sampling(temperature=0)
WARM = Sampling(temperature=0.9, top_p=0.95, repetition_penalty=1.1)
ALWAYS = EngineOptions(is_adaptive=False)
REQUESTS = [
    TextRequest(f"r{i}", prompt, i, GREEDY if i % 2 else WARM, max_tokens=20)
    for i, prompt in enumerate(["5 17 3 60 42 8", "1 2 3", "90 " * 30, "11 12 13 14 15"])
]
RULE: Rule = "typical-acceptance"


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return make_model("llama")


@pytest.fixture(scope="module")
def head(model: LanguageModel) -> DraftHead:
    """Random weights over a third of the vocabulary."""
    config = model.config
    shape = HeadShape(
        width=model.width,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_width=config.head_dim,
        inner=48,
        vocabulary=VOCABULARY // 3,
        theta=10_000.0,
        eps=1e-6,
    )
    torch.manual_seed(0)
    made = DraftHead(shape)
    made.ids.copy_(torch.arange(0, VOCABULARY, 3))
    for norm in made.norms.values():
        norm.data += 0.2 * torch.randn(norm.shape)
    return made


def with_head(model: LanguageModel, head: DraftHead) -> tuple[TextEngine, Told]:
    engine, told = open_engine(model, ALWAYS)
    engine.drafter = HeadDrafter(head, model, engine.cache, RULE, packs=False)
    return engine, told


def test_a_head_changes_no_text(model: LanguageModel, head: DraftHead) -> None:
    plain = serve(model, REQUESTS)
    engine, told = with_head(model, head)
    run(engine, REQUESTS, apart=3)
    for request in REQUESTS:
        assert told.text(request.id) == plain.text(request.id)
    assert told.speculation.drafted > 0


def test_the_same_model_as_draft_is_always_right(model: LanguageModel) -> None:
    """Greedy, and warm as well: draft and target draw with the same noise."""
    plain = serve(model, REQUESTS)
    told = serve(model, REQUESTS, ALWAYS, ModelDrafter(model, VOCABULARY, 16, RULE), apart=3)
    for request in REQUESTS:
        assert told.text(request.id) == plain.text(request.id)
        speculation = told.done(request.id).usage.speculation
        assert speculation is not None and speculation.acceptance_rate == 1.0


def test_another_model_as_draft_changes_no_text(model: LanguageModel) -> None:
    plain = serve(model, REQUESTS)
    told = serve(
        model, REQUESTS, ALWAYS, ModelDrafter(make_model("mistral"), VOCABULARY, 16, RULE), apart=3
    )
    for request in REQUESTS:
        assert told.text(request.id) == plain.text(request.id)


def unrolled(model: LanguageModel, head: DraftHead, ids: list[int], states: Tensor) -> list[int]:
    """What the head drafts behind `ids`, without a cache: as it was trained."""
    embedding = model.embed(torch.arange(VOCABULARY))
    assert isinstance(head.ids, Tensor)
    tokens, given = list(ids), torch.cat([torch.zeros(1, model.width), states])
    drafted: list[int] = []
    for _ in range(3):
        length, look = len(tokens), Look(1)
        # The places of the text are read with the target's states, drafted ones with the head's.
        own = given[: len(ids)]
        for step in range(len(drafted) + 1):
            places = torch.arange(length)
            known = torch.cat([own, torch.zeros(length - len(own), model.width)])
            out = head(known, embedding[torch.tensor(tokens)], places, look)
            own = torch.cat([torch.zeros(1, model.width), out[:-1]]) if step == 0 else own
            if step == len(drafted):
                break
            own = torch.cat([torch.zeros(1, model.width), out[:-1]])
        best = (head.norm("out", out[-1]) @ embedding[head.ids].t()).argmax()
        drafted.append(int(head.ids[best]))
        tokens.append(drafted[-1])
    return drafted


def test_a_head_drafts_with_its_cache_what_it_was_trained_to(
    model: LanguageModel, head: DraftHead
) -> None:
    """Against the training's own unrolling, after prompts, refused drafts and moves."""
    engine, _ = with_head(model, head)
    drafter = engine.drafter
    assert isinstance(drafter, HeadDrafter)
    seen: list[tuple[list[int], str, tuple[int, ...]]] = []
    propose = drafter.propose

    def watch(rows, width):  # type: ignore[no-untyped-def]
        drafts = propose(rows, width)
        seen.extend(
            (list(r.ids), r.request.id, d.tokens) for r, d in zip(rows, drafts, strict=True)
        )
        return drafts

    drafter.propose = watch  # type: ignore[method-assign]
    greedy = [
        TextRequest(f"g{i}", request.prompt, i, GREEDY, max_tokens=9)
        for i, request in enumerate(REQUESTS)
    ]
    run(engine, greedy, apart=2)
    assert len(seen) > 12
    for ids, _, tokens in seen[::3]:
        states = model.read([Read(0, 0, ids[:-1])], KVCache(1, 128))
        assert tokens == tuple(unrolled(model, head, ids, states))


def test_a_head_is_kept_and_read(head: DraftHead, tmp_path: Path) -> None:
    save_head(head, tmp_path / "head.safetensors", base="tiny")
    read = load_head(tmp_path / "head.safetensors")
    assert read.shape == head.shape
    assert isinstance(read.ids, Tensor) and isinstance(head.ids, Tensor)
    assert torch.equal(read.ids, head.ids)
    for name, weight in head.named_parameters():
        torch.testing.assert_close(
            dict(read.named_parameters())[name], weight, atol=0.02, rtol=0.01
        )


def asked_others(trust_floor: float, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the other drafter is asked where the text only seems to repeat itself."""
    asked: list[int] = []

    class Other(ModelDrafter):
        def propose(self, rows, width):  # type: ignore[no-untyped-def]
            asked.append(len(rows))
            return [NOTHING for _ in rows]

    monkeypatch.setattr("pipelines.text.drafts.TRUST_FLOOR", trust_floor)
    monkeypatch.setattr(NgramIndex, "propose", lambda index, width, least: (95,) * width)
    model = make_model("llama")
    request = TextRequest("a", "1 2 3 4 " * 9, 3, Sampling(temperature=3.0), max_tokens=60)
    drafter = NgramDrafter(Other(model, VOCABULARY, 16, RULE))
    told = serve(model, [request], ALWAYS, drafter)
    assert told.text() == serve(model, [request]).text()
    return len(asked)


def test_ngrams_give_way_to_the_other_drafter_once_they_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked_others(TRUST_FLOOR, monkeypatch) > asked_others(0.0, monkeypatch)


def test_ngrams_are_tried_again_later(model: LanguageModel) -> None:
    drafter = NgramDrafter(ModelDrafter(model, VOCABULARY, 16, RULE))
    row = Sequence(TextRequest("a", "", 0), [1, 2, 3] * 6, 18, 20, 0, slot=0)
    drafter._trust["a"] = TRUST_FLOOR - 0.02
    proposed = [bool(drafter._from(row, 3).tokens) for _ in range(8)]
    assert proposed[0] is False and proposed[-1] is True


@pytest.mark.parametrize("prompts", [("7 " * 20, "7 " * 20), ("7 " * 20 + "1 2", "7 " * 20)])
def test_a_prompt_that_was_read_before_is_drafted_for(
    model: LanguageModel, head: DraftHead, prompts: tuple[str, str]
) -> None:
    """Nothing of it is left for the head to read, which once ended the worker."""
    engine, told = with_head(model, head)
    requests = [TextRequest(name, prompts[i], i, WARM, max_tokens=9) for i, name in enumerate("ab")]
    run(engine, requests, apart=30)
    for request in requests:
        expected = serve(model, [request]).text(request.id)
        assert told.text(request.id) == expected


def test_a_prompts_last_chunk_may_be_one_token(
    model: LanguageModel, head: DraftHead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.text.scheduler.plan.__defaults__", (8,))
    engine, told = with_head(model, head)
    run(engine, [TextRequest("a", "1 2 3 4 5 6 7 8 9", 0, GREEDY, max_tokens=9)])
    assert told.speculation.drafted > 0


@pytest.mark.parametrize("kind", ["head", "model", "ngrams"])
def test_drafting_ends_with_the_context(model: LanguageModel, head: DraftHead, kind: str) -> None:
    request = TextRequest("a", "1 2 3", 0, GREEDY)
    engine, told = with_head(model, head)
    if kind != "head":
        engine.drafter = (
            ModelDrafter(model, VOCABULARY, 16, RULE) if kind == "model" else NgramDrafter()
        )
    run(engine, [request])
    assert told.done().finish == "length"
    assert told.text() == serve(model, [request]).text()


def test_a_draft_model_with_another_vocabulary() -> None:
    """Families pad their vocabularies differently."""
    target = make_model("llama")
    for size in (VOCABULARY - 16, VOCABULARY + 16):
        small = language_model(make_module("mistral", vocab_size=size))
        for rule in ("residual", RULE):
            drafter = ModelDrafter(small, VOCABULARY, 16, rule)  # type: ignore[arg-type]
            options = EngineOptions(is_adaptive=False, rule=rule)  # type: ignore[arg-type]
            told = serve(target, REQUESTS, options, drafter)
            assert all(told.has(TextDone, request.id) for request in REQUESTS)


def test_a_draft_model_reads_a_long_prompt_in_pieces(
    model: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.text.model_drafter.CHUNK_TOKENS", 16)
    drafter = ModelDrafter(make_model("llama"), VOCABULARY, 16, RULE)
    read, longest = drafter._model.read, []

    def watch(reads, cache):  # type: ignore[no-untyped-def]
        longest.append(max(len(read.ids) for read in reads))
        return read(reads, cache)

    monkeypatch.setattr(drafter._model, "read", watch)
    request = TextRequest("a", "5 6 7 8 9 10 11 12 " * 10, 0, GREEDY, max_tokens=20)
    told = serve(model, [request], ALWAYS, drafter)
    assert told.text() == serve(model, [request]).text()
    assert max(longest) <= 16 + 3
    assert told.done().usage.speculation.acceptance_rate == 1.0  # type: ignore[union-attr]
