"""Ways to draw one picture: our engine by a cache rule, and diffusers without a cache.

A way is a value: it can go to another process, and equal ways draw equal pictures.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline
from diffusers.utils import logging

from benchmarks.flops import Tally, leaf_flops
from pipelines.cache_rules import PRESETS, CacheRule
from pipelines.engine import PictureEngine
from pipelines.flux import Flux
from pipelines.loading import load
from pipelines.requests import PictureDone, Pixels, RenderRequest, RequestFailed
from pipelines.specs import ModelSpec

Draw = Callable[[RenderRequest], Pixels]


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """One checkpoint, loaded once for us and once for the peers: their hooks never meet ours."""

    model: Flux
    engine: PictureEngine  # of that model, without previews
    pipeline: Any  # FluxPipeline
    tally: Tally  # of both transformers, at the native size
    step_flops: int  # of a step without a cache

    @property
    def full_steps(self) -> int:
        """Since the tally was cleared: those that ran the last block's attention."""
        last = len(self.model.transformer.single_transformer_blocks) - 1
        return self.tally.calls[f"single_transformer_blocks.{last}.attn.to_q"]


class Way(Protocol):
    @property
    def name(self) -> str: ...

    def open(self, bench: Bench) -> AbstractContextManager[Draw]:
        """Ready to draw one picture after another; nothing is left of it behind the context."""


@dataclass(frozen=True, slots=True)
class Ours:
    """Our engine, one picture at a time."""

    rule: CacheRule

    @property
    def name(self) -> str:
        if PRESETS[self.rule.name] == self.rule:
            return f"ours, {self.rule.name}"
        rule = self.rule
        if rule.cache_interval is not None:
            when = f"interval {rule.cache_interval}"
        else:
            when = f"threshold {rule.residual_threshold:.4f}, at most {rule.max_skips}"
        return f"ours, order {rule.taylor_order}, warm-up {rule.warmup_steps}, {when}"

    @contextmanager
    def open(self, bench: Bench) -> Iterator[Draw]:
        yield lambda request: draw_with_engine(bench.engine, replace(request, cache=self.rule))


@dataclass(frozen=True, slots=True)
class Plain:
    """diffusers' pipeline without a cache."""

    name: str = "diffusers, no cache"

    @contextmanager
    def open(self, bench: Bench) -> Iterator[Draw]:
        yield lambda request: draw_with_pipeline(bench.pipeline, bench.model.spec, request)


def no_time() -> float:
    """For an engine that draws no previews: no time is ever half a second after another."""
    return math.nan


def draw_with_engine(engine: PictureEngine, request: RenderRequest) -> Pixels:
    """The picture of a request with one seed."""
    engine.submit(request)
    pictures = []
    while not engine.is_idle:
        for event in engine.tick():
            assert not isinstance(event, RequestFailed), event.message
            if isinstance(event, PictureDone):
                pictures.append(event.pixels)
    (picture,) = pictures
    return picture


def draw_with_pipeline(pipeline: Any, spec: ModelSpec, request: RenderRequest) -> Pixels:
    output = pipeline(
        request.prompt,
        width=request.width,
        height=request.height,
        num_inference_steps=request.steps,
        guidance_scale=request.guidance_scale,
        generator=torch.Generator("cpu").manual_seed(request.seeds[0]),
        max_sequence_length=spec.max_sequence_length,
    )
    return np.asarray(output.images[0])


def load_bench(spec: ModelSpec) -> Bench:
    """On the CPU in float32; `spec.source` is a folder."""
    logging.disable_progress_bar()
    logging.set_verbosity_error()  # it warns of each prompt that is cut
    model = load(spec, device="cpu", on_progress=lambda what, share: None)
    pipeline = FluxPipeline.from_pretrained(spec.source, dtype=torch.float32)
    pipeline.set_progress_bar_config(disable=True)
    step = RenderRequest("step", "a frog", spec.native_width, spec.native_height, 1, (0,))
    flops = leaf_flops(pipeline.transformer, lambda: draw_with_pipeline(pipeline, spec, step))
    tally = Tally(flops)
    tally.watch(pipeline.transformer)
    tally.watch(model.transformer)
    engine = PictureEngine(model, clock=no_time)
    return Bench(model, engine, pipeline, tally, sum(flops.values()))
