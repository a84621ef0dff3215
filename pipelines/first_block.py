"""Whether a step may skip the blocks behind the first one, and which velocity it takes then.

The first block runs in every step that it decides. What it adds to the picture stream, its
residual, is foreseen by the same extrapolation as the velocity. What it really adds then tells two
things: how far along the foreseen way it went, the reach, which the velocity follows; and how far
beside it, the miss. Where the miss is large the way is no guide, and the other blocks are computed.

With order 0 there is no way: the last velocity is used again, and the miss is the change since the
last computed step. That is first-block caching (ParaAttention; diffusers' `FirstBlockCache`).
That a shallow layer steers what is reused of the deep ones is DiCache's idea
(https://arxiv.org/abs/2508.17356). With an interval the schedule is TaylorSeer's
(https://arxiv.org/abs/2503.06923): it asks no block, and the velocity goes the whole foreseen way.

Knows no model: a sequence is one picture stream `[tokens, width]`, with or without its prompt.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from pipelines.cache_rules import CacheRule, idle_value
from pipelines.taylor import Factors, extrapolated, updated

TINY = torch.finfo(torch.float32).tiny


class Outlook(NamedTuple):
    """What the first block of a step says of the others; both 0-d, on the device."""

    reach: Tensor  # share of the foreseen way that it went, 0 to 1
    miss: Tensor  # mean |where it is - where the reach leads| / mean |last residual|


@dataclass(frozen=True, slots=True)
class SequenceCache:
    """What one sequence remembers of its computed steps, and how many it predicted.

    Frozen: a step makes the next one, and a step that fails leaves everything as it was.
    """

    rule: CacheRule
    steps: int  # that will run
    done: int = 0
    predicted: int = 0  # of those done
    skips: int = 0  # predicted since the last computed one
    residuals: Factors | None = None  # of the first block, [tokens, width]; where it is asked
    velocities: Factors | None = None  # [tokens, packed]

    @property
    def is_idle(self) -> bool:
        """Computes every step, and therefore remembers nothing."""
        return idle_value(self.rule, self.steps) is not None

    @property
    def asks_first_block(self) -> bool:
        """Whether residuals are read; with an interval `max_skips` alone decides."""
        return not self.is_idle and self.rule.cache_interval is None

    @property
    def must_compute(self) -> bool:
        """Whatever the residual: at either end, in the warm-up, after enough skips."""
        is_at_an_end = self.velocities is None or self.done == self.steps - 1
        is_warming_up = self.done < self.rule.warmup_steps
        return is_at_an_end or is_warming_up or self.skips >= self.rule.max_skips

    def outlook(self, sigma: float, residual: Tensor) -> Outlook:
        """`residual` is what the first block adds now, `[tokens, width]` in float32."""
        assert self.residuals is not None
        last = self.residuals.differences[0]
        way, gone = extrapolated(self.residuals, sigma) - last, residual - last
        # Least squares, and 0 where there is no way.
        share = (way * gone).sum() / way.square().sum().clamp_min(TINY)
        reach = share.clamp(0.0, 1.0)
        return Outlook(reach, (gone - reach * way).abs().mean() / last.abs().mean())

    def foreseen_velocity(self, sigma: float, reach: Tensor | None = None) -> Tensor:
        """`[tokens, packed]`; the whole way where no block was asked for its reach."""
        assert self.velocities is not None
        foreseen = extrapolated(self.velocities, sigma)
        if reach is None:
            return foreseen
        last = self.velocities.differences[0]
        return last + reach * (foreseen - last)

    def after_computed(self, sigma: float, residual: Tensor | None, velocity: Tensor) -> Self:
        """Keeps copies, float32; nothing behind the last step, where the row waits for its decode.

        `residual` may be None where the first block is not asked.
        """
        after = replace(self, done=self.done + 1, skips=0)
        if self.is_idle or after.done == self.steps:
            return replace(after, residuals=None, velocities=None)
        order = self.rule.taylor_order
        velocities = updated(self.velocities, sigma, velocity.clone(), order)
        if not self.asks_first_block:
            return replace(after, velocities=velocities)
        assert residual is not None
        residuals = updated(self.residuals, sigma, residual.clone(), order)
        return replace(after, residuals=residuals, velocities=velocities)

    def after_predicted(self) -> Self:
        done, predicted, skips = self.done + 1, self.predicted + 1, self.skips + 1
        return replace(self, done=done, predicted=predicted, skips=skips)
