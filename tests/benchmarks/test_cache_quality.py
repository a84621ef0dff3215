"""Claims fail where ours is below a peer, computes more, or has no setting."""

import pytest

from benchmarks.cache_quality import BALANCED, Duel, claims_of, requests_of
from benchmarks.fidelity import Score
from benchmarks.peers import FirstBlockCache
from benchmarks.ways import Ours
from pipelines.cache_rules import resolve
from pipelines.specs import EMBEDDED, find_spec

PEER, OURS = FirstBlockCache(0.1), Ours(resolve("balanced", residual_threshold=0.1))
FINE = {
    BALANCED: Score(0.44, 0.4, 41.0, 37.0, 0.998),
    PEER: Score(0.45, 0.4, 30.0, 25.0, 0.98),
    OURS: Score(0.44, 0.4, 42.0, 36.0, 0.998),
}


def failing(scores: dict, ours=OURS, speed: float = 0.5) -> list[str]:
    duels = [Duel("peer", 0.45, PEER, ours), Duel("other", 0.45, None, None)]
    return [claim.name for claim in claims_of(duels, scores.__getitem__, speed) if not claim.holds]


def test_all_hold_where_all_is_fine():
    assert failing(FINE) == []


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({OURS: Score(0.44, 0.4, 29.0, 25.0, 0.97)}, "peer at 45%"),
        ({OURS: Score(0.48, 0.4, 42.0, 36.0, 0.998)}, "share of the operations above"),
        ({BALANCED: Score(0.51, 0.4, 41.0, 37.0, 0.998)}, "balanced: share"),
        ({BALANCED: Score(0.44, 0.4, 29.9, 37.0, 0.998)}, "PSNR below 30"),
        ({BALANCED: Score(0.44, 0.4, 41.0, 37.0, 0.94)}, "SSIM"),
    ],
)
def test_one_fails_where_one_thing_is_wrong(changed, word):
    (name,) = failing(FINE | changed)
    assert word in name


def test_a_target_that_ours_cannot_reach_is_lost():
    assert failing(FINE, ours=None) == ["peer at 45%: median PSNR above ours by, dB"]


def test_balanced_must_be_faster():
    assert failing(FINE, speed=0.7) == ["balanced: time over off's"]


def test_tuning_and_scoring_prompts_differ_and_have_all_axes():
    spec = find_spec(EMBEDDED)
    tuning, scoring = requests_of(spec, 2001, 1, 28), requests_of(spec, 1001, 4, 28)
    assert (len(tuning), len(scoring)) == (8, 32)
    prompts = [{each.prompt for each in requests} for requests in (tuning, scoring)]
    assert len(prompts[1]) == 32 and not prompts[0] & prompts[1]
