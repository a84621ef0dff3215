"""The least time that a picture can take: its operations over a rate that the device reaches.

`python -m benchmarks.floor` counts FLUX.1 and the embedded model on the meta device, so it needs no
weights of FLUX.1 and no GPU. `--tflops` is the rate; 790 is what matrix products of bfloat16 reach
on an H100 or H200. Parts: `head` (embeddings and the first block), `tail` (the other blocks) and
`out` of a step, and the VAE's `decode`. A predicted step costs the head alone.
"""

import argparse
from dataclasses import asdict, dataclass
from typing import Any

import torch

from benchmarks.flops import counted
from benchmarks.report import Claim, json_line
from benchmarks.untrained import FLUX1_TRANSFORMER, FLUX1_VAE, random_prompt, untrained
from pipelines.flux import Flux
from pipelines.specs import DEV, EMBEDDED, EMBEDDED_FOLDER, find_spec, read_json

RATE_TFLOPS = 790.0
STEPS = 28
PREDICTED = (0, 14, 18)  # of the steps
SIDES = (512, 768, 1024, 1536, 2048)  # of FLUX.1's pictures


@dataclass(frozen=True, slots=True)
class Parts:
    """Operations of one picture's parts."""

    head: int
    tail: int
    out: int
    decode: int

    @property
    def step(self) -> int:
        return self.head + self.tail + self.out

    def picture(self, steps: int, predicted: int) -> int:
        return (steps - predicted) * self.step + predicted * self.head + self.decode


@torch.inference_mode()
def parts_of(model: Flux, width: int, height: int) -> Parts:
    """Of one picture with a prompt as long as the model's are; `model` may be on "meta"."""
    grid = model.grid(width, height)
    packed = model.transformer.config["in_channels"]
    latents = torch.randn(1, grid.tokens, packed, device=model.device)
    ones = torch.ones(1, device=model.device)
    prompt = random_prompt(model)
    state, head = counted(lambda: model.head(latents, ones, ones, [prompt], grid))
    picture, tail = counted(lambda: model.tail(state))
    _, out = counted(lambda: model.out(picture, state.modulation))
    _, decode = counted(lambda: model.decode(latents, grid))
    return Parts(head, tail, out, decode)


def flux1() -> Flux:
    return untrained(DEV, FLUX1_TRANSFORMER, FLUX1_VAE, device="meta")


def embedded() -> Flux:
    """Its shape alone."""
    configs = [read_json(EMBEDDED_FOLDER / name / "config.json") for name in ("transformer", "vae")]
    known = [{key: x for key, x in config.items() if key[0] != "_"} for config in configs]
    return untrained(find_spec(EMBEDDED), *known, device="meta")


def table_row(model: Flux, width: int, height: int, tflops: float) -> dict[str, Any]:
    parts = parts_of(model, width, height)
    floors = {str(n): parts.picture(STEPS, n) / (tflops * 1e12) for n in PREDICTED}
    return {
        "model": model.spec.name,
        "size": f"{width}x{height}",
        "step": parts.step,
        **asdict(parts),
        "floor_s_by_predicted": floors,
    }


def print_table(rows: list[dict[str, Any]], tflops: float) -> None:
    print(f"Operations in TFLOP; floors in seconds for {STEPS} steps and decode at {tflops:g}.")
    predicted = "".join(f"{f'{n} predicted':>14}" for n in PREDICTED)
    print(f"{'':36}{'step':>10}{'head':>10}{'out':>10}{'decode':>10}{predicted}")
    for row in rows:
        figures = "".join(f"{row[part] / 1e12:10.4g}" for part in ("step", "head", "out", "decode"))
        floors = "".join(f"{floor_s:14.4g}" for floor_s in row["floor_s_by_predicted"].values())
        print(f"{row['model']:26}{row['size']:>10}{figures}{floors}")


def claims_of(row: dict[str, Any]) -> list[Claim]:
    """Whether FLUX.1 at 1024 x 1024 still takes what the docs say, each as a ratio less one."""
    floor_s = (STEPS * row["step"] + row["decode"]) / (RATE_TFLOPS * 1e12)
    stated = {
        "a step against 74.39 TFLOP": row["step"] / 74.39e12,
        "a decode against 10.47 TFLOP": row["decode"] / 10.47e12,
        f"{STEPS} steps and decode at 790 TFLOP/s against 2.65 s": floor_s / 2.65,
    }
    return [Claim(name, abs(ratio - 1), 1e-3) for name, ratio in stated.items()]


def main() -> None:
    """Print the table, then the JSON line; `--json` prints that alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tflops", type=float, default=RATE_TFLOPS)
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    options = parser.parse_args()
    model, small = flux1(), embedded()
    rows = [table_row(model, side, side, options.tflops) for side in SIDES]
    native = small.spec.native_width, small.spec.native_height
    rows.append(table_row(small, *native, options.tflops))
    if not options.json:
        print_table(rows, options.tflops)
    print(json_line("floor", claims_of(rows[SIDES.index(1024)]), rows))


if __name__ == "__main__":
    main()
