"""What the engine tells about a request's life: order, cancel, warnings, previews, turns."""

from dataclasses import replace

import numpy as np
import pytest

from pipelines.engine import PictureEngine
from pipelines.requests import (
    Event,
    PictureDone,
    RenderRequest,
    RequestCancelled,
    RequestDone,
    RequestFailed,
    Started,
    StepDone,
    Warned,
)
from tests.pipelines.reference import photo

REQUEST = RenderRequest("r", "a red apple", 48, 32, 3, (5, 6))


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def finish(engine: PictureEngine) -> list[Event]:
    events: list[Event] = []
    for _ in range(200):
        if engine.is_idle:
            return events
        events += engine.tick()
    raise AssertionError("the engine does not come to rest")


def pictures(events: list[Event]) -> list[PictureDone]:
    return [event for event in events if isinstance(event, PictureDone)]


def test_a_request_lives_through_its_events_in_order(tiny):
    engine = PictureEngine(tiny)
    engine.submit(REQUEST)
    ticks = [engine.tick() for _ in range(4)]
    names = [[type(event).__name__ for event in events] for events in ticks]
    assert names == [
        ["Started"],  # before any work that could end the process
        ["StepDone", "StepDone"],
        ["StepDone", "StepDone"],
        ["StepDone", "StepDone", "PictureDone", "PictureDone", "RequestDone"],
    ]
    steps = [event for events in ticks for event in events if isinstance(event, StepDone)]
    expected = [(i, s, 3) for s in (1, 2, 3) for i in (0, 1)]
    assert [(e.index, e.step, e.steps) for e in steps] == expected
    assert engine.is_idle and engine.tick() == []


def test_pictures_are_8_bit_and_name_their_seed(tiny):
    engine = PictureEngine(tiny)
    engine.submit(REQUEST)
    done = pictures(finish(engine))
    assert [(each.index, each.seed, each.steps_run) for each in done] == [(0, 5, 3), (1, 6, 3)]
    assert all(each.pixels.shape == (32, 48, 3) for each in done)
    assert all(each.pixels.dtype == np.uint8 for each in done)


def test_picture_i_of_a_request_is_that_seed_alone(tiny):
    engine = PictureEngine(tiny)
    engine.submit(REQUEST)
    both = pictures(finish(engine))
    engine.submit(replace(REQUEST, seeds=(6,)))
    alone = pictures(finish(engine))[0]
    assert np.abs(alone.pixels.astype(int) - both[1].pixels.astype(int)).max() <= 1


def test_two_runs_of_a_request_are_the_same_bytes(tiny):
    def run() -> list[bytes]:
        engine = PictureEngine(tiny)
        engine.submit(replace(REQUEST, source=photo(48, 32), strength=0.7))
        return [each.pixels.tobytes() for each in pictures(finish(engine))]

    assert run() == run()


def test_image_to_image_counts_the_steps_that_run(tiny):
    engine = PictureEngine(tiny)
    request = replace(REQUEST, steps=7, seeds=(1,), source=photo(48, 32), strength=0.3)
    engine.submit(request)
    events = finish(engine)
    steps = [(e.step, e.steps) for e in events if isinstance(e, StepDone)]
    assert steps == [(1, 3), (2, 3), (3, 3)]
    assert pictures(events)[0].steps_run == request.steps_run == 3


def test_requests_of_different_steps_and_sizes_share_ticks(tiny):
    engine = PictureEngine(tiny)
    engine.submit(REQUEST)
    for _ in range(2):
        engine.tick()
    engine.submit(replace(REQUEST, id="late", width=32, steps=2, seeds=(1,)))
    ids = [{event.request_id for event in engine.tick()} for _ in range(3)]
    assert ids == [{"late"}, {"r", "late"}, {"r", "late"}]
    assert engine.is_idle


def test_pictures_beyond_the_room_wait(tiny):
    engine = PictureEngine(tiny, max_tokens=60)  # two pictures of 6 + 24 tokens
    engine.submit(replace(REQUEST, seeds=(1, 2, 3), steps=2))
    running = [sum(isinstance(e, StepDone) for e in engine.tick()) for _ in range(5)]
    assert running == [0, 2, 2, 1, 1]
    assert engine.is_idle


def test_true_cfg_takes_the_room_of_two(tiny):
    engine = PictureEngine(tiny, max_tokens=60)
    guided = replace(REQUEST, negative_prompt="a frog", true_cfg_scale=2.0, steps=1)
    engine.submit(guided)
    assert [sum(isinstance(e, StepDone) for e in engine.tick()) for _ in range(3)] == [0, 1, 1]


# Cancel


@pytest.mark.parametrize("ticks", [0, 1, 2, 3])
def test_cancel_at_any_step_is_told_once_and_nothing_is_decoded(tiny, ticks):
    engine = PictureEngine(tiny)
    engine.submit(REQUEST)
    for _ in range(ticks):
        engine.tick()
    engine.cancel("r")
    engine.cancel("r")
    assert not engine.is_idle  # the event is still owed
    assert engine.tick() == [RequestCancelled("r")]
    assert engine.is_idle


def test_cancel_leaves_the_others_alone(tiny):
    engine = PictureEngine(tiny)
    engine.submit(REQUEST)
    engine.submit(replace(REQUEST, id="other"))
    engine.tick()
    engine.cancel("r")
    events = finish(engine)
    assert {e.request_id for e in events if not isinstance(e, RequestCancelled)} == {"other"}
    assert len(pictures(events)) == 2


