"""Latents to 8-bit pictures: ours against diffusers' plain, sliced and tiled decode.

`python -m benchmarks.decode` takes the embedded model; `--model` and `--device cuda` take others.
Ours is timed as the engine runs it, its VAE on the kernels, through the line of finished rows;
diffusers' ways have diffusers' modules and end in its own image processor, and tiles have half the
picture's side. Errors are relative L2 distances to the plain decode, before rounding to 8 bits.

A second part decodes one large picture plainly and in strips. Its decoder has FLUX.1's shape and
random weights; on a CPU an eighth of the channels, and no attention, which then would take most of
the time.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from diffusers.image_processor import VaeImageProcessor
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from torch import Tensor

from benchmarks.memory import peak_bytes
from benchmarks.report import Claim, json_line
from kernels.vae import use_stock
from pipelines.decode_line import DecodeLine
from pipelines.flux import Flux
from pipelines.loading import load
from pipelines.previews import Previewer
from pipelines.requests import RenderRequest
from pipelines.row import Conditioning, Row, new_row
from pipelines.specs import EMBEDDED, find_spec
from pipelines.strip_decoder import STRIP_ELEMENTS, StripDecoder

COUNTS = (1, 4, 8)
REPEATS = 3
PREVIEWS = 50
Ways = dict[str, Callable[[], object]]
TableRow = dict[str, Any]


# Many pictures


def rows_of(model: Flux, count: int, width: int, height: int) -> list[Row]:
    """Rows that have not stepped: what their latents show does not matter to the time."""
    request = RenderRequest("r", "a red apple", width, height, 1, tuple(range(count)))
    prompts = model.prompts.encode([(request.prompt, request.prompt)])
    return [new_row(model, request, index, Conditioning(prompts)) for index in range(count)]


def ways_of(model: Flux, stock: Flux, line: DecodeLine, rows: list[Row]) -> Ways:
    """From the rows' latents to 8-bit pictures on the host."""
    latents = torch.stack([row.latents for row in rows])

    def ours(max_plain_px: int) -> None:
        model.vae.decoder.max_plain_px = max_plain_px
        for row in rows:
            line.add(row)
        while line.turn(may_wait=True):
            pass

    def theirs(*modes: str) -> None:
        vae: Any = stock.vae
        vae.use_slicing, vae.use_tiling = "sliced" in modes, "tiled" in modes
        pictures = stock.decode(latents, rows[0].grid)
        vae.use_slicing = vae.use_tiling = False
        VaeImageProcessor().postprocess(pictures, output_type="pil")

    return {
        "diffusers, plain": theirs,
        "diffusers, sliced": lambda: theirs("sliced"),
        "diffusers, tiled": lambda: theirs("tiled"),
        "ours": lambda: ours(line.max_px),
        "ours, all in strips": lambda: ours(0),
    }


def halve_tiles(model: Flux, side: int) -> None:
    vae: Any = model.vae
    vae.tile_sample_min_size = side // 2
    vae.tile_latent_min_size = side // model.spec.size_multiple  # two latents a token


def compare(model: Flux, stock: Flux, line: DecodeLine, count: int) -> list[TableRow]:
    """A row of the table for every way, the ways taking turns."""
    ways = ways_of(model, stock, line, rows_of(model, count, *native_size(model)))
    both = (model, stock)
    plain, *_ = pictures = [pictures_of(both, way) for way in ways.values()]  # and warmed up
    times = interleaved(model.device, ways)
    medians = [statistics.median(each) for each in times]
    return [
        {
            "name": name,
            "pictures": count,
            "ratio": median / medians[0],
            "median_s": median,
            "min_s": min(seconds),
            "max_s": max(seconds),
            "peak_bytes": peak_bytes(model.device, way),
            "error": distance(picture, plain),
        }
        for (name, way), picture, seconds, median in zip(
            ways.items(), pictures, times, medians, strict=True
        )
    ]


def pictures_of(models: Sequence[Flux], way: Callable[[], object]) -> Tensor:
    """What a VAE of theirs gives on that way, before rounding."""
    seen: list[Tensor] = []

    def record(real: Callable[..., Tensor], latents: Tensor, grid: Any) -> Tensor:
        seen.append(real(latents, grid))
        return seen[-1]

    with ExitStack() as stack:
        for model in models:
            spy = partial(record, model.decode)
            stack.enter_context(patch.object(model, "decode", spy))
        way()
    return torch.cat(seen)


def interleaved(device: torch.device, ways: Ways, repeats: int = REPEATS) -> list[list[float]]:
    """Seconds of each way, the ways taking turns."""
    times: list[list[float]] = [[] for _ in ways]
    for _ in range(repeats):
        for way, seconds in zip(ways.values(), times, strict=True):
            began = time.perf_counter()
            way()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds.append(time.perf_counter() - began)
    return times


# One large picture


