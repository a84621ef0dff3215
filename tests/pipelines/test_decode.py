"""Finished latents to pictures, together where they are of one size."""

import numpy as np
import torch

from pipelines.decode import decode_batches, decode_rows, to_pixels
from pipelines.requests import RenderRequest
from tests.pipelines.reference import row_of

WIDE = RenderRequest("wide", "a star", 48, 32, 1, (1,))
TALL = RenderRequest("tall", "a star", 32, 64, 1, (2,))


def test_a_batch_holds_one_size_under_the_bound(tiny):
    rows = [row_of(tiny, request) for request in (WIDE, TALL, WIDE, WIDE)]
    batches = decode_batches(rows, max_pixels=2 * 48 * 32)
    assert [[row.request.id for row in batch] for batch in batches] == [
        ["wide", "wide"],
        ["wide"],
        ["tall"],
    ]


def test_a_picture_above_the_bound_is_decoded_alone(tiny):
    rows = [row_of(tiny, WIDE) for _ in range(2)]
    assert [len(batch) for batch in decode_batches(rows, max_pixels=1)] == [1, 1]


def test_together_and_alone_are_the_same_picture(tiny):
    rows = [row_of(tiny, WIDE), row_of(tiny, RenderRequest("other", "a star", 48, 32, 1, (9,)))]
    with torch.inference_mode():
        together = decode_rows(tiny, rows)
        alone = [decode_rows(tiny, [row])[0] for row in rows]
    for ours, theirs in zip(together, alone, strict=True):
        assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1


def test_pixels_are_rounded_and_clipped():
    values = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0]).view(1, 1, 1, 5).expand(1, 3, 1, 5)
    assert to_pixels(values)[0][0, :, 0].tolist() == [0, 0, 128, 255, 255]
