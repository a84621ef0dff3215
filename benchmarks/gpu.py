"""The full shapes of FLUX.1-dev and FLUX.2-dev on one CUDA device: steps, decodes, their floor.

`sh benchmarks/gpu.sh` runs it. The weights are random bfloat16 numbers made on the device, so
nothing is downloaded, and prompts are random numbers, too: neither matters to the time. Pictures
are 1024 x 1024, drawn one at a time with the engine's own steps: with diffusers' blocks as they
come, with each block compiled by torch, and with the compiled ones recorded as CUDA graphs, these
at 512 x 512, too; last with the transformer streamed from main memory. FLUX.2's have eight steps.
"balanced" has a threshold of 1 here, so that there are predicted steps to time: how many a real
picture has, random weights cannot tell.

Floors are operations over 790 TFLOP/s (`benchmarks.floor`). `--scale tiny --device cpu` tries the
commands.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from benchmarks.floor import RATE_TFLOPS, Parts, parts_of
from benchmarks.memory import peak_bytes
from benchmarks.report import json_line
from benchmarks.untrained import (
    FLUX1_TRANSFORMER,
    FLUX1_VAE,
    FLUX2_TRANSFORMER,
    FLUX2_VAE,
    Config,
    random_prompt,
    untrained,
)
from kernels.vae import use_kernels
from pipelines.cache_rules import OFF, CacheRule, resolve
from pipelines.compiling import compile_blocks
from pipelines.decode import decode_rows
from pipelines.denoise import step_rows
from pipelines.flux import Flux
from pipelines.graphs import CudaRecorder, Graphs
from pipelines.placement import put
from pipelines.requests import RenderRequest
from pipelines.row import Conditioning, Row, new_row
from pipelines.specs import DEV, FLUX2_DEV, ModelSpec

RULES = {"off": OFF, "balanced": resolve("balanced", residual_threshold=1.0)}
COUNTS = (1, 4, 8)  # pictures decoded together
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Scale:
    spec: ModelSpec
    transformer: Config
    vae: Config


SCALES = {
    "full": Scale(DEV, FLUX1_TRANSFORMER, FLUX1_VAE),
    "full-flux2": Scale(replace(FLUX2_DEV, default_steps=8), FLUX2_TRANSFORMER, FLUX2_VAE),
    "tiny": Scale(
        replace(DEV, native_width=64, native_height=64, default_steps=12, max_sequence_length=24),
        {
            **FLUX1_TRANSFORMER,
            "num_layers": 2,
            "num_single_layers": 2,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 32,
            "pooled_projection_dim": 32,
            "axes_dims_rope": (4, 6, 6),
        },
        {**FLUX1_VAE, "block_out_channels": (8, 8, 8, 8), "norm_num_groups": 4},
    ),
    "tiny-flux2": Scale(
        replace(
            FLUX2_DEV, native_width=64, native_height=64, default_steps=8, max_sequence_length=24
        ),
        {
            **FLUX2_TRANSFORMER,
            "in_channels": 32,
            "num_layers": 2,
            "num_single_layers": 2,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 32,
            "axes_dims_rope": (4, 4, 4, 4),
        },
        {"block_out_channels": (8, 8, 8, 8), "norm_num_groups": 4, "latent_channels": 8},
    ),
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """Seconds of one picture's parts."""

    computed_s: list[float]  # each step that ran all blocks
    predicted_s: list[float]  # each that ran the first one
    decode_s: float

    @property
    def total_s(self) -> float:
        return sum(self.computed_s) + sum(self.predicted_s) + self.decode_s


def row_of(model: Flux, rule: CacheRule, seed: int = 0, side: int | None = None) -> Row:
    """``side`` in pixels, the native one where none is said."""
    spec = model.spec
    size = (side, side) if side else (spec.native_width, spec.native_height)
    request = RenderRequest("r", "", *size, spec.default_steps, (seed,), cache=rule)
    return new_row(model, request, 0, Conditioning([random_prompt(model)]))


def draw(model: Flux, rule: CacheRule, side: int | None = None) -> Drawn:
    row = row_of(model, rule, side=side)
    steps: dict[bool, list[float]] = {True: [], False: []}

    def step() -> None:
        broken = step_rows(model, [row])
        assert not broken, "random weights gave a velocity that is not finite"

    while not row.is_finished:
        seconds = timed(model, step)
        steps[row.was_predicted].append(seconds)
    return Drawn(steps[False], steps[True], timed_decode(model, [row]))


def timed_decode(model: Flux, rows: Sequence[Row]) -> float:
    """Latents to 8-bit pictures on the host."""
    return timed(model, lambda: decode_rows(model, rows).pictures())