def test_cancel_of_an_unknown_or_finished_request_does_nothing(tiny):
    engine = PictureEngine(tiny)
    engine.cancel("nobody")
    engine.submit(REQUEST)
    finish(engine)
    engine.cancel("r")
    assert engine.is_idle and engine.tick() == []


# Warnings


def test_a_cut_prompt_is_told_with_the_lost_words(tiny):
    engine = PictureEngine(tiny)
    prompt = "a red apple on a blue background " * 4 + "two frogs"
    engine.submit(replace(REQUEST, prompt=prompt))
    assert engine.tick() == [Started("r")]
    warned, *_ = engine.tick()
    assert isinstance(warned, Warned)
    assert (warned.code, warned.param) == ("prompt_truncated", "prompt")
    assert warned.message.endswith("two frogs")


def test_the_warning_names_the_prompt_that_was_cut(tiny):
    engine = PictureEngine(tiny)
    long = "a red apple on a blue background " * 4
    guided = replace(REQUEST, negative_prompt=long, true_cfg_scale=2.0)
    engine.submit(replace(guided, prompt=long, secondary_prompt="a frog"))
    params = [event.param for event in finish(engine) if isinstance(event, Warned)]
    assert params == ["negative_prompt"]


def test_a_very_long_prompt_is_drawn_and_its_warning_stays_short(tiny):
    engine = PictureEngine(tiny)
    engine.submit(replace(REQUEST, prompt="apple " * 20_000))
    events = finish(engine)
    warned = next(event for event in events if isinstance(event, Warned))
    assert len(warned.message) < 700
    assert len(pictures(events)) == 2


def test_tokens_are_counted_with_the_closing_one(tiny):
    assert tiny.prompts.measure("") == (1, tiny.spec.max_sequence_length, "")
    tokens, limit, cut = tiny.prompts.measure("apple " * 30)
    assert tokens > limit
    assert cut and set(cut.split()) == {"apple"}


# Bad requests


@pytest.mark.parametrize(
    "change, words",
    [
        ({"width": 40}, "multiples of 16"),
        ({"width": 0}, "too small"),
        ({"width": -16}, "too small"),
        ({"width": 16 * 10**8}, "too large"),
        ({"steps": 0}, "steps must be"),
        ({"steps": 101}, "steps must be"),
        ({"seeds": ()}, "seeds"),
        ({"seeds": (2**32,)}, "seeds"),
        ({"guidance_scale": float("nan")}, "finite"),
        ({"source": photo(16, 16)}, "48x32"),
        ({"source": photo(48, 32).astype(float)}, "8-bit"),
        ({"source": photo(48, 32), "strength": 0.0}, "strength"),
        ({"source": photo(48, 32), "strength": 2.0}, "strength"),
    ],
)
def test_a_request_that_cannot_be_drawn_fails_with_the_limit(tiny, change, words):
    engine = PictureEngine(tiny)
    engine.submit(replace(REQUEST, **change))
    engine.submit(replace(REQUEST, id="good"))
    failed, *others = finish(engine)
    assert isinstance(failed, RequestFailed)
    assert failed.code == "bad_request" and words in failed.message
    assert others[-1] == RequestDone("good")


def test_an_id_in_use_is_refused(tiny):
    engine = PictureEngine(tiny)
    engine.submit(REQUEST)
    with pytest.raises(ValueError, match="already"):
        engine.submit(REQUEST)


# Previews


def steps_with_preview(events: list[Event]) -> list[int]:
    return [e.step for e in events if isinstance(e, StepDone) and e.preview is not None]


def test_previews_come_at_most_every_interval_and_not_with_the_picture(tiny):
    clock = Clock()
    engine = PictureEngine(tiny, clock=clock)
    engine.submit(replace(REQUEST, seeds=(1,), steps=8))
    seen = []
    while not engine.is_idle:
        seen += steps_with_preview(engine.tick())
        clock.now_s += 0.25
    assert seen == [1, 3, 5, 7]


def test_previews_do_not_change_the_picture(tiny):
    def run(clock) -> bytes:
        engine = PictureEngine(tiny, clock=clock)
        engine.submit(replace(REQUEST, seeds=(1,)))
        return pictures(finish(engine))[0].pixels.tobytes()

    ticking = iter(range(10**6))
    assert run(lambda: 0.0) == run(lambda: float(next(ticking)))


def test_slow_previews_come_less_often(tiny, monkeypatch):
    clock = Clock()
    engine = PictureEngine(tiny, clock=clock)

    def slow(row):
        clock.now_s += 1.0
        return np.zeros((4, 4, 3), np.uint8)

    monkeypatch.setattr(engine._previewer, "_pixels", slow)
    engine.submit(replace(REQUEST, seeds=(1,), steps=12))
    seen = []
    while not engine.is_idle:
        seen += steps_with_preview(engine.tick())
        clock.now_s += 1.0
    assert seen == [1, 5, 9]  # a second of drawing, then four without


def test_pictures_and_requests_take_turns_for_previews(tiny):
    clock = Clock()
    engine = PictureEngine(tiny, clock=clock)
    engine.submit(replace(REQUEST, steps=6))
    engine.submit(replace(REQUEST, id="other", seeds=(1,), steps=6))
    seen = []
    while not engine.is_idle:
        steps = [event for event in engine.tick() if isinstance(event, StepDone)]
        seen += [(e.request_id, e.index) for e in steps if e.preview is not None]
        clock.now_s += 0.5
    assert seen == [("r", 0), ("r", 1), ("other", 0), ("r", 0), ("r", 1)]
