"""Train the adapter that expands prompts: `python -m training.expansion.train MODEL OUT`.

One CPU core in bfloat16; the loss is on what the model is to write, the newline included.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from training.expansion.lora import ALL_MODULES, add_lora, load_lora, save_lora
from training.expansion.pairs import Pair, pairs

ROWS = 4  # pairs of a step: many small steps learn more in an hour of one core
POOL = 128 * ROWS  # pairs sorted by length at a time
TEST_SEED = 10**6
TEST_PAIRS = 32
IGNORED = -100

Batch = tuple[Tensor, Tensor]  # ids, targets: [rows, tokens]


def encode(tokenizer: Any, found: list[Pair]) -> Batch:
    """Rows padded on the right; causal attention never looks there, so no mask is needed."""
    rows = []
    for pair in found:
        before = tokenizer(pair.prefix).input_ids
        after = tokenizer(pair.answer).input_ids
        rows.append((before + after, [IGNORED] * len(before) + after))
    width = max(len(ids) for ids, _ in rows)
    ids = torch.tensor([ids + [0] * (width - len(ids)) for ids, _ in rows])
    targets = torch.tensor([row + [IGNORED] * (width - len(row)) for _, row in rows])
    return ids, targets


def batches(tokenizer: Any, seed: int) -> Iterator[Batch]:
    """Fresh pairs without an end, of like length within a batch."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        pool = sorted(pairs(POOL, seed), key=lambda pair: len(pair.prefix + pair.answer))
        for start in torch.randperm(POOL // ROWS, generator=generator).tolist():
            yield encode(tokenizer, pool[start * ROWS : (start + 1) * ROWS])
        seed += 1


def loss_of(model: nn.Module, batch: Batch) -> Tensor:
    """Mean cross-entropy of the written tokens; the vocabulary is scored at those places only."""
    ids, targets = batch
    with torch.autocast("cpu", torch.bfloat16):
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        wanted = targets[:, 1:]
        is_written = wanted != IGNORED
        logits = model.lm_head(hidden[is_written])
    return nn.functional.cross_entropy(logits.float(), wanted[is_written])


@torch.no_grad()
def test_loss(model: nn.Module, tokenizer: Any) -> float:
    """The loss on pairs that no training draws."""
    found = sorted(pairs(TEST_PAIRS, TEST_SEED), key=lambda pair: len(pair.prefix + pair.answer))
    parts = [found[i : i + ROWS] for i in range(0, TEST_PAIRS, ROWS)]
    return sum(loss_of(model, encode(tokenizer, part)).item() for part in parts) / len(parts)


def main() -> None:
    """Train for a number of steps; write the adapter every few minutes and at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="folder of the base model")
    parser.add_argument("out", type=Path, help="file of the adapter")
    parser.add_argument("--start", type=Path, help="an adapter to go on from")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument(
        "--modules", nargs="+", default=["o_proj", "down_proj"], choices=ALL_MODULES
    )
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--minutes", type=float, help="end by the clock, not by steps")
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16)
    if args.start:
        adapters = load_lora(model, args.start)
    else:
        adapters = add_lora(model, args.rank, args.modules)
    weights = [weight for adapter in adapters.values() for weight in (adapter.A, adapter.B)]
    optimiser = torch.optim.AdamW(weights, lr=args.rate, betas=(0.9, 0.98), weight_decay=0.0)
    began = saved = time.monotonic()
    tokens, mean = 0, 0.0
    for step, batch in zip(range(1, args.steps + 1), batches(tokenizer, args.seed), strict=False):
        spent_s = time.monotonic() - began
        done = step / args.steps if args.minutes is None else spent_s / (60 * args.minutes)
        rate = args.rate * min(step / 20, 0.51 + 0.49 * math.cos(math.pi * min(done, 1)))
        optimiser.param_groups[0]["lr"] = rate
        loss = loss_of(model, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        tokens += batch[0].numel()
        mean = loss.item() if step == 1 else 0.95 * mean + 0.05 * loss.item()
        if step % 10 == 0:
            speed = tokens / (time.monotonic() - began)
            print(f"step {step} loss {mean:.3f} {speed:.0f} tokens/s", flush=True)
        if time.monotonic() - saved > 150 or step == args.steps or done >= 1:
            save_lora(adapters, args.out)
            saved = time.monotonic()
            print(f"step {step} test loss {test_loss(model, tokenizer):.3f}", flush=True)
        if done >= 1:
            break


if __name__ == "__main__":
    main()
