"""Expand ideas and print them for a person to read: `python -m training.expansion.read MODEL`.

One fixed seed an idea (its place in the list), plain transformers with the adapter added. Whether
a prompt keeps its subject and would make a picture is for the reader to say, line by line.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from studio.expansion.template import (
    MAX_TOKENS,
    REPETITION_PENALTY,
    STOP,
    TEMPERATURE,
    TOP_P,
    prefix_of,
    prompt_of,
)
from training.expansion.lora import load_lora
from training.expansion.pairs import HELD_OUT


def chosen(logits: Tensor, temperature: float, top_p: float, generator: torch.Generator) -> int:
    """One token of logits [vocabulary]: the likeliest ones that make up `top_p`, drawn from."""
    if temperature == 0:
        return int(logits.argmax())
    ordered, tokens = (logits.float() / temperature).softmax(-1).sort(descending=True)
    is_needed = ordered.cumsum(-1) - ordered < top_p
    at = torch.multinomial(ordered * is_needed, 1, generator=generator)
    return int(tokens[at])


@torch.inference_mode()
def expand(
    model: nn.Module,
    tokenizer: object,
    idea: str,
    seed: int,
    temperature: float = TEMPERATURE,
    top_p: float = TOP_P,
    penalty: float = REPETITION_PENALTY,
) -> tuple[str, bool]:
    """The whole prompt, and whether the model ended it itself."""
    generator = torch.Generator().manual_seed(seed)
    ids = tokenizer(prefix_of(idea), return_tensors="pt").input_ids  # type: ignore[operator]
    seen = set(ids[0].tolist())
    written: list[int] = []
    output = model(input_ids=ids, use_cache=True)
    while len(written) < MAX_TOKENS:
        logits = output.logits[0, -1].float()
        known = torch.tensor(sorted(seen))
        logits[known] = torch.where(
            logits[known] > 0, logits[known] / penalty, logits[known] * penalty
        )
        written.append(chosen(logits, temperature, top_p, generator))
        seen.add(written[-1])
        text = tokenizer.decode(written)  # type: ignore[attr-defined]
        if STOP in text or written[-1] == tokenizer.eos_token_id:  # type: ignore[attr-defined]
            return prompt_of(idea, text), True
        output = model(
            input_ids=torch.tensor([[written[-1]]]),
            past_key_values=output.past_key_values,
            use_cache=True,
        )
    return prompt_of(idea, tokenizer.decode(written)), False  # type: ignore[attr-defined]


def main() -> None:
    """Print a table of ideas and prompts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="folder of the base model")
    parser.add_argument("--adapter", type=Path, help="without it: the base model")
    parser.add_argument("--ideas", type=Path, default=HELD_OUT, help="one idea a line")
    parser.add_argument("--temperature", type=float, default=TEMPERATURE)
    parser.add_argument("--top-p", type=float, default=TOP_P)
    parser.add_argument("--penalty", type=float, default=REPETITION_PENALTY)
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    if args.adapter:
        load_lora(model, args.adapter)
    print("| | idea | prompt | words | ended |\n|---|---|---|---|---|")
    for index, idea in enumerate(args.ideas.read_text(encoding="utf-8").splitlines()):
        prompt, has_ended = expand(
            model, tokenizer, idea, index, args.temperature, args.top_p, args.penalty
        )
        words = len(prompt.split()) - len(idea.split())
        print(
            f"| {index} | {idea} | {prompt} | {words} | {'yes' if has_ended else 'no'} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
