"""How well counts fit what a distribution says, without SciPy."""

from collections.abc import Sequence

import torch

FITS = 1e-4  # of p: seeds are fixed, so a test that passes once always does


def p_value(counts: Sequence[float], probs: Sequence[float]) -> float:
    """Chance of a worse fit by Pearson's test; cells of fewer than 5 expected are one cell."""
    observed = torch.tensor(counts, dtype=torch.float64)
    expected = torch.tensor(probs, dtype=torch.float64) * observed.sum()
    is_rare = expected < 5
    if is_rare.any():
        observed = torch.cat([observed[~is_rare], observed[is_rare].sum()[None]])
        expected = torch.cat([expected[~is_rare], expected[is_rare].sum()[None]])
    if expected[-1] == 0:  # what cannot be must not be
        if observed[-1] > 0:
            return 0.0
        observed, expected = observed[:-1], expected[:-1]
    statistic = ((observed - expected) ** 2 / expected).sum()
    freedom = torch.tensor((len(expected) - 1) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, statistic / 2))
