"""When a step is computed, and what the first block says of the others."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pipelines import schedule
from pipelines.cache_rules import OFF, PRESETS, CacheRule, resolve
from pipelines.first_block import SequenceCache

RULE = resolve("balanced", taylor_order=1, warmup_steps=1, max_skips=3)
SIGMAS = schedule.sigmas(28, 4096, {"use_dynamic_shifting": True, "max_shift": 1.15})


def tensor(seed: int, *shape: int) -> torch.Tensor:
    return torch.tensor(
        np.random.default_rng(seed).normal(size=shape or (4, 6)), dtype=torch.float32
    )


def after_computed_steps(rule: CacheRule, steps: tuple[int, ...], seed: int = 0) -> SequenceCache:
    """Random residuals and velocities at these steps of 28, those between them predicted."""
    cache = SequenceCache(rule, 28)
    for step in range(steps[-1] + 1):
        if step in steps:
            values = tensor(seed + step), tensor(seed + step + 100, 4, 2)
            cache = cache.after_computed(SIGMAS[step], *values)
        else:
            cache = cache.after_predicted()
    return cache


def by_hand(seed: int, steps: tuple[int, ...], wanted: int, order: int) -> tuple[np.ndarray, ...]:
    """Last residual, and the way to the foreseen one by the polynomial through the last points."""
    steps = steps[-order - 1 :]
    points = np.stack([tensor(seed + step).double().numpy().ravel() for step in steps])
    through = np.polyfit([SIGMAS[step] for step in steps], points, len(steps) - 1)
    foreseen = np.array([np.polyval(one, SIGMAS[wanted]) for one in through.T])
    return points[-1], foreseen - points[-1]


# The outlook


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("steps", [(0,), (0, 1), (0, 1, 4), (0, 3, 4, 8)])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_reach_and_miss_equal_those_by_hand(order, steps, seed):
    rule, wanted = replace(RULE, taylor_order=order), steps[-1] + 2
    residual = tensor(seed + 50)
    ours = after_computed_steps(rule, steps, seed).outlook(SIGMAS[wanted], residual)
    last, way = by_hand(seed, steps, wanted, order)
    gone = residual.double().numpy().ravel() - last
    reach = 0.0 if len(steps) == 1 or order == 0 else np.clip(way @ gone / (way @ way), 0, 1)
    assert float(ours.reach) == pytest.approx(reach, abs=1e-5)
    miss = np.abs(gone - reach * way).mean() / np.abs(last).mean()
    assert float(ours.miss) == pytest.approx(miss, rel=1e-5)


def test_without_an_order_the_miss_is_the_change_since_the_last_computed_step():
    """First-block caching: not since the step before, which may have been predicted."""
    cache = after_computed_steps(replace(RULE, taylor_order=0), (0, 1, 2)).after_predicted()
    last, now = tensor(2), tensor(9)
    change = (now - last).abs().mean() / last.abs().mean()
    assert float(cache.outlook(SIGMAS[4], now).miss) == pytest.approx(float(change), rel=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_velocity_goes_as_far_as_the_residual_did(share):
    cache = after_computed_steps(RULE, (0, 1, 4))
    slopes = [(tensor(4, 4, 6) - tensor(1)) / (SIGMAS[4] - SIGMAS[1])]
    slopes += [(tensor(104, 4, 2) - tensor(101, 4, 2)) / (SIGMAS[4] - SIGMAS[1])]
    gap = SIGMAS[6] - SIGMAS[4]
    outlook = cache.outlook(SIGMAS[6], tensor(4) + share * gap * slopes[0])
    assert float(outlook.reach) == pytest.approx(share, abs=1e-4)
    assert float(outlook.miss) < 1e-5
    foreseen = cache.foreseen_velocity(SIGMAS[6], outlook.reach)
    assert torch.allclose(foreseen, tensor(104, 4, 2) + share * gap * slopes[1], atol=1e-4)


@pytest.mark.parametrize("share, reach", [(-0.5, 0.0), (1.5, 1.0)])
def test_what_goes_back_or_beyond_is_a_miss(share, reach):
    cache = after_computed_steps(RULE, (0, 1))
    way = (tensor(1) - tensor(0)) / (SIGMAS[1] - SIGMAS[0]) * (SIGMAS[2] - SIGMAS[1])
    outlook = cache.outlook(SIGMAS[2], tensor(1) + share * way)
    assert float(outlook.reach) == reach
    left = (0.5 * way).abs().mean() / tensor(1).abs().mean()
    assert float(outlook.miss) == pytest.approx(float(left), rel=1e-4)


@pytest.mark.parametrize("residual", [torch.full((4, 6), torch.nan), torch.full((4, 6), torch.inf)])
def test_a_residual_that_is_not_finite_is_no_small_miss(residual):
    miss = after_computed_steps(RULE, (0, 1)).outlook(SIGMAS[2], residual).miss
    assert not float(miss) < 1.0


# Which steps are computed


def computed_steps(rule: CacheRule, steps: int, miss: float = 0.0) -> list[int]:
    """Where each residual that is asked for misses by `miss`."""
    cache, computed = SequenceCache(rule, steps), []
    for step in range(steps):
        is_missed = cache.asks_first_block and not miss < rule.residual_threshold
        if cache.must_compute or is_missed:
            computed.append(step)
            cache = cache.after_computed(SIGMAS[step], tensor(step), tensor(step, 4, 2))
        else:
            cache = cache.after_predicted()
    assert cache.done == steps and cache.predicted == steps - len(computed)
    return computed


@pytest.mark.parametrize(
    "warmup, interval, expected",
    [
        (9, 5, [*range(9), 13, 18, 23, 27]),
        (3, 5, [0, 1, 2, 7, 12, 17, 22, 27]),  # the first after a whole interval, not 3 or 4
        (1, 5, [0, 5, 10, 15, 20, 25, 27]),
        (0, 5, [0, 5, 10, 15, 20, 25, 27]),
        (2, 2, [0, *range(1, 28, 2)]),
        (0, 27, [0, 27]),
        (0, 1, [*range(28)]),
    ],
)
def test_an_interval_counts_from_the_warm_up(warmup, interval, expected):
    rule = resolve("taylorseer", warmup_steps=warmup, cache_interval=interval)
    assert computed_steps(rule, 28) == expected


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({"warmup_steps": 4, "max_skips": 3}, [0, 1, 2, 3, 7, 11, 15, 19, 23, 27]),
        ({"warmup_steps": 0, "max_skips": 100}, [0, 27]),
        ({"warmup_steps": 27, "max_skips": 3}, [*range(28)]),
        ({"warmup_steps": 100, "max_skips": 3}, [*range(28)]),
        ({"max_skips": 0}, [*range(28)]),
        ({"residual_threshold": 0}, [*range(28)]),
    ],
)
def test_a_residual_that_never_misses_leaves_warm_up_cap_and_ends(changes, expected):
    assert computed_steps(resolve("balanced", **changes), 28) == expected


def test_a_miss_at_the_threshold_is_computed():
    rule = resolve("balanced", residual_threshold=0.25, warmup_steps=0)
    assert computed_steps(rule, 8, miss=0.25) == [*range(8)]
    assert computed_steps(rule, 8, miss=0.2499) == [0, 4, 7]


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_short_schedules_compute_their_ends(name, steps):
    assert {0, steps - 1} <= set(computed_steps(PRESETS[name], steps))


# What is kept


@pytest.mark.parametrize("order", [0, 1, 2])
def test_what_is_kept_goes_with_the_last_step(order):
    rule = resolve("balanced", taylor_order=order, warmup_steps=0)
    cache = SequenceCache(rule, 4)
    for step in range(3):
        cache = cache.after_computed(SIGMAS[step], tensor(step), tensor(step, 4, 2))
    assert cache.residuals is not None and cache.velocities is not None
    assert len(cache.residuals.differences) == len(cache.velocities.differences) == order + 1
    cache = cache.after_computed(SIGMAS[3], tensor(3), tensor(3, 4, 2))
    assert cache.residuals is None and cache.velocities is None


def test_an_interval_keeps_no_residuals_and_goes_the_whole_way():
    rule = resolve("taylorseer", warmup_steps=2, cache_interval=3)
    cache = SequenceCache(rule, 28)
    for step in range(2):
        cache = cache.after_computed(SIGMAS[step], None, tensor(step, 4, 2))
    assert cache.residuals is None and not cache.asks_first_block
    slope = (tensor(1, 4, 2) - tensor(0, 4, 2)) / (SIGMAS[1] - SIGMAS[0])
    line = tensor(1, 4, 2) + (SIGMAS[2] - SIGMAS[1]) * slope
    assert torch.allclose(cache.foreseen_velocity(SIGMAS[2]), line, atol=1e-5)


@pytest.mark.parametrize(
    "rule", [OFF, resolve("balanced", warmup_steps=3), resolve("fast", max_skips=0)]
)
def test_a_rule_that_predicts_nothing_keeps_nothing(rule):
    cache = SequenceCache(rule, 4).after_computed(1.0, None, tensor(0, 4, 2))
    assert cache.is_idle and cache.must_compute
    assert cache.residuals is None and cache.velocities is None


def test_what_is_kept_does_not_change_with_the_tensors_that_it_came_from():
    residual, velocity = tensor(0), tensor(0, 4, 2)
    cache = SequenceCache(RULE, 28).after_computed(1.0, residual, velocity)
    residual.zero_()
    velocity.zero_()
    assert cache.residuals is not None
    assert torch.equal(cache.residuals.differences[0], tensor(0))
    assert torch.equal(cache.foreseen_velocity(0.9, torch.tensor(1.0)), tensor(0, 4, 2))
