"""The kernels' count, against the operations that the floor counts in another way."""

import pytest

from benchmarks.floor import flux1, parts_of
from benchmarks.kernels import Ledger, count, count_rows


def test_the_operations_are_those_of_the_floor():
    total = count_rows(count())[-1]
    assert total["tflop"] * 1e12 == pytest.approx(parts_of(flux1(), 1024, 1024).decode, rel=0.001)
    assert 0 < total["ours_gb"] < total["stock_gb"]


def test_fused_passes_save_what_they_do_not_move():
    """Of 128 channels at 1024²: SiLU's own pass of two, and the residual's of two more."""
    ledger: Ledger = count()
    picture = 128 * 1024**2 * 2
    norm, residual = (
        ledger.lines[kind, 1024] for kind in ("group norm, SiLU", "conv 3x3, residual")
    )
    of_256 = 2 * picture
    assert norm.stock - norm.ours == 2 * ((norm.layers - 1) * picture + of_256)
    assert residual.stock - residual.ours == 2 * residual.layers * picture
    assert {line.layers for (kind, _), line in ledger.lines.items() if "doubling" in kind} == {1}
