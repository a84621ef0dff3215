"""What shorter numbers cost the embedded text model: likelihood by weights and cache.

`python -m benchmarks.text_quality` reads the same prompts, eight tokens at a time so that the cache
counts, and prints nats a token: 4-bit and bfloat16 layers against float32, each kind of cache.
"""

import argparse
import math
from pathlib import Path

import torch

from benchmarks.report import Claim, json_line
from pipelines.text import embedded
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel, Read
from pipelines.text.loading import load_text_model
from training.expansion.pairs import pairs

PROMPTS, SEED = 40, 9
PIECE = 8
WEIGHTS = {"4 bits": "auto", "bfloat16": "bfloat16", "float32": "float32"}
CACHES = ("float32", "bfloat16", "float8_e4m3fn")


def nats_a_token(model: LanguageModel, dtype: torch.dtype | None) -> float:
    """Mean of -log p of the next token over all prompts, each with a cache of its own."""
    total, count = 0.0, 0
    for pair in pairs(PROMPTS, SEED):
        ids = model.tokens.encode(pair.prompt)
        cache = KVCache(1, len(ids), dtype)
        for start in range(0, len(ids) - 1, PIECE):
            piece = ids[start : start + PIECE]
            logs = model.logits(model.read([Read(0, start, piece)], cache)).log_softmax(-1)
            following = torch.tensor(ids[start + 1 : start + 1 + len(piece)])
            total -= float(logs[: len(following)].gather(1, following[:, None]).sum())
            count += len(following)
    return total / count


def main() -> None:
    """Print the table, then the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("data/text"))
    folder = parser.parse_args().folder
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    found: dict[tuple[str, str], float] = {}
    for weights, dtype in WEIGHTS.items():
        model = load_text_model(embedded.NAME, folder=folder, device="cpu", dtype=dtype)
        for kept in CACHES:
            nats = nats_a_token(model, getattr(torch, kept))
            found[weights, kept] = nats
            print(f"{weights:9} layers, {kept:14} cache  {nats:.4f} nats a token", flush=True)
    exact = found["float32", "float32"]
    assert math.isfinite(exact)
    claims = [
        Claim("4-bit layers: nats over float32's", found["4 bits", "bfloat16"] - exact, 0.02),
        Claim(
            "float8 cache: nats over bfloat16's",
            found["4 bits", "float8_e4m3fn"] - found["4 bits", "bfloat16"],
            0.1,
        ),
    ]
    rows = [{"weights": key[0], "cache": key[1], "nats": nats} for key, nats in found.items()]
    print(json_line("text_quality", claims, rows))


if __name__ == "__main__":
    main()