def timed(model: Flux, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return time.perf_counter() - began


def rows_of(scale: Scale, device: str) -> Iterator[dict[str, Any]]:
    """Of the table, one after another."""
    model = random_model(scale, device)
    side = scale.spec.native_width
    parts = {side: parts_at(scale, side), side // 2: parts_at(scale, side // 2)}
    for count in COUNTS:
        yield decode_row(model, parts[side], count)
    yield from picture_rows(model, parts[side], "eager")
    compile_blocks(model)
    yield from picture_rows(model, parts[side], "compiled")
    if model.device.type != "cuda":
        return
    yield from picture_rows(model, parts[side // 2], "compiled, half the side", side // 2)
    recorder = CudaRecorder(model.device)
    model.graphs = Graphs(model.transformer, recorder, max_tokens=10**9)
    yield from picture_rows(model, parts[side // 2], "graphs, half the side", side // 2)
    yield from picture_rows(model, parts[side], "graphs")
    del model, recorder
    torch.cuda.empty_cache()
    yield from streamed_rows(scale, device, parts[side])


def streamed_rows(scale: Scale, device: str, parts: Parts) -> Iterator[dict[str, Any]]:
    """As `--memory offload` holds the transformer."""
    model = random_model(scale, device)
    put(model.transformer, model.device, is_streamed=True)
    yield from picture_rows(model, parts, "streamed")


def random_model(scale: Scale, device: str) -> Flux:
    """Its VAE on the kernels, as the studio has it."""
    shape = scale.spec, scale.transformer, scale.vae
    model = untrained(*shape, device=device, dtype=torch.bfloat16)
    use_kernels(model.vae)
    return model


def parts_at(scale: Scale, side: int) -> Parts:
    model = untrained(scale.spec, scale.transformer, scale.vae, device="meta")
    return parts_of(model, side, side)


def picture_rows(
    model: Flux, parts: Parts, mode: str, side: int | None = None
) -> Iterator[dict[str, Any]]:
    """One for each rule; the first picture warms up."""
    for name, rule in RULES.items():
        pictures = [draw(model, rule, side) for _ in range(REPEATS + 1)][1:]
        totals = [picture.total_s for picture in pictures]
        predicted = [seconds for picture in pictures for seconds in picture.predicted_s]
        computed = [seconds for picture in pictures for seconds in picture.computed_s]
        steps = model.spec.default_steps
        floor_s = floor_of(parts.picture(steps, len(predicted) // REPEATS))
        yield {
            "name": f"picture, {mode}, {name}",
            "steps": steps,
            "predicted": len(predicted) // REPEATS,
            "over_floor": statistics.median(totals) / floor_s,
            "floor_s": floor_s,
            "median_s": statistics.median(totals),
            "min_s": min(totals),
            "max_s": max(totals),
            "computed_step_s": statistics.median(computed),
            "computed_step_floor_s": floor_of(parts.step),
            "predicted_step_s": statistics.median(predicted) if predicted else None,
            "predicted_step_floor_s": floor_of(parts.head),
            "peak_bytes": peak_bytes(model.device, partial(draw, model, rule, side)),
        }


def decode_row(model: Flux, parts: Parts, count: int) -> dict[str, Any]:
    rows = [row_of(model, OFF, seed) for seed in range(count)]
    seconds = [timed_decode(model, rows) for _ in range(REPEATS + 1)][1:]
    floor_s = floor_of(count * parts.decode)
    return {
        "name": f"decode of {count}",
        "over_floor": statistics.median(seconds) / floor_s,
        "floor_s": floor_s,
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "max_s": max(seconds),
        "peak_bytes": peak_bytes(model.device, lambda: decode_rows(model, rows).pictures()),
    }


def floor_of(flops: int) -> float:
    return flops / (RATE_TFLOPS * 1e12)


def print_row(row: dict[str, Any]) -> None:
    """At once, so that an end before the last row leaves the others."""
    times = f"{row['median_s']:.3f} s ({row['min_s']:.3f} to {row['max_s']:.3f})"
    peak = f"peak {row['peak_bytes'] / 2**30:.2f} GiB over the weights"
    print(f"{row['name']:28} {row['over_floor']:8.2f} of the floor, {times}, {peak}", flush=True)
    if "steps" in row:
        computed_ms, predicted_s = 1000 * row["computed_step_s"], row["predicted_step_s"]
        predicted = "" if predicted_s is None else f", a predicted one {1000 * predicted_s:.2f} ms"
        share = f"{row['predicted']} of {row['steps']} steps predicted"
        print(f"    {share}; a computed step {computed_ms:.2f} ms{predicted}", flush=True)


@torch.inference_mode()
def main() -> None:
    """Print the table, then the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    scale = SCALES[options.scale]
    model = untrained(scale.spec, scale.transformer, scale.vae, device="meta")
    weights = [*model.transformer.parameters(), *model.vae.parameters()]
    weights_bytes = sum(2 * each.numel() for each in weights)
    print(f"{options.scale} scale, weights of {weights_bytes / 2**30:.2f} GiB", flush=True)
    rows: list[dict[str, Any]] = []
    for row in rows_of(scale, options.device):
        print_row(row)
        rows.append(row)
    about = {"scale": options.scale, "weights_bytes": weights_bytes}
    print(json_line("gpu", [], [row | about for row in rows]))


if __name__ == "__main__":
    main()
