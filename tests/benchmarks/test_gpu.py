"""The GPU's benchmark at its tiny scale on a CPU, without the compiled part."""

import pytest
import torch

from benchmarks.floor import parts_of
from benchmarks.gpu import (
    REPEATS,
    RULES,
    SCALES,
    decode_row,
    draw,
    parts_at,
    picture_rows,
    random_model,
    row_of,
    streamed_rows,
)
from benchmarks.untrained import untrained
from pipelines.cache_rules import OFF


@pytest.fixture(scope="module", params=["tiny", "tiny-flux2"])
def scale(request):
    return SCALES[request.param]


@pytest.fixture(scope="module")
def model(scale):
    return random_model(scale, "cpu")


@pytest.fixture(scope="module")
def parts(scale):
    return parts_at(scale, 64)


@torch.inference_mode()
def test_every_step_is_timed_as_what_it_was(scale, model):
    steps = scale.spec.default_steps
    off, balanced = (draw(model, rule) for rule in RULES.values())
    assert (len(off.computed_s), len(off.predicted_s)) == (steps, 0)
    assert len(balanced.computed_s) + len(balanced.predicted_s) == steps
    assert 0 < len(balanced.predicted_s) <= steps - RULES["balanced"].warmup_steps - 1
    assert off.total_s == pytest.approx(sum(off.computed_s) + off.decode_s)


@torch.inference_mode()
def test_the_floor_is_that_of_the_steps_that_were_computed(model, parts):
    off, balanced = picture_rows(model, parts, "eager")
    saved = balanced["predicted"] * (parts.tail + parts.out)
    assert off["floor_s"] - balanced["floor_s"] == pytest.approx(saved / 790e12)
    assert balanced["over_floor"] == pytest.approx(balanced["median_s"] / balanced["floor_s"])


@torch.inference_mode()
def test_the_rows_of_a_smaller_side_are_of_that_side(scale, model, parts):
    off, _ = picture_rows(model, parts_at(scale, 32), "eager", 32)
    whole, _ = picture_rows(model, parts, "eager")
    assert off["floor_s"] < whole["floor_s"]
    assert row_of(model, OFF, side=32).grid.tokens * 4 == row_of(model, OFF).grid.tokens


@torch.inference_mode()
def test_a_streamed_transformer_is_timed(scale, parts):
    (off, _) = streamed_rows(scale, "cpu", parts)
    assert off["name"] == "picture, streamed, off" and off["median_s"] > 0


@torch.inference_mode()
def test_more_pictures_have_a_higher_floor(model, parts):
    one, four = (decode_row(model, parts, count) for count in (1, 4))
    assert four["floor_s"] == pytest.approx(4 * one["floor_s"])
    assert one["min_s"] <= one["median_s"] <= one["max_s"]
    assert REPEATS > 1 and OFF in RULES.values()


@pytest.mark.parametrize(
    "name, step_tflop, weights", [("full", 74.385, 11.9e9), ("full-flux2", 282.4, 32.2e9)]
)
def test_the_full_shapes_are_those_of_the_published_models(name, step_tflop, weights):
    """Operations by hand for FLUX.2, 4,608 tokens of which 512 are text, width 6,144: 2 x 23.55e9
    weights x 4,608 in single blocks, 2 x 3.93e9 x 4,608 in a stream of double ones, and
    4 x 4,608^2 x 6,144 of attention in each of 56 blocks."""
    scale = SCALES[name]
    model = untrained(scale.spec, scale.transformer, scale.vae, device="meta")
    count = sum(each.numel() for each in model.transformer.parameters())
    assert count == pytest.approx(weights, rel=0.01)
    parts = parts_of(model, 1024, 1024)
    assert parts.step / 1e12 == pytest.approx(step_tflop, rel=0.01)
