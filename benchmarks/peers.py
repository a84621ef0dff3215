"""Other people's step caches on diffusers' pipeline, run as their users call them.

diffusers has two: the first block's residual decides and the last one is reused, or a fixed
schedule decides and a Taylor series extrapolates. cache-dit, a package of its own
(https://github.com/vipshop/cache-dit), has both at once. Each forgets a picture when its
pipeline's call returns, so pictures are drawn one after another.
"""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from diffusers.hooks import FirstBlockCacheConfig, TaylorSeerCacheConfig
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline

from benchmarks.ways import Bench, Draw, draw_with_pipeline


@dataclass(frozen=True, slots=True)
class FirstBlockCache:
    """diffusers' hook (ParaAttention's rule)."""

    threshold: float

    @property
    def name(self) -> str:
        return f"diffusers FirstBlockCache, threshold {self.threshold:.4f}"

    @contextmanager
    def open(self, bench: Bench) -> Iterator[Draw]:
        with enabled(bench, FirstBlockCacheConfig(threshold=self.threshold)) as draw:
            yield draw


@dataclass(frozen=True, slots=True)
class TaylorSeer:
    """diffusers' hook. Lite spares all blocks of a predicted step, the other mode attention."""

    interval: int = 5
    warmup_steps: int = 3
    order: int = 1
    is_lite: bool = False

    @property
    def name(self) -> str:
        mode = " lite" if self.is_lite else ""
        return f"diffusers TaylorSeer{mode}, warm-up {self.warmup_steps}, interval {self.interval}"

    @contextmanager
    def open(self, bench: Bench) -> Iterator[Draw]:
        config = TaylorSeerCacheConfig(
            cache_interval=self.interval,
            disable_cache_before_step=self.warmup_steps,
            max_order=self.order,
            taylor_factors_dtype=torch.float32,  # as their example has it; bfloat16 is coarser
            use_lite_mode=self.is_lite,
        )
        with enabled(bench, config) as draw:
            yield draw


@contextmanager
def enabled(bench: Bench, config: Any) -> Iterator[Draw]:
    """Draws with one of diffusers' caches."""
    bench.pipeline.transformer.enable_cache(config)
    try:
        yield lambda request: draw_with_pipeline(bench.pipeline, bench.model.spec, request)
    finally:
        bench.pipeline.transformer.disable_cache()


@dataclass(frozen=True, slots=True)
class CacheDit:
    """cache-dit's DBCache on one block, with its TaylorSeer. `max_skips` of -1 is no cap."""

    threshold: float
    warmup_steps: int
    max_skips: int
    order: int = 1

    @property
    def name(self) -> str:
        rest = f"threshold {self.threshold:.4f}, at most {self.max_skips}"
        return f"cache-dit, order {self.order}, warm-up {self.warmup_steps}, {rest}"

    @contextmanager
    def open(self, bench: Bench) -> Iterator[Draw]:
        cache_dit = import_cache_dit()
        pipeline = with_own_transformer(bench)
        cache_dit.enable_cache(
            pipeline,
            cache_config=cache_dit.DBCacheConfig(
                Fn_compute_blocks=1,
                Bn_compute_blocks=0,
                residual_diff_threshold=self.threshold,
                max_warmup_steps=self.warmup_steps,
                max_continuous_cached_steps=self.max_skips,
            ),
            calibrator_config=cache_dit.TaylorSeerCalibratorConfig(taylorseer_order=self.order),
        )
        try:
            yield lambda request: draw_with_pipeline(pipeline, bench.model.spec, request)
        finally:
            cache_dit.disable_cache(pipeline)


def with_own_transformer(bench: Bench) -> Any:
    """cache-dit 1.5.3 leaves a changed forward and another order of blocks behind."""
    folder = bench.model.spec.source
    transformer = FluxTransformer2DModel.from_pretrained(folder, subfolder="transformer")
    bench.tally.watch(transformer)
    pipeline = FluxPipeline(**bench.pipeline.components | {"transformer": transformer})
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def import_cache_dit() -> Any:
    """Raises ImportError: it may not install everywhere."""
    os.environ.setdefault("CACHE_DIT_LOG_LEVEL", "error")  # it tells each step on stdout
    return importlib.import_module("cache_dit")


def missing_peers() -> dict[str, str]:
    """Packages that cannot be imported, and why."""
    try:
        import_cache_dit()
    except ImportError as error:
        return {"cache-dit": str(error)}
    return {}
