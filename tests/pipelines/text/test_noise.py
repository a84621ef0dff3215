"""The noise is uniform and independent along and across seeds, positions and purposes."""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
import pytest

from pipelines.text import noise
from pipelines.text.noise import ACCEPTANCE, DRAFT, RESIDUAL, TARGET, exponentials, uniform
from tests.pipelines.text.chi_squared import FITS, p_value

COUNT = 20_000
PINNED = [
    0.28176129772258496,
    0.6524484863740322,
    0.8628561488610587,
    0.3411743639793051,
    0.3227335599937018,
]
PINNED_TOKENS = [0.771194318272424, 1.024426729646285, 5.575331584593205]
Hash = Callable[..., float]


def even(values: Iterable[float], bins: int = 256) -> float:
    """p of all bins alike."""
    counts = Counter(int(value * bins) for value in values)
    return p_value([counts[i] for i in range(bins)], [1 / bins] * bins)


def even_pairs(pairs: Iterable[tuple[float, float]]) -> float:
    return even((int(a * 16) + b) / 16 for a, b in pairs)


def along_positions(hash_: Hash) -> float:
    return even_pairs((hash_(7, i), hash_(7, i + 1)) for i in range(COUNT))


def along_seeds(hash_: Hash) -> float:
    return even_pairs((hash_(i, 3), hash_(i + 1, 3)) for i in range(COUNT))


def test_the_numbers_are_the_same_on_every_machine():
    """Pinned: a change here changes the text of every seed that anyone kept."""
    places = [(0, 0, TARGET), (0, 1, TARGET), (1, 0, TARGET), (42, 7, RESIDUAL), (-1, 0, DRAFT)]
    assert [uniform(*place) for place in places] == PINNED


def test_a_number_is_from_0_to_below_1():
    values = [uniform(seed, seed % 5) for seed in range(COUNT)]
    assert min(values) >= 0 and max(values) < 1
    assert all((value * 2**53).is_integer() for value in values)


def test_the_edges_of_the_hash_are_0_and_just_below_1(monkeypatch):
    for state, value in ((0, 0.0), (2**64 - 1, 1 - 2**-53)):
        monkeypatch.setattr(noise, "_mixed", lambda _, state=state: state)
        assert uniform(5, 5) == value


def test_seeds_of_any_size_are_taken():
    seeds = [-(2**63), -1, 0, 1, 2**63, 2**64 - 1]
    assert len({uniform(seed, 0) for seed in seeds}) == 4  # the ends share their low 64 bits
    assert uniform(2**64 + 3, 0) == uniform(3, 0)


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**63])
def test_positions_are_even(seed):
    assert even(uniform(seed, i) for i in range(COUNT)) > FITS


@pytest.mark.parametrize("position", [0, 1, 999])
@pytest.mark.parametrize("purpose", [TARGET, DRAFT])
def test_seeds_are_even(position, purpose):
    assert even(uniform(i, position, purpose) for i in range(COUNT)) > FITS


def test_neighbours_are_independent():
    assert along_positions(uniform) > FITS
    assert along_seeds(uniform) > FITS
    assert even_pairs((uniform(i, 4), uniform(i + 1, 3)) for i in range(COUNT)) > FITS


@pytest.mark.parametrize("other", [ACCEPTANCE, RESIDUAL, DRAFT])
def test_purposes_are_independent(other):
    assert even_pairs((uniform(i, 2), uniform(i, 2, other)) for i in range(COUNT)) > FITS
    assert even_pairs((uniform(9, i), uniform(9, i, other)) for i in range(COUNT)) > FITS
    assert even_pairs((uniform(9, i + 1), uniform(9, i, other)) for i in range(COUNT)) > FITS


def uniforms(seed: int, position: int, purpose: int = TARGET) -> np.ndarray:
    """Of the first COUNT tokens: exp(-x) of an exponential x is uniform."""
    return np.exp(-exponentials(seed, position, purpose, np.arange(COUNT)))


def test_the_numbers_of_tokens_are_exponential_and_independent():
    here = uniforms(3, 5)
    assert even(here) > FITS
    assert even_pairs(pairwise(here)) > FITS
    for other in (uniforms(4, 5), uniforms(3, 6), uniforms(3, 5, DRAFT)):
        assert even_pairs(zip(here, other, strict=True)) > FITS


def test_one_token_is_even_over_seeds_and_positions():
    token = np.array([17])
    assert even(np.exp(-exponentials(i, 5, TARGET, token)[0]) for i in range(COUNT // 4)) > FITS
    assert even(np.exp(-exponentials(3, i, TARGET, token)[0]) for i in range(COUNT // 4)) > FITS


def test_the_number_of_a_token_hangs_on_its_id_alone():
    ids = np.array([3, 17, 49_151])
    everyone = exponentials(9, 1, DRAFT, np.arange(49_152))
    assert np.array_equal(exponentials(9, 1, DRAFT, ids), everyone[ids])
    assert everyone.min() > 0 and np.isfinite(everyone).all()


def test_the_numbers_of_tokens_are_pinned():
    numbers = exponentials(42, 7, TARGET, np.array([0, 1, 49_151]))
    assert np.allclose(numbers, PINNED_TOKENS, rtol=1e-12)


def test_a_hash_that_only_steps_fails():
    """Even along positions, as any irrational rotation, and so regular that pairs show it."""

    def stepping(seed: int, position: int) -> float:
        return ((seed + 1) * 0.6180339887 + position * 0.7548776662) % 1

    assert along_positions(stepping) < FITS
    assert along_seeds(stepping) < FITS
