"""Requests that come while others run: our engine against diffusers' pipeline.

`python -m benchmarks.batching` sends 16 requests of mixed sizes and steps to the embedded model, at
random times that are the same for all. diffusers serves them one after another, or in whole-request
batches: those of one size and step count that wait together run as one call, to its end. Ours take
each request in at the next step. Latency runs from the arrival to the picture in 8 bits; the total
to the last picture. Requests come `--load` times as fast as diffusers serves them one by one.

On a CPU a batch of pictures takes as long as the pictures one by one where they have many tokens,
so most of what `balanced` wins over diffusers is its step cache: `off` shows the rest.
`--quick` is a trial of the commands.
"""

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch

from benchmarks.report import Claim, json_line
from benchmarks.ways import Bench, load_bench
from pipelines.cache_rules import PRESETS, CacheRule
from pipelines.engine import PictureEngine
from pipelines.requests import RenderRequest, RequestDone, RequestFailed
from pipelines.specs import EMBEDDED, ModelSpec, find_spec
from training.prompts import held_out_wishes

REQUESTS = 16
SIDES = (128, 192, 256)
STEPS = (12, 20, 28)
SEED = 3001
LOAD = 3.0
ROUNDS = 3
SEQUENTIAL, BATCHES = "diffusers, one by one", "diffusers, whole-request batches"
Draw = Callable[[Sequence[RenderRequest]], object]
Choose = Callable[[Sequence[RenderRequest]], list[RenderRequest]]
Done = dict[str, float]  # when each request was done, by its id


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: float
    request: RenderRequest


class Clock(Protocol):
    """Seconds since the first request may come."""

    def now(self) -> float: ...

    def wait_until(self, at_s: float) -> None: ...


Serve = Callable[[Sequence[Arrival], Clock], Done]


class RealClock:
    def __init__(self) -> None:
        self._began = time.perf_counter()

    def now(self) -> float:
        return time.perf_counter() - self._began

    def wait_until(self, at_s: float) -> None:
        time.sleep(max(0.0, at_s - self.now()))


class Line:
    """Requests that have come, in order."""

    def __init__(self, arrivals: Sequence[Arrival], clock: Clock) -> None:
        self._coming = list(arrivals)
        self._waiting: list[RenderRequest] = []
        self._clock = clock

    @property
    def is_over(self) -> bool:
        return not (self._coming or self._waiting)

    def take(self, choose: Choose, may_wait: bool) -> list[RenderRequest]:
        """Who goes next; where nobody is in line and it may, it waits for the next to come."""
        if may_wait and self._coming and not self._waiting:
            self._clock.wait_until(self._coming[0].at_s)
        while self._coming and self._coming[0].at_s <= self._clock.now():
            self._waiting.append(self._coming.pop(0).request)
        taken = choose(self._waiting)
        self._waiting = [each for each in self._waiting if each not in taken]
        return taken


def first(waiting: Sequence[RenderRequest]) -> list[RenderRequest]:
    return list(waiting[:1])


def alike(waiting: Sequence[RenderRequest]) -> list[RenderRequest]:
    """The first and all that one call of diffusers' pipeline can draw with it."""
    kinds = [(each.width, each.height, each.steps) for each in waiting]
    return [each for each, kind in zip(waiting, kinds, strict=True) if kind == kinds[0]]


def serve_calls(draw: Draw, choose: Choose, arrivals: Sequence[Arrival], clock: Clock) -> Done:
    """Whole calls, one after another."""
    line, done = Line(arrivals, clock), Done()
    while not line.is_over:
        batch = line.take(choose, may_wait=True)
        draw(batch)
        done |= {request.id: clock.now() for request in batch}
    return done


def serve_engine(
    engine: PictureEngine, rule: CacheRule, arrivals: Sequence[Arrival], clock: Clock
) -> Done:
    """Requests go in as soon as they come, between two steps of the others."""
    line, done = Line(arrivals, clock), Done()
    while not (line.is_over and engine.is_idle):
        for request in line.take(list, may_wait=engine.is_idle):
            engine.submit(replace(request, cache=rule))
        for event in engine.tick():
            assert not isinstance(event, RequestFailed), event.message
            if isinstance(event, RequestDone):
                done[event.request_id] = clock.now()
    return done


# The requests


def requests_of(spec: ModelSpec, count: int) -> list[RenderRequest]:
    """Of mixed sizes and steps, in the order of their arrival."""
    rng = random.Random(SEED)
    wishes = rng.sample(held_out_wishes(SEED), count)
    return [
        RenderRequest(
            id=str(i),
            prompt=wish.text,
            width=rng.choice(SIDES),
            height=rng.choice(SIDES),
            steps=rng.choice(STEPS),
            seeds=(SEED + i,),
            guidance_scale=spec.default_guidance_scale,
        )
        for i, wish in enumerate(wishes)
    ]


