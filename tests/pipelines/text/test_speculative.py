"""The rules that call themselves exact write the target's distribution, and the others do not.

What `judge` writes into a world of six tokens, whose texts can all be enumerated, is compared by a
chi-squared test: 100,000 texts with one seed each, through penalties, filters and several drafts.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import NotFinite
from pipelines.text import speculative
from pipelines.text.noise import TARGET
from pipelines.text.requests import Rule, Sampling
from pipelines.text.sampling import Kept, Seen, penalised
from pipelines.text.speculative import (
    NOTHING,
    RULES,
    Draft,
    Verdict,
    draft_token,
    judge,
    residual,
    verify,
)
from tests.pipelines.text.chi_squared import FITS
from tests.pipelines.text.markov_world import PROMPT, VOCAB, WIDTH, Text, World, fit

MANY, SOME, FEW = 100_000, 20_000, 5_000
REDUCED = np.array([0, 1, 3, 4])
FILTERS = Sampling(temperature=1.3, top_k=5, top_p=0.85, min_p=0.05)
PENALTIES = Sampling(repetition_penalty=1.4, frequency_penalty=0.5, presence_penalty=0.3)
WORLDS = {
    "plain": World(),
    "filters": World(FILTERS),
    "penalties": World(PENALTIES),
    "reduced": World(Sampling(top_p=0.9), columns=REDUCED),
    "certain": World(Sampling(temperature=0.8), is_certain=True),
}


def test_residual_writes_the_targets_distribution():
    assert fit(WORLDS["plain"], "residual", MANY) > FITS


@pytest.mark.parametrize("name", ["filters", "penalties", "reduced", "certain"])
def test_residual_does_so_through_filters_and_with_other_drafts(name):
    assert fit(WORLDS[name], "residual", SOME) > FITS


@pytest.mark.parametrize("name", WORLDS)
def test_typical_acceptance_writes_the_text_of_plain_decoding(name):
    world = WORLDS[name]
    for seed in range(500):
        text = world.write("typical-acceptance", seed, widths=(0,))
        assert world.write("typical-acceptance", seed) == text
        assert world.write("typical-acceptance", seed, widths=(1, 0, 2)) == text


def test_plain_decoding_and_so_typical_acceptance_writes_the_targets_distribution():
    assert fit(WORLDS["plain"], "typical-acceptance", MANY, widths=(0,)) > FITS
    assert fit(WORLDS["penalties"], "typical-acceptance", SOME) > FITS


def test_seeds_of_their_own_do_as_well_as_noise_in_bulk():
    assert fit(WORLDS["plain"], "residual", FEW, is_bulk=False) > FITS
    assert fit(WORLDS["plain"], "typical-acceptance", FEW, is_bulk=False) > FITS


def test_a_width_that_changes_from_step_to_step_changes_no_distribution():
    assert fit(WORLDS["plain"], "residual", SOME, widths=(1, 0, 3)) > FITS


def test_logit_comparison_is_lossy():
    assert fit(WORLDS["plain"], "logit-comparison", FEW) < 1e-12


def test_a_draw_from_p_after_a_refusal_is_no_residual(monkeypatch):
    monkeypatch.setattr(speculative, "residual", lambda p, q: p)
    assert fit(WORLDS["plain"], "residual", FEW) < 1e-12
    assert fit(WORLDS["certain"], "residual", FEW) < 1e-12


def test_the_drafts_own_noise_again_is_no_residual_draw(monkeypatch):
    """It is what chose the token that was refused."""
    monkeypatch.setattr(speculative, "RESIDUAL", speculative.DRAFT)
    assert fit(WORLDS["plain"], "residual", SOME) < 1e-12


def test_medusas_typical_rule_is_lossy(monkeypatch):
    """Accepted when p(x) > min(eps, delta exp(-entropy)); Cai et al. 2024, arXiv:2401.10774."""

    def medusa(rule, p: Kept, q: Kept, drafted: int, seed: int, position: int) -> int:
        probs = p.probs[p.probs > 0]
        bar = min(0.3, 0.6 * np.exp((probs * np.log(probs)).sum()))
        is_typical = p.of(drafted) > bar
        return drafted if is_typical else p.draw(seed, position, TARGET)

    monkeypatch.setattr(speculative, "_token_at", medusa)
    assert fit(WORLDS["plain"], "typical-acceptance", FEW) < 1e-12


def test_another_q_than_the_one_drawn_from_is_lossy():
    world = World()
    drafted_from = world.q

    def flat(text: Text, drafted: Text) -> Kept:
        q = drafted_from(text, drafted)
        return Kept(q.ids, np.full(VOCAB, 1 / VOCAB))

    def draft(rule: Rule, text: Text, seed: int, width: int) -> Draft:
        honest = World.draft(world, rule, text, seed, width)
        return Draft(honest.tokens, tuple(flat(text, honest.tokens[:i]) for i in range(width)))

    world.draft = draft  # type: ignore[method-assign]
    assert fit(world, "residual", FEW) < 1e-12


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", WORLDS)
def test_verify_judges_the_distributions_of_its_rows(rule, name):
    world, counts = WORLDS[name], Counter[int]()
    for seed in range(100):
        draft = world.draft(rule, (), seed, WIDTH)
        verdict = world.verified(rule, (), draft, seed)
        counts[verdict.accepted] += 1
        assert len(verdict.tokens) == verdict.accepted + 1
        assert verdict.tokens[: verdict.accepted] == draft.tokens[: verdict.accepted]
        if rule != "greedy":
            assert verdict == world.judged(rule, (), draft, seed)
    if rule == "residual" and not world.is_certain:
        assert all(counts[accepted] for accepted in range(WIDTH + 1))


def accepted_share(world: World, rule: Rule, drafted_for: Rule) -> float:
    accepted = 0
    for seed in range(FEW):
        draft = world.draft(drafted_for, (), seed, 1)
        accepted += world.judged(rule, (), draft, seed).accepted
    return accepted / FEW


@pytest.mark.parametrize("name", ["plain", "filters", "penalties"])
def test_each_rule_accepts_as_often_as_it_should(name):
    world = WORLDS[name]
    p, q = (np.array([one.of(i) for i in range(VOCAB)]) for one in (world.p(()), world.q((), ())))
    both = np.flatnonzero((p > 0) & (q > 0))
    same = sum(1 / np.maximum(p / p[i], q / q[i]).sum() for i in both)
    rates: list[tuple[Rule, Rule, float]] = [
        ("residual", "residual", np.minimum(p, q).sum()),  # no rule can exceed it
        ("typical-acceptance", "typical-acceptance", same),  # one noise for both draws
        ("typical-acceptance", "residual", (p * q).sum()),  # a noise for each
    ]
    for rule, drafted_for, rate in rates:
        assert abs(accepted_share(world, rule, drafted_for) - rate) < 0.025
    assert same > (p * q).sum() + 0.1


def test_a_draft_for_the_greedy_rule_is_the_likeliest():
    q = np.array([0.2, 0.5, 0.3])
    assert {draft_token(Kept(None, q), "greedy", seed, 0) for seed in range(20)} == {1}
    assert draft_token(Kept(np.array([4, 7, 9]), q), "greedy", 3, 0) == 7


def test_the_residual_is_what_p_has_more_than_q():
    p = Kept(None, np.array([0.5, 0.3, 0.2, 0.0]))
    shapes: list[Kept] = [
        Kept(None, np.array([0.2, 0.7, 0.0, 0.1])),
        Kept(np.array([0, 1, 3]), np.array([0.2, 0.7, 0.1])),
    ]
    for q in shapes:
        assert np.allclose(residual(p, q).probs, [0.6, 0, 0.4, 0])
        few = residual(Kept(np.array([0, 1, 2]), p.probs[:3]), q)
        assert few.ids is not None and few.ids.tolist() == [0, 1, 2]
        assert np.allclose(few.probs, [0.6, 0, 0.4])


def test_a_residual_that_rounding_emptied_is_p():
    p = Kept(None, np.array([0.5, 0.5]))
    assert residual(p, p) is p


# Properties, on logits of their own: any draft, any setting.

SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    top_k=st.sampled_from([0, 1, 3]),
    top_p=st.sampled_from([0.3, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1]),
    repetition_penalty=st.sampled_from([1.0, 1.3]),
    frequency_penalty=st.sampled_from([0.0, 0.7]),
    presence_penalty=st.sampled_from([0.0, -0.5]),
)
DRAFTS = st.lists(st.lists(st.integers(0, VOCAB - 1), max_size=4).map(tuple), min_size=12)


def written(world: World, rule: Rule, seed: int, drafts: list[Text]) -> Text:
    """Twelve tokens by `verify`, with the drafts given, or with none."""
    text: Text = ()
    for step in range(12):
        draft = Draft(drafts[step]) if drafts else NOTHING
        text += world.verified(rule, text, draft, seed).tokens
    return text[:12]


@settings(max_examples=60, deadline=None)
@given(SAMPLINGS, st.integers(0, 2**64 - 1), DRAFTS)
def test_typical_acceptance_writes_the_same_text_whatever_is_drafted(sampling, seed, drafts):
    write = partial(written, World(sampling), "typical-acceptance", seed)
    assert write(drafts) == write([])


@settings(max_examples=60, deadline=None)
@given(SAMPLINGS, st.integers(0, 2**64 - 1), DRAFTS)
def test_greedy_verification_is_stepwise_greedy(sampling, seed, drafts):
    world = World(sampling)
    text: Text = ()
    for _ in range(12):
        row = penalised(world.rows(world.target_logits, text, ()), world.seen(text), (), sampling)
        text += (int(row[0].argmax()),)
    assert written(world, "greedy", seed, drafts) == text


@settings(max_examples=60, deadline=None)
@given(SAMPLINGS, st.integers(0, 2**64 - 1), DRAFTS, st.sampled_from(RULES))
def test_temperature_0_is_verified_greedily_by_every_rule(sampling, seed, drafts, rule):
    cold = World(Sampling(temperature=0, repetition_penalty=sampling.repetition_penalty))
    assert written(cold, rule, seed, drafts) == written(cold, "greedy", 0, [])


def test_no_row_is_looked_at_behind_a_refusal():
    asked: list[int] = []

    def target(i: int) -> Kept:
        asked.append(i)
        return Kept(np.array([i]), np.ones(1))

    assert judge("residual", target, Draft((0, 5, 2)), 1, 0) == Verdict(1, (0, 1))
    assert asked == [0, 1]


def test_verifying_leaves_the_count_of_tokens_as_it_was():
    world, seen = WORLDS["penalties"], Seen(PROMPT)
    before = [part.tolist() for part in seen.times()]
    draft = Draft((1, 1, 4))
    verify(
        "residual", world.rows(world.target_logits, (), draft.tokens), draft, PENALTIES, 1, 0, seen
    )
    assert [part.tolist() for part in seen.times()] == before


def refused(match: str, call: Callable[[], object], error: type[Exception] = ValueError) -> None:
    with pytest.raises(error, match=match):
        call()


def test_what_cannot_be_verified_is_refused():
    rows, seen = torch.zeros(2, VOCAB), Seen()
    one = Draft((1,))
    refused("rule must be one of greedy", lambda: verify("best", rows, one, Sampling(), 1, 0, seen))  # type: ignore[arg-type]
    refused("need one row more", lambda: verify("residual", rows, NOTHING, Sampling(), 1, 0, seen))
    refused("need as many q", lambda: Draft((1, 2), q=(WORLDS["plain"].p(()),)))
    impossible = Draft((1,), q=(Kept(np.array([2]), np.ones(1)),))
    refused("not drawn", lambda: verify("residual", rows, impossible, Sampling(), 1, 0, seen))
    nan = rows * float("nan")
    refused("NaN", lambda: verify("residual", nan, one, Sampling(), 1, 0, seen), NotFinite)
