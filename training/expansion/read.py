"""Expand ideas and print them for a person to read: `python -m training.expansion.read MODEL`.

One fixed seed an idea (its place in the list), plain transformers with the adapter added. Whether
a prompt keeps its subject and would make a picture is for the reader to say, line by line.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from studio.expansion.template import (
    MAX_TOKENS,
    REPETITION_PENALTY,
    STOP,
    TEMPERATURE,
    TOP_P,
    clean_idea,
    prefix_of,
)
from training.expansion.lora import load_lora
from training.expansion.pairs import HELD_OUT


def prompt_of(idea: str, continuation: str) -> str:
    """The whole prompt: the idea, a comma, and what the model wrote before the newline."""
    written = " ".join(continuation.split(STOP, 1)[0].split()).strip(" ,")
    cleaned = clean_idea(idea)
    return f"{cleaned}, {written}" if written else cleaned


def chosen(logits: Tensor, temperature: float, top_p: float, generator: torch.Generator) -> int:
    """One token of logits [vocabulary]: the likeliest ones that make up `top_p`, drawn from."""
    if temperature == 0:
        return int(logits.argmax())
    ordered, tokens = (logits / temperature).softmax(-1).sort(descending=True)
    is_needed = ordered.cumsum(-1) - ordered < top_p
    return int(tokens[torch.multinomial(ordered * is_needed, 1, generator=generator)])


def penalised(logits: Tensor, seen: list[int], penalty: float) -> Tensor:
    """Logits [vocabulary] with those of seen tokens made less likely (CTRL, Keskar et al. 2019)."""
    logits = logits.float().clone()
    known = torch.tensor(sorted(set(seen)))
    values = logits[known]
    logits[known] = torch.where(values > 0, values / penalty, values * penalty)
    return logits


@torch.inference_mode()
def expand(
    model: nn.Module,
    tokenizer: Any,
    ideas: list[str],
    seeds: list[int],
    temperature: float = TEMPERATURE,
    top_p: float = TOP_P,
    penalty: float = REPETITION_PENALTY,
) -> list[tuple[str, bool]]:
    """The whole prompt of each idea, and whether the model ended it itself; all in one batch."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    prefixes = [tokenizer(prefix_of(idea)).input_ids for idea in ideas]
    width = max(map(len, prefixes))
    # Padded on the left, so that all rows write their next token at the same place.
    step = torch.tensor([[0] * (width - len(ids)) + ids for ids in prefixes])
    mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in prefixes])
    places = (mask.cumsum(1) - 1).clamp(min=0)
    written: list[list[int]] = [[] for _ in ideas]
    has_ended = [False] * len(ideas)
    cache = None
    for _ in range(MAX_TOKENS):
        output = model(
            input_ids=step,
            attention_mask=mask,
            position_ids=places,
            cache=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = output.cache
        for row, logits in enumerate(output.logits[:, -1]):
            if not has_ended[row]:
                logits = penalised(logits, prefixes[row] + written[row], penalty)
                written[row].append(chosen(logits, temperature, top_p, generators[row]))
                has_ended[row] = STOP in tokenizer.decode(written[row])
        if all(has_ended):
            break
        step = torch.tensor([tokens[-1:] for tokens in written])
        mask = torch.cat([mask, torch.ones_like(step)], dim=1)
        places = places[:, -1:] + 1
    texts = [tokenizer.decode(tokens) for tokens in written]
    return [(prompt_of(*pair), end) for *pair, end in zip(ideas, texts, has_ended, strict=True)]


def main() -> None:
    """Print a table of ideas and prompts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="folder of the base model")
    parser.add_argument("--adapter", type=Path, help="without it: the base model")
    parser.add_argument("--ideas", type=Path, default=HELD_OUT, help="one idea a line")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first idea; the next has one more"
    )
    parser.add_argument("--temperature", type=float, default=TEMPERATURE)
    parser.add_argument("--top-p", type=float, default=TOP_P)
    parser.add_argument("--penalty", type=float, default=REPETITION_PENALTY)
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    if args.adapter:
        load_lora(model, args.adapter)
    ideas = args.ideas.read_text(encoding="utf-8").splitlines()
    seeds = list(range(args.seed, args.seed + len(ideas)))
    print("| | idea | prompt | words added | ended |\n|---|---|---|---|---|")
    sampling = args.temperature, args.top_p, args.penalty
    expanded = expand(model, tokenizer, ideas, seeds, *sampling)
    for index, (idea, (prompt, has_ended)) in enumerate(zip(ideas, expanded, strict=True)):
        added = len(prompt.split()) - len(idea.split())
        print(f"| {index} | {idea} | {prompt} | {added} | {'yes' if has_ended else 'no'} |")


if __name__ == "__main__":
    main()