def flux1_vae(divisor: int, has_attention: bool) -> AutoencoderKL:
    """The shape of FLUX.1's VAE, its channels divided, with random weights."""
    vae: Any = AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=tuple(channels // divisor for channels in (128, 256, 512, 512)),
        layers_per_block=2,
        latent_channels=16,
        norm_num_groups=32 // divisor,
        use_quant_conv=False,
        use_post_quant_conv=False,
        mid_block_add_attention=has_attention,
    )
    return vae.eval().requires_grad_(False)


class WithoutOutput(StripDecoder):
    """All layers but the last, for the peak without the picture."""

    def _finish(self, x: Any) -> Tensor:
        return torch.empty(0)


def compare_large(device: torch.device) -> tuple[list[TableRow], list[Claim]]:
    divisor = 8 if device.type == "cpu" else 1
    vae = flux1_vae(divisor, has_attention=device.type != "cpu").to(device)
    strips = StripDecoder(vae.decoder, 0, STRIP_ELEMENTS[device.type] // divisor)
    latents = torch.randn(1, 16, 2048 // 8, 2048 // 8, device=device)
    pictures: dict[str, Tensor] = {}
    ways: Ways = {
        "diffusers, plain": lambda: pictures.update(plain=vae.decoder(latents)),
        "ours, in strips": lambda: pictures.update(strips=strips(latents)),
    }
    peaks = [peak_bytes(device, way) for way in ways.values()]
    error = distance(pictures["strips"], pictures["plain"])
    times = [seconds for (seconds,) in interleaved(device, ways, repeats=1)]  # warmed up by now
    rows = [
        {
            "name": f"{name}, 2048x2048",
            "pictures": 1,
            "ratio": seconds / times[0],
            "median_s": seconds,
            "peak_bytes": peak,
            "error": each,
        }
        for name, seconds, peak, each in zip(ways, times, peaks, (0.0, error), strict=True)
    ]
    claims = [
        Claim("relative error of strips at 2048x2048, float32", error, 1e-5),
        Claim("peak of strips over the plain decode's at 2048x2048", peaks[1] / peaks[0], 0.7),
    ]
    if device.type == "cuda":
        claims.append(Claim("peak of strips, 1024x4096 over 1024x1024", tall_over_square(), 1.1))
    return rows, claims


def tall_over_square() -> float:
    """Peaks on a GPU apart from attention and the picture itself."""
    device = torch.device("cuda")
    vae = flux1_vae(1, has_attention=False).to(device)
    strips = WithoutOutput(vae.decoder, 0, STRIP_ELEMENTS["cuda"])
    square, tall = (
        peak_bytes(device, partial(strips.forward, torch.randn(1, 16, height, 128, device=device)))
        for height in (128, 512)
    )
    return tall / square


# Previews


def time_preview(model: Flux) -> float:
    """Median milliseconds of one by the fitted matrix, at 1024 x 1024."""
    (row,) = rows_of(model, 1, 1024, 1024)
    row.velocity = torch.zeros_like(row.latents)
    previewer = Previewer(model, time.perf_counter)
    ways: Ways = {"preview": lambda: previewer.draw(row)}
    (seconds,) = interleaved(model.device, ways, repeats=PREVIEWS)
    return 1000 * statistics.median(seconds)


def distance(ours: Tensor, theirs: Tensor) -> float:
    return float((ours - theirs).norm() / theirs.norm())


def native_size(model: Flux) -> tuple[int, int]:
    return model.spec.native_width, model.spec.native_height


def print_table(rows: list[TableRow]) -> None:
    for row in rows:
        print(
            f"{row['pictures']} x {row['name']:28} {row['ratio']:6.2f} of plain  "
            f"{row['median_s']:8.3f} s  peak {row['peak_bytes'] / 2**20:7.0f} MiB  "
            f"error {row['error']:.1e}"
        )


@torch.inference_mode()
def main() -> None:
    """Print the table, then the JSON line; `--json` prints that alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=EMBEDDED)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    options = parser.parse_args()
    torch.backends.cudnn.allow_tf32 = False  # errors are compared in float32
    spec = find_spec(options.model)
    model, stock = (
        load(spec, device=options.device, on_progress=lambda what, share: None) for _ in range(2)
    )
    use_stock(stock.vae)
    line = DecodeLine(model)
    halve_tiles(stock, spec.native_width)
    rows = [row for count in COUNTS for row in compare(model, stock, line, count)]
    preview_ms = time_preview(model)
    large_rows, large_claims = compare_large(model.device)
    bar = 1e-5 if model.dtype == torch.float32 else 1e-2
    of_eight = {row["name"]: row for row in rows if row["pictures"] == COUNTS[-1]}
    claims = [
        Claim(f"relative error of ours, 8 pictures, {model.dtype}", of_eight["ours"]["error"], bar),
        Claim("time of ours over the plain decode's, 8 pictures", of_eight["ours"]["ratio"], 1.0),
        Claim("preview of 1024x1024, ms", preview_ms, 5.0),
        *large_claims,
    ]
    if not options.json:
        print_table([*rows, *large_rows])
        print(f"preview of 1024x1024: {preview_ms:.2f} ms")
    print(json_line("decode", claims, [*rows, *large_rows]))


if __name__ == "__main__":
    main()
