"""How much of a picture a step cache computed, and how near it came to the uncached picture."""

import math
import multiprocessing
import statistics
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from benchmarks.ways import Bench, Plain, Way, load_bench
from pipelines.requests import Pixels, RenderRequest
from pipelines.specs import ModelSpec
from training.measures import ssim

BENCH: list[Bench] = []  # of a drawing process: one


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Of one picture."""

    fraction: float  # of the transformer's operations without a cache
    steps: float  # share of the steps that ran the last block
    psnr: float  # dB, against the uncached picture
    ssim: float


@dataclass(frozen=True, slots=True)
class Score:
    """Of many pictures of one way."""

    fraction: float  # mean
    steps: float  # mean
    psnr: float  # median
    worst_psnr: float
    ssim: float  # median

    @classmethod
    def of(cls, pictures: Sequence[Fidelity]) -> Self:
        psnrs = [each.psnr for each in pictures]
        return cls(
            statistics.mean(each.fraction for each in pictures),
            statistics.mean(each.steps for each in pictures),
            statistics.median(psnrs),
            min(psnrs),
            statistics.median(each.ssim for each in pictures),
        )


def psnr(first: Pixels, second: Pixels) -> float:
    """Peak signal-to-noise ratio in dB; equal pictures count as if one value differed by one."""
    squares = np.square(first.astype(float) - second).sum()
    return 10 * math.log10(255**2 * first.size / max(squares, 1.0))


class Gallery:
    """Scores of ways, each picture drawn once, by processes of one thread each."""

    def __init__(self, spec: ModelSpec, jobs: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(jobs, spawn, initializer=_start, initargs=(spec,))
        self._jobs = jobs
        self._references: dict[RenderRequest, Pixels] = {}
        self.scores: dict[tuple[Way, tuple[RenderRequest, ...]], Score] = {}

    def score(self, way: Way, requests: tuple[RenderRequest, ...]) -> Score:
        """Against diffusers' pictures without a cache."""
        if (way, requests) not in self.scores:
            chunks = [requests[i :: self._jobs] for i in range(self._jobs)]
            drawn = [self._pool.submit(_compare, way, self._with_reference(x)) for x in chunks]
            self.scores[way, requests] = Score.of([x for each in drawn for x in each.result()])
        return self.scores[way, requests]

    def draw_references(self, requests: Sequence[RenderRequest]) -> None:
        """Before the first score."""
        chunks = [requests[i :: self._jobs] for i in range(self._jobs)]
        for chunk, drawn in zip(chunks, self._pool.map(_draw_plain, chunks), strict=True):
            self._references |= zip(chunk, drawn, strict=True)

    def close(self) -> None:
        self._pool.shutdown()

    def _with_reference(
        self, requests: Sequence[RenderRequest]
    ) -> list[tuple[RenderRequest, Pixels]]:
        return [(request, self._references[request]) for request in requests]


# In a drawing process


def _start(spec: ModelSpec) -> None:
    torch.set_num_threads(1)
    BENCH.append(load_bench(spec))


def _draw_plain(requests: Sequence[RenderRequest]) -> list[Pixels]:
    with Plain().open(*BENCH) as draw:
        return [draw(request) for request in requests]


def _compare(way: Way, pairs: Sequence[tuple[RenderRequest, Pixels]]) -> list[Fidelity]:
    return compare(BENCH[0], way, pairs)


def compare(
    bench: Bench, way: Way, pairs: Sequence[tuple[RenderRequest, Pixels]]
) -> list[Fidelity]:
    """Of requests and their uncached pictures."""
    found = []
    with way.open(bench) as draw:
        for request, reference in pairs:
            bench.tally.calls.clear()
            picture = draw(request)
            fraction = bench.tally.flops / (request.steps * bench.step_flops)
            steps = bench.full_steps / request.steps
            near = psnr(picture, reference), ssim(picture, reference)
            found.append(Fidelity(fraction, steps, *near))
    return found
