"""A request that fails ends alone, with its cause; the engine serves the others and the next."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pipelines import decode, denoise
from pipelines.cache_rules import resolve
from pipelines.clip_t5 import ClipT5
from pipelines.devices import poison_fresh_memory
from pipelines.engine import PictureEngine
from pipelines.flux1 import Flux1
from pipelines.previews import Previewer
from pipelines.requests import RequestDone, RequestFailed, Started
from tests.pipelines.reference import photo
from tests.pipelines.test_engine import REQUEST, finish, pictures

BAD_SEED = 666


def outcome(tiny) -> dict[str, object]:
    """Last event of a bad request and of two good ones that ran beside it, then of one more."""
    engine = PictureEngine(tiny)
    engine.submit(replace(REQUEST, id="before"))
    engine.submit(replace(REQUEST, id="bad", seeds=(1, BAD_SEED)))
    engine.submit(replace(REQUEST, id="beside"))
    events = finish(engine)
    engine.submit(replace(REQUEST, id="after"))
    events += finish(engine)
    return {event.request_id: event for event in events}


def assert_only_bad_failed(last: dict[str, object], code: str, words: str) -> None:
    failed = last.pop("bad")
    assert isinstance(failed, RequestFailed)
    assert failed.code == code and words in failed.message
    assert last == {name: RequestDone(name) for name in ("before", "beside", "after")}


def break_step(monkeypatch, error: Exception) -> None:
    """Any forward with the bad row in it raises, as a device does: nobody knows whose fault."""
    real = denoise.finish

    def finish(model, begun, computes):
        if any(row.seed == BAD_SEED for row in begun.rows):
            raise error
        return real(model, begun, computes)

    monkeypatch.setattr(denoise, "finish", finish)


@pytest.mark.parametrize(
    "error, code, words",
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "out_of_memory", "smaller size"),
        (MemoryError(), "out_of_memory", "smaller size"),
        (
            RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
            "out_of_memory",
            "smaller size",
        ),
        (
            RuntimeError("shapes differ"),
            "engine_error",
            "RuntimeError: shapes differ, at step 1 of 3",
        ),
    ],
)
def test_a_step_that_raises(tiny, monkeypatch, error, code, words):
    break_step(monkeypatch, error)
    assert_only_bad_failed(outcome(tiny), code, words)


def test_a_prediction_that_is_not_finite(tiny, monkeypatch):
    real = denoise._velocities

    def velocities(model, begun, computes):
        found = real(model, begun, computes)
        is_bad = [row.seed == BAD_SEED and row.steps_done == 1 for row in begun.sequences]
        return [v * torch.nan if bad else v for v, bad in zip(found, is_bad, strict=True)]

    monkeypatch.setattr(denoise, "_velocities", velocities)
    assert_only_bad_failed(outcome(tiny), "not_finite", "not numbers, at step 2 of 3")


def test_two_pictures_of_a_request_that_are_not_finite_are_one_failure(tiny, monkeypatch):
    real = denoise._velocities
    broken = lambda *step: [v * torch.nan for v in real(*step)]  # noqa: E731
    monkeypatch.setattr(denoise, "_velocities", broken)
    engine = PictureEngine(tiny)
    engine.submit(REQUEST)
    _, failed = finish(engine)
    assert isinstance(failed, RequestFailed) and failed.code == "not_finite"


def test_a_lost_device_is_raised_so_that_the_worker_starts_anew(tiny, monkeypatch):
    break_step(monkeypatch, torch.AcceleratorError("CUDA error: device-side assert triggered"))
    engine = PictureEngine(tiny)
    engine.submit(replace(REQUEST, seeds=(BAD_SEED,)))
    engine.tick()  # tells that it starts
    with pytest.raises(torch.AcceleratorError):
        engine.tick()


def test_a_decode_that_raises(tiny, monkeypatch):
    real = decode.decode_rows

    def decode_rows(model, rows):
        if any(row.seed == BAD_SEED for row in rows):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(model, rows)

    monkeypatch.setattr("pipelines.engine.decode_rows", decode_rows)
    assert_only_bad_failed(outcome(tiny), "out_of_memory", "smaller size")


def test_pixels_that_are_not_finite(tiny, monkeypatch):
    real = Flux1.decode
    monkeypatch.setattr(Flux1, "decode", lambda self, x, grid: real(self, x, grid) * torch.nan)
    engine = PictureEngine(tiny, clock=lambda: 0.0)
    engine.submit(REQUEST)
    failed = finish(engine)[-1]
    assert isinstance(failed, RequestFailed) and failed.code == "not_finite"


def test_an_encoding_that_raises(tiny, monkeypatch):
    real = ClipT5.encode

    def encode(self, prompts):
        if prompts[0][0] == "unreadable":
            raise RuntimeError("no such token")
        return real(self, prompts)

    monkeypatch.setattr(ClipT5, "encode", encode)
    engine = PictureEngine(tiny)
    engine.submit(replace(REQUEST, id="bad", prompt="unreadable"))
    engine.submit(replace(REQUEST, id="good"))
    last = {event.request_id: event for event in finish(engine)}
    assert last["bad"] == RequestFailed(
        "bad", "engine_error", "The engine failed: RuntimeError: no such token"
    )
    assert last["good"] == RequestDone("good")


def test_a_source_that_cannot_be_encoded(tiny, monkeypatch):
    def encode_picture(self, pixels):
        raise torch.OutOfMemoryError("CUDA out of memory")

    engine = PictureEngine(tiny)
    monkeypatch.setattr(Flux1, "encode_picture", encode_picture)
    engine.submit(replace(REQUEST, source=photo(48, 32), strength=0.5))
    assert [type(event) for event in finish(engine)] == [Started, RequestFailed]


def test_a_preview_that_raises_costs_only_the_preview(tiny, monkeypatch):
    def draw(self, row):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Previewer, "draw", draw)
    engine = PictureEngine(tiny)
    engine.submit(REQUEST)
    events = finish(engine)
    assert len(pictures(events)) == 2 and events[-1] == RequestDone("r")


def test_out_of_memory_in_a_group_runs_it_in_smaller_ones_from_then_on(tiny, monkeypatch):
    real, sizes = denoise.finish, []

    def finish_small(model, begun, computes):
        sizes.append(len(begun.rows))
        if len(begun.rows) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(model, begun, computes)

    monkeypatch.setattr(denoise, "finish", finish_small)
    engine = PictureEngine(tiny)
    engine.submit(replace(REQUEST, seeds=(1, 2, 3, 4), steps=2))
    assert len(pictures(finish(engine))) == 4
    assert sizes == [4, 2, 2, 2, 2]


def test_a_picture_that_never_fits_does_not_slow_the_others_for_ever(tiny, monkeypatch):
    break_step(monkeypatch, torch.OutOfMemoryError("CUDA out of memory"))
    engine = PictureEngine(tiny)
    room = engine._max_tokens
    engine.submit(replace(REQUEST, id="bad", seeds=(1, BAD_SEED)))
    engine.submit(replace(REQUEST, id="good"))
    finish(engine)
    assert engine._max_tokens == room


@pytest.mark.parametrize(
    "name, block",
    [
        ("tiny", "transformer_blocks.0"),
        ("tiny", "transformer_blocks.2"),
        ("tiny", "single_transformer_blocks.1"),
        ("tiny_flux2", "transformer_blocks.1"),
        ("tiny_flux2", "single_transformer_blocks.2"),
    ],
)
def test_an_error_inside_a_block_names_it_and_the_step(name, block, request, monkeypatch):
    model = request.getfixturevalue(name)

    def broken(**inputs):
        raise RuntimeError("misaligned address")

    monkeypatch.setattr(model.transformer.get_submodule(block), "forward", broken)
    engine = PictureEngine(model)
    engine.submit(replace(REQUEST, seeds=(1,)))
    failed = finish(engine)[-1]
    assert isinstance(failed, RequestFailed)
    assert failed.message.endswith(f"misaligned address (in {block}), at step 1 of 3")


def test_poisoned_memory_is_seen_and_a_picture_does_not_read_it(tiny):
    """Nothing that a picture is made of is read before it is written."""
    was = torch.are_deterministic_algorithms_enabled()
    clean = pictures(_drawn(tiny))
    try:
        poison_fresh_memory()
        assert torch.empty(64).isnan().all()
        poisoned = pictures(_drawn(tiny))
    finally:
        torch.use_deterministic_algorithms(was)
    for one, other in zip(clean, poisoned, strict=True):
        assert np.array_equal(one.pixels, other.pixels)


def _drawn(model):
    engine = PictureEngine(model)
    engine.submit(replace(REQUEST, cache=resolve("balanced", warmup_steps=1), steps=6))
    return finish(engine)
