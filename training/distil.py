"""Guidance distillation (Meng et al. 2023): one forward learns what true CFG takes two for.

    python -m training.distil --start buckets --minutes 12

The frozen teacher answers v = v_empty + g·(v_caption - v_empty) for g between 1 and 6; the student
sees ``guidance=g`` through FLUX.1-dev's guidance embedding and learns that answer.
"""

from __future__ import annotations

import argparse
import copy
import random
from pathlib import Path

import torch
from torch import Tensor

from training import budget
from training.attention import use_matrix_attention
from training.latents import RUNS, STAGES, Chunk, Pool
from training.optimisers import MuonAndAdam
from training.transformer import (
    Captions,
    Painter,
    average,
    load_start,
    matrices_of,
    noised,
    pack,
    to_device,
    weighted_error,
)

GUIDANCE = (1.0, 6.0)
PLAIN = 0.1  # share of rows with the empty caption: the student keeps that answer, too


def guided(teacher: Painter, x: Tensor, sigma: Tensor, batches: list[Chunk], g: Tensor) -> Tensor:
    """The teacher's velocity by classifier-free guidance; ``batches``: with captions, without."""
    one = torch.ones_like(sigma)
    with torch.no_grad():
        captioned, empty = (teacher(x, sigma, batch, one).float() for batch in batches)
    return empty + g[:, None, None] * (captioned - empty)


def distil(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    device, stage = args.device, STAGES["buckets"]
    teacher, student = Painter(), Painter()
    start = budget.load(args.runs / f"transformer-{args.start}.pt")
    teacher.load_state_dict(start["ema"])
    student.load_state_dict(start["ema"])
    ema = copy.deepcopy(student).requires_grad_(False)
    path = args.runs / "transformer-distilled.pt"
    state = budget.load(path) if args.resume else {}
    if state:
        load_start(student, ema, state)
    if device == "cpu":
        use_matrix_attention()
    for model in (teacher, student, ema):
        model.to(device)
    teacher.requires_grad_(False)
    optimiser = MuonAndAdam(*matrices_of(student), args.muon_rate, args.adam_rate)
    if state:
        optimiser.load_state_dict(state["optimiser"])
    clock = budget.Budget(args.minutes, state.get("spent_s", 0.0))
    step = state.get("step", 0)
    pool, captions = Pool(args.runs / "pools" / "buckets"), Captions(student.text, stage.tokens)

    def checkpoint() -> None:
        weights = {"model": student.state_dict(), "ema": ema.state_dict()}
        numbers = {"spent_s": clock.spent_s, "step": step, "seen": start["seen"]}
        budget.save(path, {**weights, "optimiser": optimiser.state_dict(), **numbers})

    mean_loss = 0.0
    while not clock.is_over:
        batch = captions.drop(captions.trim(pool.batch(rng, args.batch), rng), rng, PLAIN)
        both = [to_device(b, device) for b in (batch, captions.drop(batch, rng, 1.0))]
        x, sigma, _ = noised(pack(both[0].latents), stage.noise)
        g = torch.empty(len(x)).uniform_(*GUIDANCE).to(device)
        with torch.autocast(device, torch.bfloat16):
            wanted = guided(teacher, x, sigma, both, g)
            answer = student(x, sigma, both[0], g)
        loss = weighted_error(answer.float() - wanted, both[0].ink)
        loss.backward()
        optimiser.step(budget.learning_rate(clock.progress, flat=0.3))
        step += 1
        average(ema, student, step)
        clock.tick()
        mean_loss += (float(loss.detach()) - mean_loss) / min(step, 30)
        if step % args.log_every == 0:
            print(f"{step} {clock.spent_s:.0f} s loss {mean_loss:.4f}", flush=True)
        if clock.is_save_due():
            checkpoint()
    checkpoint()


def main() -> None:
    parser = argparse.ArgumentParser(description="Distil classifier-free guidance")
    parser.add_argument("--start", default="buckets", help="stage whose averaged weights to teach")
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--batch", type=int, default=48)
    parser.add_argument("--muon-rate", type=float, default=5e-4)
    parser.add_argument("--adam-rate", type=float, default=5e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--resume", action="store_true")
    distil(parser.parse_args())


if __name__ == "__main__":
    main()
