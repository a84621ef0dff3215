"""The table of the text benchmark: medians, ratios in the same round, claims."""

import pytest

from benchmarks.text import COUNTS, Table, claims_of
from benchmarks.text_work import WORKS, Result, requests_of


def table(ours: float, plain: float, stock: float) -> Table:
    """Every contestant with a steady rate."""
    made = Table()
    for work in WORKS:
        for count in COUNTS:
            for name, rate in (("ours", ours), ("ours, plain", plain), ("generate, bf16", stock)):
                for jitter in (0.9, 1.0, 1.2):
                    made.results[work, count, name].append(
                        Result(100, 100 / (rate * jitter), 0.2, 0.5, 2.0)
                    )
    return made


def test_a_ratio_is_taken_in_the_same_round() -> None:
    made = table(150, 100, 40)
    assert made.ratio("edit", 4, "ours", "ours, plain") == pytest.approx(1.5)
    assert made.row(("edit", 4, "ours"))["tokens_s"] == pytest.approx(150)


def test_claims_hold_and_fail() -> None:
    counts = list(COUNTS)
    good = claims_of(table(160, 100, 40), counts)
    assert [claim.holds for claim in good] == [True] * 5 + [False]  # 16 at once is no faster here
    slow = {claim.name: claim.holds for claim in claims_of(table(95, 100, 40), counts)}
    assert not slow["worst time by plain's, anywhere"] and not slow["edit: time by plain's"]


def test_a_part_of_the_table_claims_nothing() -> None:
    assert claims_of(table(160, 100, 40), [1]) == []


def test_the_work_is_the_same_for_the_same_seed() -> None:
    for work in WORKS:
        assert requests_of(work, 3, 7) == requests_of(work, 3, 7) != requests_of(work, 3, 8)
    assert all(request.adapter == "expansion" for request in requests_of("expansion", 2, 1))
