"""Who is served when, by a clock that only work and waiting move; and the real engine on it."""

from dataclasses import replace
from itertools import pairwise

import pytest

from benchmarks.batching import (
    Arrival,
    alike,
    arrivals_of,
    first,
    requests_of,
    serve_calls,
    serve_engine,
)
from benchmarks.ways import no_time
from pipelines.cache_rules import OFF
from pipelines.engine import PictureEngine
from pipelines.requests import RenderRequest


class ToldClock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def wait_until(self, at_s: float) -> None:
        self.now_s = max(self.now_s, at_s)


def request(name: str, steps: int) -> RenderRequest:
    return RenderRequest(name, "a frog", 64, 64, steps, (0,))


# "b" differs from the others; "c" comes while "a" is drawn, "d" long after all are done.
ARRIVALS = [
    Arrival(0.0, request("a", 4)),
    Arrival(1.0, request("b", 2)),
    Arrival(2.0, request("c", 4)),
    Arrival(50.0, request("d", 4)),
]


def served(choose, arrivals):
    """When each was done where a call takes a second a step, whatever its batch; and the calls."""
    clock, calls = ToldClock(), []

    def draw(batch):
        calls.append([each.id for each in batch])
        clock.now_s += batch[0].steps

    return serve_calls(draw, choose, arrivals, clock), calls


def test_one_after_another():
    done, calls = served(first, ARRIVALS)
    assert calls == [["a"], ["b"], ["c"], ["d"]]
    assert done == {"a": 4.0, "b": 6.0, "c": 10.0, "d": 54.0}


def test_whole_request_batches():
    done, calls = served(alike, [replace(each, at_s=min(each.at_s, 2.0)) for each in ARRIVALS])
    assert calls == [["a"], ["b"], ["c", "d"]]
    assert done == {"a": 4.0, "b": 6.0, "c": 10.0, "d": 10.0}


class CountedEngine(PictureEngine):
    """A tick takes a second."""

    clock: ToldClock

    def tick(self):
        self.clock.now_s += 1.0
        return super().tick()


def test_the_engine_takes_requests_in_between_steps(bench):
    engine = CountedEngine(bench.model, clock=no_time)
    engine.clock = ToldClock()
    done = serve_engine(engine, OFF, ARRIVALS, engine.clock)
    # "a", "b" and "c" are each announced in a tick of its own, and step together from the fourth.
    assert done == {"a": 7.0, "b": 5.0, "c": 7.0, "d": 55.0}


def test_requests_and_arrivals_are_the_same_each_time(bench):
    requests = requests_of(bench.model.spec, 16)
    assert requests == requests_of(bench.model.spec, 16)
    assert len({(each.width, each.height, each.steps) for each in requests}) > 4
    arrivals = arrivals_of(requests, 2.0)
    assert arrivals == arrivals_of(requests, 2.0)
    assert arrivals[0].at_s == 0.0
    gaps = [later.at_s - each.at_s for each, later in pairwise(arrivals)]
    assert sum(gaps) / len(gaps) == pytest.approx(2.0, rel=0.5)
