"""The VAE decoder's kernels: bytes and operations counted, and on a CUDA device measured.

`python -m benchmarks.kernels` counts, for FLUX.1's decoder at 1024 x 1024 in bfloat16, what each
kind of layer moves and computes: as diffusers runs it, one pass a module, and on our kernels,
where a norm takes its SiLU along, a convolution the residual and the doubling before it.

`--device cuda` measures: each layer's error against float64, its time by our kernels and by cuDNN
in both layouts, and whole decodes with their peak memory. Weights are random, none downloaded.
"""

import argparse
import copy
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal

import torch
import torch.nn.functional as F
from diffusers.models.attention_processor import Attention
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from torch import Tensor, nn

from benchmarks.floor import RATE_TFLOPS
from benchmarks.memory import peak_bytes
from benchmarks.report import json_line
from benchmarks.untrained import FLUX1_VAE
from kernels import conv2d as conv_module
from kernels import group_norm as norm_module
from kernels.autotune import measure
from kernels.conv2d_configs import configs_for
from kernels.vae import use_kernels

SIDE = 1024
BANDWIDTH_TBS = 4.8  # of an H200, as its data sheet says
DECODES = ((1, 1024), (4, 1024), (8, 1024), (1, 2048))
REPEATS = 5
TableRow = dict[str, Any]


@dataclass(slots=True)
class Moved:
    """Bytes and operations of all layers of a kind at a size."""

    layers: int = 0
    flops: int = 0
    stock: int = 0  # bytes, one pass a module
    ours: int = 0  # bytes, as fused


@dataclass(slots=True)
class Ledger:
    """Of one decode; lines by kind and height."""

    itemsize: int = 2
    lines: dict[tuple[str, int], Moved] = field(default_factory=dict)

    def add(self, kind: str, height: int, flops: int, stock: int, ours: int) -> None:
        """``stock`` and ``ours`` in values, not in bytes."""
        line = self.lines.setdefault((kind, height), Moved())
        line.layers += 1
        line.flops += flops
        line.stock += stock * self.itemsize
        line.ours += ours * self.itemsize

    def conv(self, x: int, weight: Tensor, y: Tensor, *, residual: bool, doubles: bool) -> None:
        """``x``: values read once the doubling is folded in; a residual is read, too."""
        name = f"conv {weight.shape[2]}x{weight.shape[3]}"
        flops = 2 * y[:, 0].numel() * weight.numel()
        plain = x * (4 if doubles else 1) + weight.numel() + y.numel()
        # Doubling: reads x and writes four of it. Residual: reads two and writes one.
        around = (5 * x if doubles else 0) + (3 * y.numel() if residual else 0)
        fused = x + weight.numel() + y.numel() * (2 if residual else 1)
        kind = f"doubling, {name}" if doubles else f"{name}, residual" if residual else name
        self.add(kind, y.shape[2], flops, plain + around, fused)

    def norm(self, x: Tensor, *, has_silu: bool) -> None:
        """Moments read; then a pass reads and writes; a SiLU by itself reads and writes again."""
        values = x.numel()
        kind = "group norm, SiLU" if has_silu else "group norm"
        self.add(kind, x.shape[2], 0, values * (5 if has_silu else 3), values * 3)


