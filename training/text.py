"""The two text encoders and their warm-up on the captions alone.

    python -m training.text --minutes 2

The warm-up asks both encoders for the scene behind a caption (objects, colours, place, size), so
that the transformer meets vectors that already tell an apple from a car.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

from training import budget
from training.captions import write
from training.compositions import COLOURS, FULL, POSITIONS, SIZES, Scene, random_scene
from training.emoji import OBJECTS
from training.optimisers import MuonAndAdam
from training.tokenizers import MAX_TOKENS, build_clip_tokenizer, build_t5_tokenizer

RUNS = Path(__file__).parent / "runs"
WIDTH = 128

NAMES = ["", *(emoji.name for emoji in OBJECTS)]
# question -> the possible answers; "" where the scene has none
QUESTIONS: dict[str, list[str]] = {
    "first": NAMES,
    "second": NAMES,
    "top colour": ["", *COLOURS],
    "bottom colour": ["", *COLOURS],
    "position": list(POSITIONS),
    "size": list(SIZES),
    "second size": list(SIZES),
    "stacked": ["", "stacked"],
}


class Text(nn.Module):  # type: ignore[misc]
    """CLIP's pooled vector [rows, 128] and T5's token vectors [rows, tokens, 128] of captions."""

    def __init__(self) -> None:
        super().__init__()
        self.clip_tokenizer, self.t5_tokenizer = build_clip_tokenizer(), build_t5_tokenizer()
        self.clip = CLIPTextModel(clip_config(len(self.clip_tokenizer)))
        self.t5 = T5EncoderModel(t5_config(len(self.t5_tokenizer)))

    def tokenise(self, captions: list[str]) -> tuple[Tensor, Tensor]:
        """Two int64 [rows, 40], padded to the full length as ``FluxPipeline`` does."""
        clip, t5 = (
            tokenizer(
                captions,
                padding="max_length",
                max_length=MAX_TOKENS,
                truncation=True,
                return_tensors="pt",
            ).input_ids
            for tokenizer in (self.clip_tokenizer, self.t5_tokenizer)
        )
        return clip, t5

    def forward(self, clip_ids: Tensor, t5_ids: Tensor) -> tuple[Tensor, Tensor]:
        """No attention mask: the pipeline passes none, pads are attended to."""
        pooled = self.clip(clip_ids).pooler_output
        return pooled, self.t5(t5_ids).last_hidden_state


def clip_config(vocabulary: int) -> CLIPTextConfig:
    return CLIPTextConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        intermediate_size=2 * WIDTH,
        projection_dim=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=MAX_TOKENS,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=1,
        attn_implementation="eager",  # see training/attention.py
    )


def t5_config(vocabulary: int) -> T5Config:
    return T5Config(
        vocab_size=vocabulary,
        d_model=WIDTH,
        d_kv=32,
        d_ff=2 * WIDTH,
        num_layers=2,
        num_heads=4,
        relative_attention_num_buckets=16,
        relative_attention_max_distance=40,
        dropout_rate=0.0,
        feed_forward_proj="gated-gelu",
    )


def answers(scene: Scene) -> list[int]:
    """The scene's index in each list of ``QUESTIONS``."""
    first, second = scene.things[0], scene.things[1] if len(scene.things) == 2 else None
    words = [
        first.name,
        second.name if second else "",
        scene.background[0],
        scene.background[-1],
        first.position,
        first.size,
        second.size if second else "",
        "stacked" if scene.is_stacked else "",
    ]
    return [options.index(w) for w, options in zip(words, QUESTIONS.values(), strict=True)]


def matrices_of(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Parameters for Muon (matrices inside the layers) and for Adam (the rest)."""
    inner: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2 and "embed" not in name and "shared" not in name
        is_matrix = is_matrix and "relative_attention_bias" not in name
        (inner if is_matrix else rest).append(parameter)
    return inner, rest


def warm_up(text: Text, minutes: float, seed: int, batch: int = 128) -> dict[str, float]:
    """Teach both encoders the questions; returns the accuracy of each on the last 20 batches."""
    rng = random.Random(seed)
    options = [len(o) for o in QUESTIONS.values()]
    heads = nn.ModuleList([nn.Linear(WIDTH, sum(options)) for _ in range(2)])
    inner, rest = matrices_of(text)
    optimiser = MuonAndAdam(inner, [*rest, *heads.parameters()], 2e-3, 2e-3)
    clock = budget.Budget(minutes)
    recent: list[Tensor] = []
    while not clock.is_over:
        scenes = [random_scene(rng, FULL) for _ in range(batch)]
        wanted = torch.tensor([answers(scene) for scene in scenes])
        pooled, tokens = text(*text.tokenise([write(scene, rng) for scene in scenes]))
        outputs = [heads[0](pooled), heads[1](tokens.mean(1))]
        losses = [
            F.cross_entropy(logits, wanted[:, i])
            for output in outputs
            for i, logits in enumerate(output.split(options, -1))
        ]
        torch.stack(losses).sum().backward()
        optimiser.step(budget.learning_rate(clock.progress))
        right = [
            (o.argmax(-1) == wanted[:, i]).float().mean()
            for i, o in enumerate(outputs[0].split(options, -1))
        ]
        recent = [*recent[-19:], torch.stack(right)]
        clock.tick()
    shares = torch.stack(recent).mean(0).tolist()
    return {q: round(s, 3) for q, s in zip(QUESTIONS, shares, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Warm up the text encoders")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=RUNS)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    text = Text()
    print(sum(p.numel() for p in text.parameters()), warm_up(text, args.minutes, args.seed))
    budget.save(args.runs / "text.pt", {"text": text.state_dict()})


if __name__ == "__main__":
    main()
