"""Finished rows wait in order, are decoded together, and hold nobody up."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from pipelines import decode_line
from pipelines.decode import Decoding, decode_rows, to_pixels
from pipelines.decode_line import DecodeLine, DecodeQueue
from pipelines.engine import PictureEngine
from pipelines.failures import Failure
from pipelines.flux import Flux
from pipelines.loading import load
from pipelines.requests import PictureDone, RenderRequest, RequestDone, StepDone
from pipelines.specs import find_spec
from tests.pipelines.reference import row_of
from tests.pipelines.test_engine import finish, pictures

PX = 48 * 32
WIDE = RenderRequest("wide", "a star", 48, 32, 1, (1,))
TALL = RenderRequest("tall", "a star", 32, 64, 1, (2,))
BAD_SEED = 666


@pytest.fixture
def row(tiny):
    """Makes a row of a request of this name, by default 48 x 32."""
    return lambda name, request=WIDE: row_of(tiny, replace(request, id=name))


def names(batches) -> list[list[str]]:
    return [[row.request.id for row in batch] for batch in batches]


# Turns


def queue_of(*rows) -> DecodeQueue:
    queue = DecodeQueue()
    for each in rows:
        queue.add(each)
    return queue


def test_a_batch_holds_one_size_under_the_bound(row):
    queue = queue_of(row("a"), row("b", TALL), row("c"), row("d"))
    assert names(queue.take(2 * PX)) == [["a", "c"]]
    assert names(queue.take(2 * PX)) == [["b"]]
    assert names(queue.take(2 * PX)) == [["d"]]
    assert queue.take(2 * PX) == []


def test_a_turn_holds_several_batches_under_the_bound(row):
    queue = queue_of(row("a"), row("b", TALL), row("c"), row("d", TALL))
    assert names(queue.take(2 * PX + 2 * 32 * 64)) == [["a", "c"], ["b", "d"]]


def test_a_picture_above_the_bound_has_a_turn_of_its_own(row):
    queue = queue_of(row("a"), row("b"))
    assert names(queue.take(1)) == [["a"]]
    assert names(queue.take(1)) == [["b"]]


def test_an_odd_size_waits_for_one_batch_whatever_comes_behind_it(row):
    queue = queue_of(row("a"), row("odd", TALL))
    for name in ("b", "c", "d", "e"):
        queue.add(row(name))
        batch = names(queue.take(PX))[0]
        if batch == ["odd"]:
            break
    assert name == "c"


def test_dropped_rows_leave_the_queue(row):
    queue = queue_of(row("a"), row("b"), row("a"))
    queue.drop("a")
    assert names(queue.take(9 * PX)) == [["b"]]


# Failures


class Decoder:
    """Decodes, but has no room for more than so many pictures at once, and none for a bad seed."""

    def __init__(self, room: int = 100, plain_px: int = 10**9) -> None:
        self.room = room
        self.plain_px = plain_px
        self.sizes: list[int] = []

    def __call__(self, model: Flux, rows) -> Decoding:
        self.sizes.append(len(rows))
        is_plain = model.vae.decoder.max_plain_px >= PX
        if len(rows) > self.room or (is_plain and self.plain_px < PX):
            raise torch.OutOfMemoryError("CUDA out of memory")
        if any(row.seed == BAD_SEED for row in rows):
            raise RuntimeError("shapes differ")
        return decode_rows(model, rows)


def line_of(tiny, decoder: Callable[..., Decoding], *rows) -> DecodeLine:
    line = DecodeLine(tiny, decoder)
    for each in rows:
        line.add(each)
    return line


@torch.inference_mode()
def all_turns(line: DecodeLine) -> dict[str, Any]:
    """What is told, by the request's name, until nothing more is."""
    told: dict[str, Any] = {}
    while news := line.turn(may_wait=True):
        told |= {row.request.id: picture for row, picture in news}
    return told


def test_out_of_memory_halves_the_batch_and_the_bound_from_then_on(tiny, row):
    decoder = Decoder(room=1)
    line = line_of(tiny, decoder, *(row(name) for name in "abcd"))
    assert line.max_px >= 4 * PX
    told = all_turns(line)
    assert sorted(told) == ["a", "b", "c", "d"]
    assert all(isinstance(each, np.ndarray) for each in told.values())
    assert decoder.sizes == [4, 2, 1, 1, 2, 1, 1]
    assert line.max_px == tiny.vae.decoder.max_plain_px == PX
    decoder.sizes.clear()
    for name in "ef":
        line.add(row(name))
    assert sorted(all_turns(line)) == ["e", "f"] and decoder.sizes == [1, 1]


def test_a_single_picture_without_room_is_decoded_in_strips(tiny, row):
    told = all_turns(line_of(tiny, Decoder(plain_px=PX - 1), row("a")))
    plain = all_turns(line_of(tiny, Decoder(), row("a")))
    assert np.abs(told["a"].astype(int) - plain["a"].astype(int)).max() <= 1


def test_a_single_picture_without_room_in_strips_fails(tiny, row):
    decoder = Decoder(room=0)
    told = all_turns(line_of(tiny, decoder, row("a")))
    assert isinstance(told["a"], Failure) and told["a"].code == "out_of_memory"
    assert decoder.sizes == [1, 1]


