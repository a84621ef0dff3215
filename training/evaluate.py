"""Measures the embedded model on prompts whose combinations training never drew.

    python -m training.evaluate --icons icons.json --json

100 prompts of one object on a held-out background colour (most plain, some with a word for place or
size) go through diffusers' ``FluxPipeline``; the background is read from the border's pixels, the
object by the judge. A contact sheet is written beside; the last line is the result in JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import FluxPipeline
from PIL import Image

from training import autoencoder, budget, judge
from training.captions import PLACES
from training.compositions import COLOURS, is_held_out
from training.emoji import BY_NAME, ICONS, OBJECTS
from training.latents import RUNS

ASSETS = Path("assets/flux-emoji")
BARS = {"background": 0.90, "object": 0.60, "position": 0.90, "vae_psnr_db": 28.0}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt and what its picture must show; ``position`` may be ""."""

    text: str
    name: str
    colour: str
    position: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was asked and what the picture shows."""

    prompt: str
    seed: int
    name: str
    seen_name: str
    colour: str
    seen_colour: str
    position: str
    is_in_place: bool


def held_out_prompts(count: int, seed: int) -> list[Prompt]:
    """Each object in turn on one of its held-out colours; every fifth with a place, or a size."""
    rng = random.Random(seed)
    choices = {e.name: [c for c in COLOURS if is_held_out(e.name, c)] for e in OBJECTS}
    names = [name for name, colours in choices.items() if colours]
    rng.shuffle(names)
    prompts = []
    for i in range(count):
        name = names[i % len(names)]
        colour = rng.choice(choices[name])
        position = rng.choice(("left", "right", "top", "bottom")) if i % 5 == 3 else ""
        prompts.append(_prompt(rng, name, colour, position, is_small=i % 5 == 4))
    return prompts


def _prompt(rng: random.Random, name: str, colour: str, position: str, is_small: bool) -> Prompt:
    emoji = BY_NAME[name]
    words = [rng.choice(("small", "large"))] if is_small else []
    words += [emoji.colour] if emoji.colour and rng.random() < 0.5 else []
    phrase = " ".join([*words, name])
    if not emoji.is_plural:
        phrase = f"{'an' if phrase[0] in 'aeio' else 'a'} {phrase}"
    place = f" {PLACES[position][0]}" if position else ""
    article = "an" if colour[0] in "aeio" else "a"
    return Prompt(f"{phrase}{place} on {article} {colour} background", name, colour, position)


def background_colour(pixels: np.ndarray) -> str:
    """The named colour nearest to the median of the border (uint8 [h, w, 3])."""
    border = median_border(pixels)
    return min(COLOURS, key=lambda name: float(np.abs(border - np.array(COLOURS[name])).sum()))


def median_border(pixels: np.ndarray, width: int = 8) -> np.ndarray:
    sides = (pixels[:width], pixels[-width:], pixels[:, :width], pixels[:, -width:])
    median: np.ndarray = np.median(np.concatenate([side.reshape(-1, 3) for side in sides]), 0)
    return median


def ink_box(pixels: np.ndarray, threshold: int = 45) -> tuple[int, int, int, int] | None:
    """Left, top, right, bottom of what differs from the border's colour, if anything does."""
    distance = np.abs(pixels.astype(int) - median_border(pixels)).max(-1)
    ys, xs = np.nonzero(distance > threshold)
    if len(ys) < 0.002 * distance.size:
        return None
    left, right = np.percentile(xs, (1, 99))
    top, bottom = np.percentile(ys, (1, 99))
    return int(left), int(top), int(right) + 1, int(bottom) + 1


