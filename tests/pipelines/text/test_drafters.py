"""Who drafts: the text itself, a smaller model, a head over the target's states."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from pipelines.text.draft_head import DraftHead, HeadShape, load_head, save_head
from pipelines.text.drafts import Drafter, NgramDrafter
from pipelines.text.engine import EngineOptions, TextEngine
from pipelines.text.head_drafter import HeadDrafter
from pipelines.text.language_model import LanguageModel
from pipelines.text.model_drafter import ModelDrafter
from pipelines.text.requests import Rule, Sampling, TextRequest
from tests.pipelines.text.serving import open_engine, run, serve
from tests.pipelines.text.tiny_models import VOCABULARY, make_model
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


def with_head(model: LanguageModel, head: DraftHead) -> TextEngine:
    engine, told = open_engine(model, ALWAYS)
    engine.drafter = HeadDrafter(head, model, engine.cache, RULE, packs=False)
    engine.told = told  # type: ignore[attr-defined]
    return engine


def test_a_head_changes_no_text(model: LanguageModel, head: DraftHead) -> None:
    plain = serve(model, REQUESTS)
    engine = with_head(model, head)
    run(engine, REQUESTS, apart=3)
    for request in REQUESTS:
        assert engine.told.text(request.id) == plain.text(request.id)  # type: ignore[attr-defined]
    assert engine.speculation.drafted > 0


def test_the_same_model_as_draft_is_always_right(model: LanguageModel) -> None:
    """Greedy, and warm as well: draft and target draw with the same noise."""
    plain = serve(model, REQUESTS)
    told = serve(model, REQUESTS, ALWAYS, ModelDrafter(model, 16, RULE), apart=3)
    for request in REQUESTS:
        assert told.text(request.id) == plain.text(request.id)
        speculation = told.done(request.id).usage.speculation
        assert speculation is not None and speculation.acceptance_rate == 1.0


def test_another_model_as_draft_changes_no_text(model: LanguageModel) -> None:
    plain = serve(model, REQUESTS)
    told = serve(model, REQUESTS, ALWAYS, ModelDrafter(make_model("mistral"), 16, RULE), apart=3)
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
    engine = with_head(model, head)
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
    from pipelines.text.kv_cache import KVCache
    from pipelines.text.language_model import Read

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


def test_ngrams_give_way_to_the_other_drafter_once_they_fail(model: LanguageModel) -> None:
    """A text that only seems to repeat itself: the head takes over."""
    asked: list[int] = []

    class Other:
        def propose(self, rows, width):  # type: ignore[no-untyped-def]
            from pipelines.text.speculative import NOTHING

            asked.append(len(rows))
            return [NOTHING for _ in rows]

        def read(self, *_: object) -> None:
            pass

        judged = move = leave = read

    other: Drafter = Other()  # type: ignore[assignment]
    prompt = "1 2 3 4 1 2 3 4 1 2 3 4 " * 3
    request = TextRequest("a", prompt, 3, Sampling(temperature=2.0), max_tokens=40)
    told = serve(model, [request], ALWAYS, NgramDrafter(other))
    assert told.text() == serve(model, [request]).text()
    assert asked
