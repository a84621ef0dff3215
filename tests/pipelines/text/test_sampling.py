"""Penalties, filters and draws against transformers' logits processors and plain loops."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from pipelines.errors import NotFinite
from pipelines.text.noise import DRAFT, TARGET
from pipelines.text.requests import Sampling
from pipelines.text.sampling import Kept, Seen, kept, logprobs, penalised
from tests.pipelines.text.chi_squared import FITS, p_value

SETTINGS = [
    Sampling(),
    Sampling(temperature=0.7),
    Sampling(top_k=1),
    Sampling(top_k=40),
    Sampling(top_p=0.9),
    Sampling(top_p=0.01),
    Sampling(min_p=0.05),
    Sampling(min_p=1.0),
    Sampling(temperature=1.7, top_k=300, top_p=0.8, min_p=0.02),
    Sampling(temperature=0.4, top_k=20, top_p=0.5),
    Sampling(temperature=2.0, top_p=0.95, min_p=0.1),
]


def distribution(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """`kept` for each row, with 0 for the tokens that were filtered out: float64 [n, vocab]."""
    probs = np.zeros(logits.shape)
    for row, out in zip(logits.numpy(), probs, strict=True):
        left = kept(row, sampling)
        out[slice(None) if left.ids is None else left.ids] = left.probs
    return torch.from_numpy(probs)


def logits_of(seed: int, rows: int = 4, vocab: int = 3000) -> torch.Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 3


def by_transformers(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    processors = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k:
        processors.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        processors.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0:
        processors.append(MinPLogitsWarper(sampling.min_p))
    return processors(torch.zeros(len(logits), 1, dtype=torch.int64), logits).double().softmax(-1)


def miss(probs: torch.Tensor, reference: torch.Tensor) -> float:
    """Worst difference; infinite where another set of tokens was kept."""
    if not torch.equal(probs > 0, reference > 0):
        return float("inf")
    return float((probs - reference).abs().max())


@pytest.mark.parametrize("sampling", SETTINGS)
@pytest.mark.parametrize("vocab", [30, 3000])  # fewer than top-k, and more than any filter keeps
def test_the_distribution_is_that_of_transformers(sampling, vocab):
    for seed in range(3):
        logits = logits_of(seed, vocab=vocab)
        probs = distribution(logits, sampling)
        assert miss(probs, by_transformers(logits, sampling)) < 1e-6
        assert torch.allclose(probs.sum(-1), torch.ones(4, dtype=torch.float64))


def test_filters_in_another_order_are_not():
    """Top-p before top-k keeps more: what top-k leaves is not normalised again."""
    logits, sampling = logits_of(0), Sampling(top_k=20, top_p=0.9)
    first = distribution(logits, Sampling(top_p=0.9)).log().float()
    swapped = distribution(first, Sampling(top_k=20))
    assert miss(distribution(logits, sampling), by_transformers(logits, sampling)) < 1e-6
    assert miss(swapped, by_transformers(logits, sampling)) > 1e-3


@pytest.mark.parametrize("sampling", SETTINGS)
def test_a_row_does_not_hang_on_the_rows_beside_it(sampling):
    """To the last bit: one token of difference, and speculation would change the text."""
    logits = logits_of(5, rows=8, vocab=49_152)
    together = distribution(logits, sampling)
    for i in range(8):
        assert torch.equal(together[i : i + 1], distribution(logits[i : i + 1].clone(), sampling))


def test_temperature_0_takes_the_lowest_id_of_the_highest():
    logits = torch.tensor([[1.0, 5.0, 5.0, 0.0], [7.0, 7.0, 7.0, 7.0]])
    probs = distribution(logits, Sampling(temperature=0, top_p=0.5, top_k=3))
    assert probs.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]


def test_the_lowest_temperature_is_nearly_greedy_and_has_no_nan():
    logits = torch.tensor([[1.0, 5.0, 4.999, -float("inf")]])
    assert distribution(logits, Sampling(temperature=1e-310)).tolist() == [[0, 1, 0, 0]]


def test_ties_are_decided_by_id_and_top_k_keeps_them():
    logits = torch.tensor([[2.0, 3.0, 2.0, 2.0, 0.0]])
    assert (distribution(logits, Sampling(top_k=2)) > 0).tolist() == [[True] * 4 + [False]]
    half = distribution(logits, Sampling(top_p=0.6))  # 0.46 of the mass is on the first
    assert (half > 0).tolist() == [[True, True, False, False, False]]


def test_top_p_finds_a_nucleus_of_nearly_the_whole_vocabulary():
    logits = torch.zeros(1, 10_000)
    probs = distribution(logits, Sampling(top_p=0.75))
    assert (probs[0, :7500] > 0).all() and not probs[0, 7500:].any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_refused(bad, temperature):
    logits = torch.tensor([[0.0, bad, 1.0]])
    with pytest.raises(NotFinite, match="NaN or infinity"):
        distribution(logits, Sampling(temperature=temperature))
    with pytest.raises(NotFinite):
        distribution(torch.full((1, 3), -float("inf")), Sampling())


def test_no_penalty_gives_the_same_logits():
    logits = logits_of(0)
    assert penalised(logits, Seen([1, 2]), (3, 4, 5), Sampling(top_k=3)) is logits


def test_the_repetition_penalty_is_that_of_transformers():
    logits, prompt, written, draft = logits_of(1, vocab=50), [3, 4, 4, 9], [4, 11], [20, 3, 20]
    seen, before = Seen(prompt), logits.clone()
    for token in written:
        seen.add(token)
    ours = penalised(logits, seen, draft, Sampling(repetition_penalty=1.3))
    for i in range(4):
        text = torch.tensor([prompt + written + draft[:i]])
        theirs = RepetitionPenaltyLogitsProcessor(1.3)(text, logits[i : i + 1].clone())
        assert torch.allclose(ours[i : i + 1], theirs)
    assert torch.equal(logits, before)


def by_loops(logits: torch.Tensor, output: list[int], sampling: Sampling) -> torch.Tensor:
    row = logits.clone()
    for token in set(output):
        row[token] -= sampling.frequency_penalty * output.count(token) + sampling.presence_penalty
    return row


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(frequency_penalty=0.5),
        Sampling(presence_penalty=-0.8),
        Sampling(frequency_penalty=-0.25, presence_penalty=1.5),
    ],
)
def test_frequency_and_presence_count_the_output_and_the_draft_alone(sampling):
    logits, written, draft = logits_of(2, vocab=50), [4, 11, 4], [4, 20, 20]
    seen = Seen([1, 4, 30])
    for token in written:
        seen.add(token)
    ours = penalised(logits, seen, draft, sampling)
    for i in range(4):
        assert torch.allclose(ours[i], by_loops(logits[i], written + draft[:i], sampling))
    assert not torch.allclose(ours[3], by_loops(logits[3], [1, 30, *written, *draft], sampling))


def test_repetition_comes_before_the_others():
    sampling = Sampling(repetition_penalty=2.0, presence_penalty=1.0)
    seen = Seen()
    seen.add(0)
    assert penalised(torch.tensor([[4.0, 1.0]]), seen, (), sampling).tolist() == [[1.0, 1.0]]


def test_a_row_that_follows_the_whole_draft_is_the_last_of_many():
    logits, draft = logits_of(3, vocab=50), [4, 20, 4]
    sampling = Sampling(repetition_penalty=1.2, frequency_penalty=0.3)
    together = penalised(logits, Seen([20]), draft, sampling)
    for i in range(4):
        alone = penalised(logits[i : i + 1], Seen([20]), draft[:i], sampling)
        assert torch.equal(alone, together[i : i + 1])


def test_a_reduced_vocabulary_is_penalised_by_the_tokens_it_has():
    columns = np.array([2, 3, 5, 8, 20, 30])
    logits, draft = logits_of(4, vocab=50), [20, 7]  # 7, 9 and 49 are in no column
    seen, sampling = Seen([3, 9, 49]), Sampling(repetition_penalty=1.5, frequency_penalty=0.2)
    seen.add(5)
    whole = penalised(logits[:3], seen, draft, sampling)
    reduced = penalised(logits[:3, columns], seen, draft, sampling, columns)
    assert torch.equal(reduced, whole[:, columns])


def test_draws_follow_the_distribution():
    probs = distribution(logits_of(6, rows=1, vocab=12), Sampling(temperature=2, top_k=9))[0]
    left = Kept(None, probs.numpy())
    tokens = torch.tensor([left.draw(1, position, TARGET) for position in range(20_000)])
    counts = torch.bincount(tokens, minlength=12).tolist()
    assert p_value(counts, probs.tolist()) > FITS
    assert p_value(counts, [1 / 12] * 12) < FITS


def test_no_draw_gives_a_token_of_probability_0():
    probs = np.array([0.0, 1e-3, 0.0, 0.999, 0.0])
    assert {Kept(None, probs).draw(seed, 0, TARGET) for seed in range(5000)} == {1, 3}
    assert {Kept(None, np.eye(5)[4]).draw(seed, 0, TARGET) for seed in range(50)} == {4}
    assert Kept(np.array([7]), np.ones(1)).draw(1, 0, TARGET) == 7
    assert Kept(None, np.ones(1)).draw(1, 0, TARGET) == 0


def test_kept_tokens_alone_draw_as_the_whole_vocabulary_does():
    logits, sampling = logits_of(0, rows=1), Sampling(top_p=0.8)
    left = kept(logits[0].numpy(), sampling)
    whole = Kept(None, distribution(logits, sampling)[0].numpy())
    for seed in range(200):
        assert left.draw(seed, 3, TARGET) == whole.draw(seed, 3, TARGET)


def test_distributions_that_agree_nearly_everywhere_draw_the_same_nearly_always():
    """Wherever in the vocabulary they differ; a draw from the sums would shift all behind it."""
    p = np.full(100, 0.01)
    q = p + np.eye(100)[0] * 0.02
    q /= q.sum()
    draws = [(Kept(None, p), Kept(None, q), seed) for seed in range(2000)]
    same = sum(a.draw(seed, 0, TARGET) == b.draw(seed, 0, TARGET) for a, b, seed in draws)
    apart = sum(a.draw(seed, 0, TARGET) == b.draw(seed, 0, DRAFT) for a, b, seed in draws)
    assert same > 0.96 * 2000 and apart < 0.03 * 2000


def test_the_probability_of_a_token_is_its_own_or_0():
    left = Kept(np.array([2, 5, 9]), np.array([0.5, 0.3, 0.2]))
    assert [left.of(token) for token in (0, 2, 4, 5, 9, 10)] == [0, 0.5, 0, 0.3, 0.2, 0]
    assert Kept(None, np.array([0.25, 0.75])).of(1) == 0.75


def test_logprobs_are_those_of_the_raw_logits():
    logits, chosen = logits_of(7), torch.tensor([5, 0, 2999, 17])
    ours = logprobs(logits, chosen, top=20)
    logs = logits.double().log_softmax(-1)
    values, ids = logs.topk(20)
    assert torch.equal(ours.ids, ids)
    assert torch.allclose(ours.values.double(), values, atol=1e-5)
    assert torch.allclose(ours.chosen.double(), logs[range(4), chosen], atol=1e-5)


def test_no_top_logprobs_are_none_and_ties_come_by_id():
    logits = torch.tensor([[1.0, 3.0, 2.0, 3.0, 2.0]])
    assert logprobs(logits, torch.tensor([0]), top=0).ids.shape == (1, 0)
    assert logprobs(logits, torch.tensor([0]), top=3).ids.tolist() == [[1, 3, 2]]
    assert logprobs(logits, torch.tensor([0]), top=5).ids.tolist() == [[1, 3, 2, 4, 0]]


def test_a_setting_that_filters_nothing_changes_nothing():
    logits = logits_of(8)
    idle = replace(Sampling(), top_k=3000, top_p=1.0, min_p=0.0)
    assert torch.equal(distribution(logits, idle), distribution(logits, Sampling()))