def arrivals_of(requests: Sequence[RenderRequest], mean_gap_s: float) -> list[Arrival]:
    """A Poisson process: the first comes at once."""
    rng = random.Random(SEED)
    at_s, arrivals = 0.0, []
    for request in requests:
        arrivals.append(Arrival(at_s, request))
        at_s += rng.expovariate(1 / mean_gap_s)
    return arrivals


def draw_call(bench: Bench, batch: Sequence[RenderRequest]) -> None:
    """One call of diffusers' pipeline for requests of one kind."""
    bench.pipeline(
        [request.prompt for request in batch],
        width=batch[0].width,
        height=batch[0].height,
        num_inference_steps=batch[0].steps,
        guidance_scale=batch[0].guidance_scale,
        generator=[torch.Generator("cpu").manual_seed(request.seeds[0]) for request in batch],
        max_sequence_length=bench.model.spec.max_sequence_length,
    )


# Measuring


def ways_of(bench: Bench) -> dict[str, Serve]:
    draw = partial(draw_call, bench)
    return {
        SEQUENTIAL: partial(serve_calls, draw, first),
        BATCHES: partial(serve_calls, draw, alike),
        "ours, off": partial(serve_engine, bench.engine, PRESETS["off"]),
        "ours, balanced": partial(serve_engine, bench.engine, PRESETS["balanced"]),
    }


def measure(serve: Serve, arrivals: Sequence[Arrival]) -> tuple[float, list[float]]:
    """Seconds in all, and each request's latency."""
    done = serve(arrivals, RealClock())
    return max(done.values()), [done[each.request.id] - each.at_s for each in arrivals]


def row_of(name: str, runs: Sequence[tuple[float, list[float]]]) -> dict[str, Any]:
    """Medians over the runs."""
    totals = [total for total, _ in runs]
    return {
        "name": name,
        "total_s": statistics.median(totals),
        "min_s": min(totals),
        "max_s": max(totals),
        "median_latency_s": statistics.median(statistics.median(each) for _, each in runs),
        "worst_latency_s": statistics.median(max(each) for _, each in runs),
    }


def print_table(rows: Sequence[dict[str, Any]], gap_s: float, rounds: int) -> None:
    print(f"A request every {gap_s:.3f} s on average; medians of {rounds} rounds.")
    for row in rows:
        totals = f"{row['total_s']:.2f} s ({row['min_s']:.2f} to {row['max_s']:.2f})"
        print(
            f"{row['name']:34} {row['ratio']:5.2f} of one by one, {totals}  "
            f"latency {row['median_latency_s']:.2f} s, worst {row['worst_latency_s']:.2f} s"
        )


def claims_of(rows: Sequence[dict[str, Any]]) -> list[Claim]:
    by_name = {row["name"]: row for row in rows}
    one_by_one, batches, ours = (by_name[name] for name in (SEQUENTIAL, BATCHES, "ours, balanced"))
    worst = ours["worst_latency_s"] / batches["worst_latency_s"]
    return [
        Claim("balanced: total over one by one", ours["total_s"] / one_by_one["total_s"], 0.75),
        Claim("balanced: worst latency over whole-request batches'", worst, 0.5),
    ]


def main() -> None:
    """Print the table, then the JSON line; `--json` prints that alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", type=float, default=LOAD)
    parser.add_argument("--quick", action="store_true", help="four requests, one round")
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    options = parser.parse_args()
    bench = load_bench(find_spec(EMBEDDED))
    requests = requests_of(bench.model.spec, 4 if options.quick else REQUESTS)
    ways = ways_of(bench)
    at_once = arrivals_of(requests, 1e-9)
    service_s, *_ = [measure(serve, at_once)[0] for serve in ways.values()]  # warms up, too
    gap_s = service_s / len(requests) / options.load
    arrivals = arrivals_of(requests, gap_s)
    runs: dict[str, list[tuple[float, list[float]]]] = {name: [] for name in ways}
    rounds = 1 if options.quick else ROUNDS
    for _ in range(rounds):
        for name, serve in ways.items():
            runs[name].append(measure(serve, arrivals))
    rows = [row_of(name, each) for name, each in runs.items()]
    rows = [row | {"ratio": row["total_s"] / rows[0]["total_s"]} for row in rows]
    if not options.json:
        print_table(rows, gap_s, rounds)
    print(json_line("batching", claims_of(rows), rows))


if __name__ == "__main__":
    main()
