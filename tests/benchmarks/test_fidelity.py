"""Figures of pictures against hand-made ones."""

import numpy as np
import pytest

from benchmarks.fidelity import Fidelity, Score, compare, psnr
from benchmarks.ways import Plain


def test_psnr_is_that_of_the_definition():
    first = np.zeros((8, 4, 3), np.uint8)
    second = first.copy()
    second[:4] = 255  # half of the values are off by the peak: 10 log10(2)
    assert psnr(first, second) == pytest.approx(10 * np.log10(2))
    assert psnr(second, first) == psnr(first, second)
    assert psnr(first, first + 1) == pytest.approx(20 * np.log10(255))


def test_equal_pictures_have_a_finite_psnr_above_all_others():
    picture = np.full((8, 4, 3), 200, np.uint8)
    other = picture.copy()
    other[0, 0, 0] += 2
    assert psnr(picture, other) < psnr(picture, picture) < np.inf


def test_a_score_is_mean_shares_and_median_quality():
    pictures = [Fidelity(0.4, 0.3, 30.0, 0.9), Fidelity(0.6, 0.5, 50.0, 0.99)]
    pictures.append(Fidelity(0.8, 0.7, 32.0, 0.95))
    score = Score.of(pictures)
    assert (score.fraction, score.steps) == (pytest.approx(0.6), pytest.approx(0.5))
    assert (score.psnr, score.worst_psnr, score.ssim) == (32.0, 30.0, 0.95)


def test_pictures_are_compared_with_their_own_reference(bench, requests):
    with Plain().open(bench) as draw:
        references = [draw(request) for request in requests]
    same = compare(bench, Plain(), list(zip(requests, references, strict=True)))
    crossed = compare(bench, Plain(), list(zip(requests, reversed(references), strict=True)))
    assert [(each.fraction, each.steps, each.ssim) for each in same] == [(1.0, 1.0, 1.0)] * 2
    assert max(each.psnr for each in crossed) < 40 < min(each.psnr for each in same)
