"""Which settings of which step cache take part in the comparison."""

from functools import partial
from itertools import product

from benchmarks.peers import CacheDit, FirstBlockCache, TaylorSeer
from benchmarks.tuning import Contestant, Family
from benchmarks.ways import Ours, Way
from pipelines.cache_rules import resolve

# Order, warm-up and cap of ours. A wider search on the tuning prompts of an earlier checkpoint had
# order 1 ahead at every share; the others are here to be seen.
OURS = ((0, 3, 5), (1, 6, 2), (1, 4, 3), (1, 3, 5), (1, 2, 8), (2, 4, 3))
# Warm-up and cap of cache-dit as its documentation and the servers that build it in have them.
CACHE_DIT = ((4, 3), (4, -1), (8, -1))


def our_settings() -> Contestant[Way]:
    """Those that the first block's residual decides, and schedules, which ask no block."""
    schedules = tuple(
        Ours(resolve("taylorseer", warmup_steps=warmup, cache_interval=n))
        for warmup, n in product((2, 3, 4, 5, 6), (2, 3, 4, 5, 6))
    )
    return Contestant("ours", tuple(Family(partial(_ours, *each)) for each in OURS), schedules)


def peers() -> list[Contestant[Way]]:
    # Of all steps attention alone is spared: interval 28 computes as little as it can.
    taylorseer = [TaylorSeer(n) for n in (5, 28)]
    lite = [TaylorSeer(n, warmup, is_lite=True) for warmup, n in product((3, 6), (2, 3, 4, 5))]
    release_notes = [
        Ours(resolve("taylorseer", warmup_steps=warmup, cache_interval=n))
        for warmup, n in product((3, 5), (2, 4, 8))
    ]
    return [
        Contestant("diffusers FirstBlockCache", (Family(FirstBlockCache),)),
        Contestant("diffusers TaylorSeer", fixed=tuple(taylorseer)),
        Contestant("diffusers TaylorSeer lite", fixed=tuple(lite)),
        Contestant("cache-dit", tuple(Family(partial(_cache_dit, *each)) for each in CACHE_DIT)),
        Contestant("the release notes' schedule", fixed=tuple(release_notes)),
    ]


def _ours(order: int, warmup: int, skips: int, threshold: float) -> Way:
    rule = resolve(
        "balanced",
        residual_threshold=threshold,
        taylor_order=order,
        warmup_steps=warmup,
        max_skips=skips,
    )
    return Ours(rule)


def _cache_dit(warmup: int, skips: int, threshold: float) -> Way:
    return CacheDit(threshold, warmup, skips)