def count(side: int = SIDE) -> Ledger:
    """Of FLUX.1's decoder for one picture, by shapes alone."""
    vae = AutoencoderKL.from_config(FLUX1_VAE).to("meta").eval()
    ledger, decoder = Ledger(), vae.decoder
    outer = {decoder.conv_out: False, decoder.conv_in: False}
    residuals = {block.conv2 for block in _resnets(decoder)}
    doubling = {block.conv for block in decoder.modules() if type(block).__name__ == "Upsample2D"}
    attentions = {m.group_norm for m in decoder.modules() if isinstance(m, Attention)}

    def see(module: nn.Module, given: tuple[Tensor, ...], y: Tensor) -> None:
        if isinstance(module, nn.GroupNorm):
            x = y.unflatten(2, (side // 8, side // 8)) if module in attentions else y
            ledger.norm(x, has_silu=module not in attentions)
        elif isinstance(module, nn.Conv2d):
            doubles = module in doubling
            x = given[0].numel() // (4 if doubles else 1)
            is_residual = module in residuals and module not in outer
            ledger.conv(x, module.weight, y, residual=is_residual, doubles=doubles)
        elif isinstance(module, Attention):
            tokens, width = y[:, 0].numel(), y.shape[1]
            flops = 8 * tokens * width**2 + 4 * tokens**2 * width
            ledger.add("attention", y.shape[2], flops, 12 * y.numel(), 12 * y.numel())

    for module in decoder.modules():
        if isinstance(module, nn.GroupNorm | nn.Conv2d | Attention):
            module.register_forward_hook(see)
    with torch.inference_mode():
        decoder(torch.empty(1, FLUX1_VAE["latent_channels"], side // 8, side // 8, device="meta"))
    return ledger


def _resnets(decoder: nn.Module) -> Iterator[Any]:
    return (module for module in decoder.modules() if type(module).__name__ == "ResnetBlock2D")


def count_rows(ledger: Ledger) -> list[TableRow]:
    """By kind and height, and the sum."""
    rows = [
        {
            "name": kind,
            "height": height,
            "layers": line.layers,
            "tflop": line.flops / 1e12,
            "stock_gb": line.stock / 1e9,
            "ours_gb": line.ours / 1e9,
        }
        for (kind, height), line in ledger.lines.items()
    ]
    total: TableRow = {"name": "all", "height": SIDE}
    for key in ("layers", "tflop", "stock_gb", "ours_gb"):
        total[key] = sum(row[key] for row in rows)
    total["floor_ms"] = total["tflop"] / RATE_TFLOPS * 1e3
    total["stock_bytes_ms"], total["ours_bytes_ms"] = (
        total[key] / BANDWIDTH_TBS for key in ("stock_gb", "ours_gb")
    )
    return [*rows, total]


# On a device

# Input channels, output channels, side of the input at 1024 x 1024, doubling.
LAYERS: tuple[tuple[int, int, int, Literal[1, 2]], ...] = (
    (16, 512, 128, 1),
    (512, 512, 128, 1),
    (512, 512, 128, 2),
    (512, 512, 256, 1),
    (512, 512, 256, 2),
    (512, 256, 512, 1),
    (256, 256, 512, 1),
    (256, 256, 512, 2),
    (256, 128, 1024, 1),
    (128, 128, 1024, 1),
    (128, 3, 1024, 1),
)


def layer_rows(device: torch.device) -> Iterator[TableRow]:
    """Each convolution and each norm: error and milliseconds by ours and by PyTorch's."""
    yield from (conv_row(device, *layer) for layer in LAYERS)
    for channels, side in sorted({(layer[0], layer[2]) for layer in LAYERS if layer[0] >= 128}):
        yield norm_row(device, channels, side)


def conv_row(
    device: torch.device, channels: int, out: int, side: int, upsample: Literal[1, 2]
) -> TableRow:
    x = torch.randn(1, channels, side, side, device=device, dtype=torch.bfloat16)
    weight = torch.randn(out, channels, 3, 3, device=device, dtype=torch.bfloat16) / 100
    last, packed = (each.contiguous(memory_format=torch.channels_last) for each in (x, weight))
    task = conv_module.Task((1, 1), (1, 1, 1, 1), (1, 1), 1, None, upsample)
    ways = {
        **{
            config.name: partial(conv_module.by_triton, config, task, last, packed, None, None)
            for config in configs_for(x, out)
        },
        "nchw": partial(conv_module.by_torch, task, x, weight, None, None),
        "channels_last": partial(conv_module.by_torch, task, last, packed, None, None),
    }
    flops = 2 * out * channels * 9 * (side * upsample) ** 2
    name = f"conv {channels} to {out}, {side}{', doubled' if upsample == 2 else ''}"
    times = _timed(name, ways, device, _exact_corner(x, weight, upsample))
    return times | {"floor_ms": flops / RATE_TFLOPS / 1e9}


def norm_row(device: torch.device, channels: int, side: int) -> TableRow:
    x = torch.randn(1, channels, side, side, device=device, dtype=torch.bfloat16)
    last = x.contiguous(memory_format=torch.channels_last)
    task = norm_module.Task(32, 1e-6, "silu")
    ways = {
        "kernel": partial(norm_module.by_triton, task, last, None, None, None),
        "nchw": partial(norm_module.by_torch, task, x, None, None, None),
        "channels_last": partial(norm_module.by_torch, task, last, None, None, None),
    }
    exact = F.silu(F.group_norm(x.double(), 32, eps=1e-6))[..., :8, :8]
    bound_ms = 3 * x.numel() * x.itemsize / BANDWIDTH_TBS / 1e9
    return _timed(f"norm {channels}, {side}", ways, device, exact) | {"floor_ms": bound_ms}


def _exact_corner(x: Tensor, weight: Tensor, upsample: int) -> Tensor:
    """The first 8 x 8 values of each channel in float64."""
    corner = x[..., :9, :9].double()
    doubled = corner.repeat_interleave(upsample, 2).repeat_interleave(upsample, 3)
    return F.conv2d(doubled, weight.double(), padding=1)[..., :8, :8]


def _timed(
    name: str, ways: Mapping[str, Callable[[], Tensor]], device: torch.device, exact: Tensor
) -> TableRow:
    """``ways``: PyTorch's two, and one of ours or more, of which the fastest counts."""
    times = {way: 1000 * measure(run, device) for way, run in ways.items()}
    theirs = {f"{way}_ms": times.pop(way) for way in ("nchw", "channels_last")}
    chosen = min(times, key=lambda way: times[way])
    error = float((ways[chosen]()[..., :8, :8].double() - exact).norm() / exact.norm())
    return {"name": name, "ours": chosen, "ours_ms": times[chosen], "error": error, **theirs}


def decode_rows(device: torch.device) -> Iterator[TableRow]:
    """Whole decodes: stock, stock in channels-last memory, and ours."""
    torch.manual_seed(0)
    stock = AutoencoderKL.from_config(FLUX1_VAE).eval().requires_grad_(False)
    stock = stock.to(device, torch.bfloat16)
    last = copy.deepcopy(stock).to(memory_format=torch.channels_last)
    ours = copy.deepcopy(stock)
    use_kernels(ours)
    for pictures, side in DECODES:
        shape = (pictures, FLUX1_VAE["latent_channels"], side // 8, side // 8)
        latents = torch.randn(shape, device=device).bfloat16()
        expected = stock.decoder(latents).float()
        for name, vae in (("stock", stock), ("channels_last", last), ("ours", ours)):
            decode = partial(vae.decoder, latents)
            times = [measure(decode, device) for _ in range(REPEATS)]
            yield {
                "name": f"decode {pictures} x {side}, {name}",
                "difference": float((decode().float() - expected).norm() / expected.norm()),
                "median_ms": 1000 * statistics.median(times),
                "peak_bytes_a_picture": peak_bytes(device, decode) // pictures,
            }


@torch.inference_mode()
def main() -> None:
    """Print the table, then the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="", help="measure on this CUDA device, too")
    options = parser.parse_args()
    rows = count_rows(count())
    for row in rows:
        print(
            f"{row['height']:5} {row['name']:22} {row['layers']:3} {row['tflop']:7.3f} TFLOP "
            f"{row['stock_gb']:7.2f} GB stock {row['ours_gb']:7.2f} GB ours"
        )
    total = rows[-1]
    print(
        f"floor: {total['floor_ms']:.1f} ms of operations; the bytes take "
        f"{total['stock_bytes_ms']:.1f} ms stock, {total['ours_bytes_ms']:.1f} ms ours"
    )
    if options.device:
        device = torch.device(options.device)
        for measured in chain(layer_rows(device), decode_rows(device)):
            told = (f"{k} {v:.4g}" if isinstance(v, float) else v for k, v in measured.items())
            print(*told, flush=True)
            rows.append(measured)
    print(json_line("kernels", [], rows))


if __name__ == "__main__":
    main()