def test_without_strips_a_single_picture_without_room_fails_at_once(tiny, row, monkeypatch):
    monkeypatch.setattr(decode_line, "use_strips", lambda vae, px: None)
    decoder = Decoder(room=0)
    told = all_turns(line_of(tiny, decoder, row("a")))
    assert isinstance(told["a"], Failure) and decoder.sizes == [1]


def test_a_row_at_fault_fails_alone_and_the_bound_stays(tiny, row):
    line = line_of(tiny, Decoder(), *(row(name) for name in "abc"))
    line.add(row("bad", replace(WIDE, seeds=(BAD_SEED,))))
    bound = line.max_px
    told = all_turns(line)
    failed = told.pop("bad")
    assert isinstance(failed, Failure) and "shapes differ" in failed.message
    assert sorted(told) == ["a", "b", "c"] and line.max_px == bound
    assert all(isinstance(each, np.ndarray) for each in told.values())


def test_a_lost_device_is_raised(tiny, row):
    def decode(model, rows):
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    with pytest.raises(torch.AcceleratorError):
        all_turns(line_of(tiny, decode, row("a")))


# Beside the steps


class Event:
    """As of a stream that is busy until it is asked for the third time, or waited for."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_waited_for = False

    def query(self) -> bool:
        self.asked += 1
        return self.asked > 2

    def synchronize(self) -> None:
        self.is_waited_for = True


def on_a_busy_stream(model: Flux, rows) -> Decoding:
    decoding = decode_rows(model, rows)
    decoding.ready = Event()
    return decoding


@torch.inference_mode()
def test_pictures_under_way_are_told_when_they_are_ready(tiny, row):
    line = line_of(tiny, on_a_busy_stream, row("a"))
    assert line.turn(may_wait=False) == []
    line.add(row("b"))
    assert line.turn(may_wait=False) == []  # nor is another begun meanwhile
    assert names([[each for each, _ in line.turn(may_wait=False)]]) == [["a"]]
    assert names([[each for each, _ in line.turn(may_wait=True)]]) == [["b"]]


@torch.inference_mode()
def test_a_request_that_is_dropped_under_way_is_not_told_even_if_its_name_returns(tiny, row):
    line = line_of(tiny, on_a_busy_stream, row("a"), row("b"))
    assert line.turn(may_wait=False) == []
    line.drop("a")
    line.add(row("a", TALL))
    told = line.turn(may_wait=True)
    assert [each.request for each, _ in told] == [replace(WIDE, id="b"), replace(TALL, id="a")]


@pytest.mark.parametrize("decode", [decode_rows, on_a_busy_stream])
def test_while_pictures_wait_the_others_step_in_every_tick(tiny, monkeypatch, decode):
    """Six pictures of two sizes end at once beside one that goes on; two fit into a turn."""
    monkeypatch.setattr("pipelines.engine.decode_rows", decode)
    engine = PictureEngine(tiny, clock=lambda: 0.0)
    engine._line.max_px = 2 * PX
    engine.submit(replace(WIDE, id="long", steps=20))
    engine.submit(replace(WIDE, id="short", seeds=(1, 2, 3, 4), steps=2))
    engine.submit(replace(TALL, id="odd", seeds=(1, 2), steps=2))
    engine.tick()  # tells that they start
    ticks = [engine.tick() for _ in range(18)]
    for number, events in enumerate(ticks, start=1):
        steps = [e.step for e in events if isinstance(e, StepDone) and e.request_id == "long"]
        assert steps == [number]
        assert sum(isinstance(event, PictureDone) for event in events) <= 2
    events = [event for each in ticks for event in each] + finish(engine)
    order = [(done.request_id, done.index) for done in pictures(events)]
    assert order == [*(("short", i) for i in range(4)), ("odd", 0), ("odd", 1), ("long", 0)]
    ends = [event.request_id for event in events if isinstance(event, RequestDone)]
    assert sorted(ends) == ["long", "odd", "short"]


def test_cancel_of_a_request_whose_pictures_wait(tiny):
    engine = PictureEngine(tiny)
    engine._line.max_px = PX
    engine.submit(replace(WIDE, id="r", seeds=(1, 2, 3)))
    engine.tick()
    assert len(pictures(engine.tick())) == 1
    engine.cancel("r")
    assert pictures(finish(engine)) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@torch.inference_mode()
def test_a_stream_of_their_own_gives_the_same_pictures(tiny_folder):
    spec = find_spec(str(tiny_folder))
    model = load(spec, device="cuda", dtype=torch.float32, on_progress=lambda what, share: None)
    rows = [row_of(model, replace(WIDE, id=name, seeds=(ord(name),))) for name in "abc"]
    line = DecodeLine(model)
    for each in rows:
        line.add(each)
    told = all_turns(line)
    for each in rows:
        theirs = to_pixels(model.decode(each.latents[None], each.grid))[0]
        assert np.abs(told[each.request.id].astype(int) - theirs.astype(int)).max() <= 1
