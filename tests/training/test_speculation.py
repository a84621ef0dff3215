"""What a draft head learns from, and that it learns."""

from pathlib import Path

import pytest
import torch

from pipelines.text.draft_head import DraftHead, HeadShape
from pipelines.text.engine import EngineOptions
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel, Read
from pipelines.text.requests import Sampling, TextRequest
from tests.pipelines.text.serving import open_engine, run
from tests.pipelines.text.tiny_models import VOCABULARY, make_model
from training.optimisers import MuonAndAdam
from training.speculation.recording import Recorder, Text, load_texts, save_texts
from training.speculation.train import STEPS, common_tokens, losses
from training.speculation.write import requests_of


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return make_model("llama")


@pytest.fixture(scope="module")
def texts(model: LanguageModel) -> list[Text]:
    """What the model wrote for a dozen prompts, one of which ends early."""
    recorder = Recorder()
    engine, _ = open_engine(model, EngineOptions(prefix_bytes=0), recorder)
    requests = [
        TextRequest(str(i), f"{i} {i + 1} 5", i, Sampling(temperature=0.5), max_tokens=12)
        for i in range(12)
    ]
    run(engine, requests, apart=1)
    return recorder.texts


def test_every_token_has_its_state(model: LanguageModel, texts: list[Text]) -> None:
    assert len(texts) == 12
    for text in texts:
        ids = text.ids.tolist()
        states = model.read([Read(0, 0, ids[:-1])], KVCache(1, 64))
        torch.testing.assert_close(text.states.float(), states, atol=0.05, rtol=0.02)


def test_an_end_token_is_no_part_of_a_text() -> None:
    model = make_model("llama")
    model.tokens.end_ids = frozenset(range(0, VOCABULARY, 3))
    recorder = Recorder()
    engine, _ = open_engine(model, EngineOptions(prefix_bytes=0), recorder)
    run(engine, [TextRequest(str(i), f"{i} 2", i, max_tokens=20) for i in range(6)])
    assert all(len(text.ids) == len(text.states) + 1 for text in recorder.texts)


def test_texts_are_kept_and_read(texts: list[Text], tmp_path: Path) -> None:
    save_texts(texts, tmp_path / "texts.safetensors")
    for kept, text in zip(load_texts(tmp_path / "texts.safetensors"), texts, strict=True):
        assert torch.equal(kept.ids, text.ids) and torch.equal(kept.states, text.states)


def test_the_commonest_tokens_are_drafted(texts: list[Text]) -> None:
    found = common_tokens(texts, 10)
    assert found.tolist() == sorted(set(found.tolist())) and 5 in found
    assert len(common_tokens(texts, VOCABULARY)) == VOCABULARY  # filled up with others


def test_a_head_learns_what_the_model_writes(model: LanguageModel, texts: list[Text]) -> None:
    """On the same few texts: each step's loss falls, and its first choices become the model's."""
    config = model.config
    torch.manual_seed(0)
    head = DraftHead(
        HeadShape(
            width=model.width,
            heads=config.num_attention_heads,
            key_heads=config.num_key_value_heads,
            head_width=config.head_dim,
            inner=48,
            vocabulary=VOCABULARY,
            theta=10_000.0,
            eps=1e-6,
        )
    )
    embedding = model.embed(torch.arange(VOCABULARY))
    head_weights = model._head.weight.detach()
    optimiser = MuonAndAdam(
        [p for p in head.parameters() if p.ndim == 2],
        [p for p in head.parameters() if p.ndim != 2],
        1e-2,
        1e-2,
    )
    with torch.no_grad():
        before = losses(head, embedding, head_weights, texts)
    for _ in range(60):
        found, _ = losses(head, embedding, head_weights, texts)
        torch.stack(found).sum().backward()
        optimiser.step(1.0)
    with torch.no_grad():
        after = losses(head, embedding, head_weights, texts)
    for step in range(STEPS):
        assert float(after[0][step]) < 0.8 * float(before[0][step])
        assert after[1][step] > 0.5


@pytest.mark.parametrize("kind", ["expansions", "edits", "answers"])
def test_requests_are_the_same_for_the_same_seed(kind: str) -> None:
    first, again = (list(requests_of(kind, 4, seed=3)) for _ in range(2))
    assert first == again != list(requests_of(kind, 4, seed=4))
    assert all((request.adapter is None) == (kind != "expansions") for request in first)
