"""Random numbers by name: the same on every machine, in every batch, with and without drafts.

A generator gives its n-th number to whoever asks n-th, so a request's text would change with the
drafts that were refused before. Here the number belongs to the place in the text where it is used.
"""

TARGET = 0  # a draw from the target's distribution
ACCEPTANCE = 1  # the coin that accepts a drafted token
RESIDUAL = 2  # the draw after a refusal
DRAFT = 3  # a draw from the draft's distribution

_MASK = 2**64 - 1
# Odd, so that no two positions or purposes meet within 2**64. The first is SplitMix64's own step.
_POSITION_STEP = 0x9E3779B97F4A7C15
_PURPOSE_STEP = 0xD1342543DE82EF95


def uniform(seed: int, position: int, purpose: int = TARGET) -> float:
    """A number in [0, 1), a multiple of 2**-53, for one use at one place of one text.

    `position` is the index of the written token, 0 for the first. A seed acts by its lowest 64
    bits. The hash is the finaliser of SplitMix64 (Steele, Lea, Flood 2014), once over the seed and
    once over all three: neighbours in any of them give independent numbers.
    """
    state = _mixed(seed + _POSITION_STEP)
    state = _mixed(state + position * _POSITION_STEP + purpose * _PURPOSE_STEP)
    return (state >> 11) * 2.0**-53


def _mixed(state: int) -> int:
    state &= _MASK
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & _MASK
    return state ^ (state >> 31)