def crop_object(picture: Image.Image) -> Image.Image:
    """A square around the ink with a tenth of margin, filled up with the border's colour."""
    pixels = np.asarray(picture.convert("RGB"))
    box = ink_box(pixels) or (0, 0, *picture.size)
    side = round(1.2 * max(box[2] - box[0], box[3] - box[1]))
    corner = ((box[0] + box[2] - side) // 2, (box[1] + box[3] - side) // 2)
    square = Image.new("RGB", (side, side), tuple(int(v) for v in median_border(pixels)))
    square.paste(picture, (-corner[0], -corner[1]))
    return square


def is_in_place(picture: Image.Image, position: str) -> bool:
    """Whether the ink's middle is on the asked side; without a position: near the centre."""
    box = ink_box(np.asarray(picture.convert("RGB")))
    if box is None:
        return False
    x, y = (box[0] + box[2]) / 2 / picture.width, (box[1] + box[3]) / 2 / picture.height
    sides = {"left": x < 0.42, "right": x > 0.58, "top": y < 0.42, "bottom": y > 0.58}
    return sides.get(position, abs(x - 0.5) < 0.12 and abs(y - 0.5) < 0.12)


def paint(
    pipeline: FluxPipeline, prompts: list[Prompt], args: argparse.Namespace
) -> list[Image.Image]:
    """One 256x256 picture a prompt; prompt i has seed ``args.seed + i``."""
    pictures: list[Image.Image] = []
    for start in range(0, len(prompts), args.batch):
        texts = [prompt.text for prompt in prompts[start : start + args.batch]]
        seeds = range(args.seed + start, args.seed + start + len(texts))
        cfg = {"negative_prompt": [""] * len(texts)} if args.true_cfg_scale > 1 else {}
        pictures += pipeline(
            texts,
            height=args.side,
            width=args.side,
            num_inference_steps=args.steps,
            guidance_scale=args.guidance_scale,
            true_cfg_scale=args.true_cfg_scale,
            max_sequence_length=args.max_sequence_length,
            generator=[torch.Generator().manual_seed(seed) for seed in seeds],
            **cfg,
        ).images
    return pictures


def contact_sheet(pictures: list[Image.Image], columns: int = 10, side: int = 128) -> Image.Image:
    sheet = Image.new("RGB", (columns * side, -(-len(pictures) // columns) * side))
    for i, picture in enumerate(pictures):
        place = (i % columns * side, i // columns * side)
        sheet.paste(picture.resize((side, side), Image.Resampling.BOX), place)
    return sheet


def claims(verdicts: list[Verdict], psnr: float) -> list[dict[str, Any]]:
    """The shares that are right, beside their bars."""
    values = {
        "background": [v.seen_colour == v.colour for v in verdicts],
        "object": [v.seen_name == v.name for v in verdicts],
        "position": [v.is_in_place for v in verdicts if v.position],
    }
    figures = {name: float(np.mean(right)) for name, right in values.items()}
    figures["vae_psnr_db"] = psnr
    return [
        {"name": n, "value": round(v, 3), "bar": BARS[n], "holds": v >= BARS[n]}
        for n, v in figures.items()
    ]


def load_judge(args: argparse.Namespace) -> judge.Judge:
    """The trained judge; trains it first where there is none (three minutes)."""
    if not (args.runs / "judge.pt").exists():
        model, accuracy = judge.train(args.icons, 3.0, 1000)
        budget.save(args.runs / "judge.pt", {"judge": model.state_dict(), "accuracy": accuracy})
    return judge.load(args.runs)


def evaluate(args: argparse.Namespace) -> dict[str, Any]:
    critic = load_judge(args)
    pipeline = FluxPipeline.from_pretrained(args.model)
    pipeline.set_progress_bar_config(disable=True)
    prompts = held_out_prompts(args.prompts, seed=7)
    started = time.monotonic()
    pictures = paint(pipeline, prompts, args)
    seconds = (time.monotonic() - started) / len(pictures)
    verdicts = [
        Verdict(
            p.text,
            args.seed + i,
            p.name,
            judge.name_object(critic, crop_object(picture)),
            p.colour,
            background_colour(np.asarray(picture)),
            p.position,
            is_in_place(picture, p.position),
        )
        for i, (p, picture) in enumerate(zip(prompts, pictures, strict=True))
    ]
    args.sheet.parent.mkdir(parents=True, exist_ok=True)
    contact_sheet(pictures).save(args.sheet)
    psnr = autoencoder.psnr(pipeline.vae, autoencoder.draw_pool(args.icons, 64, seed=5000))
    return {
        "benchmark": "embedded-model",
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "settings": {"steps": args.steps, "guidance_scale": args.guidance_scale},
        "seconds_per_picture": round(seconds, 3),
        "claims": claims(verdicts, psnr),
        "rows": [asdict(verdict) for verdict in verdicts],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge the embedded model on held-out prompts")
    parser.add_argument("--icons", type=Path, default=ICONS, help="icons.json of the npm package")
    parser.add_argument("--model", type=Path, default=ASSETS)
    parser.add_argument("--prompts", type=int, default=100)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance-scale", type=float, default=3.5)
    parser.add_argument("--true-cfg-scale", type=float, default=1.0)
    parser.add_argument("--max-sequence-length", type=int, default=40)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sheet", type=Path, default=RUNS / "sheet.png")
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--json", action="store_true", help="print only the line of JSON")
    args = parser.parse_args()
    result = evaluate(args)
    if not args.json:
        for row in result["rows"]:
            print(row["prompt"], "->", row["seen_name"], "on", row["seen_colour"])
        for claim in result["claims"]:
            print(f"{claim['name']:12} {claim['value']:.3f} (bar {claim['bar']})")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
