"""Counted operations against the formula by hand, and against the whole forward."""

import pytest
import torch

from benchmarks.floor import Parts, flux1, parts_of
from benchmarks.flops import counted
from benchmarks.gpu import SCALES
from benchmarks.untrained import random_prompt, untrained

WIDTH, BLOCKS, TEXT = 3072, 57, 512  # of FLUX.1


def blocks_flops(tokens: int) -> int:
    """24 n d^2 for the projections of a block, 4 n^2 d for its attention."""
    n = tokens + TEXT
    return BLOCKS * (24 * n * WIDTH**2 + 4 * n**2 * WIDTH)


@pytest.fixture(scope="module")
def flux1_parts() -> Parts:
    return parts_of(flux1(), 1024, 1024)


def test_a_step_of_flux1_is_its_blocks_and_little_else(flux1_parts):
    by_hand = blocks_flops(64 * 64)
    assert by_hand < flux1_parts.step < 1.0005 * by_hand
    assert flux1_parts.head == pytest.approx(by_hand / BLOCKS, rel=0.015)
    # Without attention, or with the text's tokens forgotten, it would not be.
    assert 0.9 * by_hand > BLOCKS * 24 * (64 * 64 + TEXT) * WIDTH**2
    assert 0.9 * by_hand > BLOCKS * (24 * 64**2 * WIDTH**2 + 4 * 64**4 * WIDTH)


def test_a_picture_is_its_steps_and_its_decode():
    parts = Parts(head=3, tail=20, out=1, decode=7)
    assert parts.picture(28, 0) == 28 * 24 + 7
    assert parts.picture(28, 14) == 14 * 24 + 14 * 3 + 7


@torch.inference_mode()
def test_head_tail_and_out_are_the_forward():
    scale = SCALES["tiny"]
    model = untrained(scale.spec, scale.transformer, scale.vae, device="meta")
    parts, grid = parts_of(model, 64, 96), model.grid(64, 96)
    prompt = random_prompt(model)
    pooled = prompt.pooled
    assert pooled is not None
    _, whole = counted(
        lambda: model.transformer(
            hidden_states=torch.randn(1, grid.tokens, 64, device="meta"),
            timestep=torch.ones(1, device="meta"),
            guidance=torch.ones(1, device="meta"),
            pooled_projections=pooled[None],
            encoder_hidden_states=prompt.text[None],
            txt_ids=torch.zeros(len(prompt.text), 3, device="meta"),
            img_ids=torch.zeros(grid.tokens, 3, device="meta"),
        )
    )
    assert parts.step == whole


def test_a_cpu_counts_as_much_as_the_meta_device():
    """Attention is another kernel there, of which torch's counter knows nothing."""
    scale = SCALES["tiny"]
    shape = scale.spec, scale.transformer, scale.vae
    on_meta, on_cpu = (parts_of(untrained(*shape, device=each), 64, 64) for each in ("meta", "cpu"))
    assert on_cpu == on_meta
