"""Random numbers by name: the same on every machine, in every batch, with and without drafts.

A generator gives its n-th number to whoever asks n-th, so a request's text would change with the
drafts that were refused before. Here the number belongs to the place in the text where it is used.
"""

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]

TARGET = 0  # a draw from the target's distribution
ACCEPTANCE = 1  # the coin that accepts a drafted token
RESIDUAL = 2  # the draw after a refusal
DRAFT = 3  # a draw from the draft's distribution

_MASK = 2**64 - 1
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB  # the finaliser's factors
# Odd, so that no two positions or purposes meet within 2**64. The first is SplitMix64's own step.
_POSITION_STEP = 0x9E3779B97F4A7C15
_PURPOSE_STEP = 0xD1342543DE82EF95
_ID_STEP = 0xA24BAED4963EE407


def uniform(seed: int, position: int, purpose: int = TARGET) -> float:
    """A number in [0, 1), a multiple of 2**-53, for one use at one place of one text.

    `position` is the index of the written token, 0 for the first. A seed acts by its lowest 64
    bits. The hash is the finaliser of SplitMix64 (Steele, Lea, Flood 2014), once over the seed and
    once over all three: neighbours in any of them give independent numbers.
    """
    return (_state(seed, position, purpose) >> 11) * 2.0**-53


def exponentials(seed: int, position: int, purpose: int, ids: Ids) -> NDArray[np.float64]:
    """A number above 0, exponentially distributed with mean 1, for each token at one place.

    A token's number hangs on its id and not on which others are asked for, so two distributions
    that draw with the same numbers choose the same token wherever they agree.
    """
    state = ids.astype(np.uint64) * np.uint64(_ID_STEP) + np.uint64(_state(seed, position, purpose))
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_FIRST)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_SECOND)
    state ^= state >> np.uint64(31)
    return -np.log(((state >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)


def _state(seed: int, position: int, purpose: int) -> int:
    state = _mixed(seed + _POSITION_STEP)
    return _mixed(state + position * _POSITION_STEP + purpose * _PURPOSE_STEP)


def _mixed(state: int) -> int:
    state &= _MASK
    state = (state ^ (state >> 30)) * _FIRST & _MASK
    state = (state ^ (state >> 27)) * _SECOND & _MASK
    return state ^ (state >> 31)
