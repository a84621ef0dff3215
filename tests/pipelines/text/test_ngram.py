"""The index proposes what a search through the whole text proposes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.text.ngram import NgramIndex

TOKENS = st.lists(st.integers(0, 3), max_size=40)  # few tokens, so that runs come again


def searched(text: list[int], width: int, longest: int, shortest: int) -> tuple[int, ...]:
    """By reading the whole text, from the longest run and from the end."""
    for length in range(longest, shortest - 1, -1):
        for start in range(len(text) - length - 1, -1, -1):
            if text[start : start + length] == text[len(text) - length :]:
                going_on = list(text)
                for i in range(width):
                    going_on.append(going_on[start + length + i])
                return tuple(going_on[len(text) :])
    return ()


@settings(max_examples=400, deadline=None)
@given(TOKENS, st.integers(0, 6), st.integers(1, 3))
def test_the_proposal_is_that_of_a_search(text, width, shortest):
    index = NgramIndex(text, longest=4, shortest=shortest)
    assert index.propose(width) == searched(text, width, 4, shortest)


@settings(max_examples=100, deadline=None)
@given(TOKENS, st.integers(0, 5))
def test_the_index_grows_as_the_text_does(text, width):
    index = NgramIndex()
    for end, token in enumerate(text, start=1):
        index.append(token)
        assert index.propose(width) == searched(text[:end], width, 4, 2)


def test_the_longest_run_decides_and_of_its_places_the_latest():
    index = NgramIndex([1, 2, 3, 7, 2, 3, 8, 1, 2, 3])
    assert index.propose(2) == (7, 2)  # 1 2 3, though 2 3 came later
    index = NgramIndex([5, 6, 1, 5, 6, 2, 5, 6])
    assert index.propose(1) == (2,)


def test_a_repeated_end_goes_on_in_its_period():
    assert NgramIndex([4, 4, 4]).propose(3) == (4, 4, 4)
    assert NgramIndex([1, 2, 1, 2, 1]).propose(4) == (2, 1, 2, 1)


def test_nothing_is_proposed_where_nothing_came_before():
    assert NgramIndex().propose(3) == ()
    assert NgramIndex([1, 2, 3, 4, 5]).propose(3) == ()
    assert NgramIndex([1, 2, 1]).propose(3) == ()  # one token is no run of two


@pytest.mark.parametrize("longest, shortest", [(2, 3), (4, 0), (0, 0)])
def test_lengths_that_cannot_be_are_refused(longest, shortest):
    with pytest.raises(ValueError, match="shortest must be from 1"):
        NgramIndex(longest=longest, shortest=shortest)
