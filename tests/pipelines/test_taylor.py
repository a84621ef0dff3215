"""The extrapolation equals, in float64, the polynomial through the computed points."""

import numpy as np
import pytest
import torch

from pipelines import schedule
from pipelines.taylor import Factors, extrapolated, updated

# Uneven, as a shifted schedule of 28 steps with some skipped: gaps of one, three, one and two.
LEVELS = schedule.sigmas(28, 4096, {"use_dynamic_shifting": True, "max_shift": 1.15})
COMPUTED = [LEVELS[step] for step in (0, 1, 4, 5, 7, 12)]
WANTED = [LEVELS[step] for step in (13, 15, 20, 27)]
ORDERS = (0, 1, 2)


def polynomials(degree: int) -> np.ndarray:
    """Coefficients of 6 polynomials, [degree + 1, 6], highest first."""
    return np.random.default_rng(degree).normal(size=(degree + 1, 6))


def values(coefficients: np.ndarray, sigma: float) -> torch.Tensor:
    return torch.tensor([np.polyval(one, sigma) for one in coefficients.T], dtype=torch.float32)


def factors_of(points: dict[float, torch.Tensor], order: int) -> Factors:
    factors = None
    for sigma, value in points.items():
        factors = updated(factors, sigma, value, order)
    assert factors is not None
    return factors


def error(coefficients: np.ndarray, order: int, levels: list[float] = COMPUTED) -> float:
    """Worst over the wanted levels, absolute."""
    factors = factors_of({sigma: values(coefficients, sigma) for sigma in levels}, order)
    return max(
        float((extrapolated(factors, sigma) - values(coefficients, sigma)).abs().max())
        for sigma in WANTED
    )


@pytest.mark.parametrize("order", ORDERS)
def test_a_polynomial_of_the_order_is_foreseen_exactly(order):
    assert error(polynomials(order), order) < 1e-4


@pytest.mark.parametrize("order", ORDERS)
def test_a_polynomial_of_a_higher_degree_is_not(order):
    assert error(polynomials(order + 1), order) > 1e-2


@pytest.mark.parametrize("order", ORDERS)
def test_any_values_are_foreseen_as_by_the_polynomial_through_the_last_points(order):
    noise = np.random.default_rng(7).normal(size=(len(COMPUTED), 6))
    points = {s: torch.tensor(y, dtype=torch.float32) for s, y in zip(COMPUTED, noise, strict=True)}
    last, ours = order + 1, factors_of(points, order)
    through = np.polyfit(COMPUTED[-last:], noise[-last:], order)  # [order + 1, 6]
    for sigma in WANTED:
        theirs = np.array([np.polyval(one, sigma) for one in through.T])
        error = np.abs(extrapolated(ours, sigma).double().numpy() - theirs).max()
        assert error < 1e-5 * np.abs(theirs).max()


@pytest.mark.parametrize("points", [1, 2])
def test_fewer_points_than_the_order_needs_give_a_lower_order(points):
    coefficients = polynomials(points - 1)
    known = {sigma: values(coefficients, sigma) for sigma in COMPUTED[:points]}
    factors = factors_of(known, order=2)
    assert len(factors.differences) == points
    foreseen = extrapolated(factors, COMPUTED[points])
    assert torch.allclose(foreseen, values(coefficients, COMPUTED[points]), atol=1e-5)


@pytest.mark.parametrize("order", ORDERS)
def test_no_more_is_kept_than_the_order_needs(order):
    noise = {sigma: torch.randn(3) for sigma in COMPUTED}
    factors = factors_of(noise, order)
    assert len(factors.sigmas) == len(factors.differences) == order + 1


def test_an_update_leaves_the_factors_that_it_came_from():
    """A step that fails must be able to run again from them."""
    before = factors_of({s: torch.randn(3) for s in COMPUTED[:3]}, order=2)
    sigmas, copies = before.sigmas, [x.clone() for x in before.differences]
    updated(before, COMPUTED[3], torch.randn(3), 2)
    assert before.sigmas == sigmas
    assert all(torch.equal(a, b) for a, b in zip(before.differences, copies, strict=True))


def test_dividing_by_one_gap_is_wrong_where_gaps_differ(monkeypatch):
    """As TaylorSeer's finite differences do, each over the last gap alone."""

    def by_last_gap(factors, sigma, value, order):
        if factors is None:
            return Factors((sigma,), (value,))
        differences, gap = [value], sigma - factors.sigmas[0]
        for i, old in enumerate(factors.differences[:order], start=1):
            differences.append((differences[-1] - old) / (i * gap))
        return Factors((sigma, *factors.sigmas)[: len(differences)], tuple(differences))

    parabolas, even = polynomials(2), [1.0, 0.9, 0.8, 0.7]
    assert error(parabolas, 2) < 1e-4
    monkeypatch.setitem(globals(), "updated", by_last_gap)
    assert error(parabolas, 2, even) < 1e-4
    assert error(parabolas, 2) > 0.1
