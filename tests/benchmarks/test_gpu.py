"""The GPU's benchmark at its tiny scale on a CPU, without the compiled part."""

import pytest
import torch

from benchmarks.floor import parts_of
from benchmarks.gpu import REPEATS, RULES, SCALES, decode_row, draw, picture_rows
from benchmarks.untrained import untrained
from pipelines.cache_rules import OFF

SCALE = SCALES["tiny"]
SHAPE = SCALE.spec, SCALE.transformer, SCALE.vae


@pytest.fixture(scope="module")
def model():
    return untrained(*SHAPE, device="cpu", dtype=torch.bfloat16)


@pytest.fixture(scope="module")
def parts():
    return parts_of(untrained(*SHAPE, device="meta"), 64, 64)


@torch.inference_mode()
def test_every_step_is_timed_as_what_it_was(model):
    steps = SCALE.spec.default_steps
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
def test_more_pictures_have_a_higher_floor(model, parts):
    one, four = (decode_row(model, parts, count) for count in (1, 4))
    assert four["floor_s"] == pytest.approx(4 * one["floor_s"])
    assert one["min_s"] <= one["median_s"] <= one["max_s"]
    assert REPEATS > 1 and OFF in RULES.values()
