"""Whose turn it is."""

import pytest

from pipelines.text.requests import Priority
from pipelines.text.scheduler import Turn, plan


@pytest.mark.parametrize(
    ("priority", "writing", "unread", "turn"),
    [
        ("prefill_first", 3, (50,), Turn(False, (50,))),
        ("decode_first", 3, (50,), Turn(True, (0,))),
        ("balanced", 3, (50, 50), Turn(True, (0, 0))),
        ("balanced", 1, (50, 50), Turn(False, (50, 10))),
        ("per_replica", 3, (50,), Turn(True, (50,))),
        ("per_replica", 3, (90,), Turn(True, (57,))),  # the rows that write take their part
        ("per_replica", 99, (90,), Turn(True, (1,))),  # and leave at least one token
    ],
)
def test_policies(priority: Priority, writing: int, unread: tuple[int, ...], turn: Turn) -> None:
    assert plan(priority, writing, unread, 60) == turn


@pytest.mark.parametrize("priority", ["prefill_first", "decode_first", "balanced", "per_replica"])
def test_one_kind_alone_always_goes_on(priority: Priority) -> None:
    assert plan(priority, 2, (), 60) == Turn(True, ())
    assert plan(priority, 0, (40, 40), 60) == Turn(False, (40, 20))
    assert plan(priority, 0, (), 60).is_empty
