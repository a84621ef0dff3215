"""A quantity that changes with the noise level, foreseen from where it was computed.

TaylorSeer (https://arxiv.org/abs/2503.06923), with the polynomial through the last values in
Newton's form: its coefficients are divided differences, so the levels may lie unevenly, as those of
a shifted schedule and of skipped steps do. TaylorSeer's own differences suppose even gaps.
"""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Factors:
    """Computed values of one quantity, newest first.

    Entry i of `differences` is f[s0, …, si] over the first i + 1 of `sigmas`, float32.
    """

    sigmas: tuple[float, ...]
    differences: tuple[Tensor, ...]


def updated(factors: Factors | None, sigma: float, value: Tensor, order: int) -> Factors:
    """Factors with one more computed value; as many differences as `order` needs and there are.

    `value` is kept, so it must be float32 and nobody else's.
    """
    if factors is None:
        return Factors((sigma,), (value,))
    differences = [value]
    # f[s, s0, …, si] = (f[s, s0, …, si-1] - f[s0, …, si]) / (s - si)
    for old_sigma, old in zip(factors.sigmas, factors.differences, strict=True):
        if len(differences) > order:
            break
        differences.append((differences[-1] - old) / (sigma - old_sigma))
    sigmas = (sigma, *factors.sigmas)[: len(differences)]
    return Factors(sigmas, tuple(differences))


def extrapolated(factors: Factors, sigma: float) -> Tensor:
    """The polynomial at `sigma`; with one value, that value. Horner's scheme."""
    value = factors.differences[-1]
    earlier = zip(factors.sigmas[:-1], factors.differences[:-1], strict=True)
    for old_sigma, difference in reversed(list(earlier)):
        value = difference + (sigma - old_sigma) * value
    return value
