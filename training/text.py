"""The two text encoders and their warm-up on the captions alone.

    python -m training.text --minutes 2 [--from assets/flux-emoji]

The warm-up asks both encoders for the scene behind a caption (objects, colours, place, size), so
that the transformer meets vectors that already tell an apple from a car. With ``--from`` it goes on
from a shipped model's encoders, whose vocabulary may be another. Fresh ones learn faster: after 300
batches of 96 T5 named 96 % of the first objects, the shipped ones 78 %; ``bridge.py`` lets the
shipped transformer read them.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    PreTrainedModel,
    T5Config,
    T5EncoderModel,
)

from training import budget
from training.captions import write
from training.compositions import (
    ARRANGEMENTS,
    COLOURS,
    FULL,
    POSITIONS,
    SETTINGS,
    SIZES,
    Scene,
    random_scene,
)
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
    "first colour": ["", *COLOURS],
    "second colour": ["", *COLOURS],
    "top colour": ["", *COLOURS],
    "bottom colour": ["", *COLOURS],
    "setting": ["", *SETTINGS],
    "position": list(POSITIONS),
    "size": list(SIZES),
    "second size": list(SIZES),
    "arrangement": list(ARRANGEMENTS),
    "count": ["1", "2", "3"],
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

    def adopt(self, folder: Path) -> None:
        """Take over the encoders of a FLUX.1 folder; words that it did not know stay fresh.

        Raises RuntimeError where its layers have other shapes.
        """
        clip, t5 = ("", self.clip_tokenizer, self.clip), ("_2", self.t5_tokenizer, self.t5)
        for end, tokenizer, model in (clip, t5):
            shipped = type(model).from_pretrained(folder / f"text_encoder{end}")
            known = type(tokenizer).from_pretrained(folder / f"tokenizer{end}").get_vocab()
            adopt_weights(model, tokenizer.get_vocab(), shipped, known)


def adopt_weights(
    model: PreTrainedModel, ids: dict[str, int], shipped: PreTrainedModel, known: dict[str, int]
) -> None:
    """Copy every weight of ``shipped``; of the embeddings the rows whose tokens both know.

    ``ids`` and ``known``: token -> row of ``model`` and of ``shipped``. The other rows keep their
    random direction, at the scale of the copied ones.
    """
    fresh = model.get_input_embeddings().weight
    trained = shipped.get_input_embeddings().weight.detach()
    common = sorted(ids.keys() & known.keys())
    rows = fresh.detach() * (trained.std() / fresh.detach().std())
    rows[[ids[token] for token in common]] = trained[[known[token] for token in common]]
    tied = [n for n, p in model.named_parameters(remove_duplicate=False) if p is fresh]
    model.load_state_dict({**shipped.state_dict(), **dict.fromkeys(tied, rows)})


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
    first, *others = scene.things
    second = others[0] if others and scene.arrangement != "some" else None
    words = [
        first.name,
        second.name if second else "",
        first.colour,
        second.colour if second else "",
        scene.background[0] if scene.background else "",
        scene.background[-1] if scene.background else "",
        scene.setting,
        first.position,
        first.size,
        second.size if second else "",
        scene.arrangement,
        "1" if second else str(len(scene.things)),
    ]
    return [options.index(w) for w, options in zip(words, QUESTIONS.values(), strict=True)]


class Reader(nn.Module):  # type: ignore[misc]
    """Answers each question from T5's tokens, looking at them by a query of its own.

    So does the transformer; a mean over the tokens teaches the encoder far slower.
    """

    def __init__(self, options: list[int]) -> None:
        super().__init__()
        self.queries = nn.Linear(WIDTH, len(options), bias=False)
        self.heads = nn.ModuleList([nn.Linear(WIDTH, size) for size in options])

    def forward(self, tokens: Tensor) -> list[Tensor]:
        """tokens: [rows, tokens, 128]; for each question logits [rows, answers]."""
        weights = self.queries(tokens).softmax(1)  # [rows, tokens, questions]
        seen = weights.transpose(1, 2) @ tokens
        return [head(x) for head, x in zip(self.heads, seen.unbind(1), strict=True)]


def optimisers_of(text: Text, heads: nn.Module) -> list[MuonAndAdam]:
    """Muon for the matrices inside the layers; Adam for the rest, faster for T5's place biases."""
    inner: list[nn.Parameter] = []
    biases: list[nn.Parameter] = []
    rest: list[nn.Parameter] = list(heads.parameters())
    for name, parameter in text.named_parameters():
        is_inner = parameter.ndim == 2 and "embed" not in name and "shared" not in name
        is_bias = "relative_attention_bias" in name
        (biases if is_bias else inner if is_inner else rest).append(parameter)
    # Attention to the word beside needs biases of several units: hundreds of steps at 2e-3.
    return [MuonAndAdam(inner, rest, 2e-3, 2e-3), MuonAndAdam([], biases, 0.0, 4e-2)]


def warm_up(text: Text, minutes: float, seed: int, batch: int = 128) -> dict[str, dict[str, float]]:
    """Teach both encoders the questions.

    Returns encoder -> question -> share of right answers in the last 20 batches.
    """
    rng = random.Random(seed)
    options = [len(o) for o in QUESTIONS.values()]
    heads = nn.ModuleList([nn.Linear(WIDTH, sum(options)), Reader(options)])
    optimisers = optimisers_of(text, heads)
    clock = budget.Budget(minutes)
    recent: list[Tensor] = []
    while not clock.is_over:
        scenes = [random_scene(rng, FULL) for _ in range(batch)]
        wanted = torch.tensor([answers(scene) for scene in scenes])
        pooled, tokens = text(*text.tokenise([write(scene, rng) for scene in scenes]))
        both = [heads[0](pooled).split(options, -1), heads[1](tokens)]
        losses = [F.cross_entropy(o, wanted[:, i]) for out in both for i, o in enumerate(out)]
        torch.stack(losses).sum().backward()
        for optimiser in optimisers:
            optimiser.step(budget.learning_rate(clock.progress))
        chosen = torch.stack([torch.stack([o.argmax(-1) for o in out], -1) for out in both])
        recent = [*recent[-19:], (chosen == wanted).float().mean(1)]
        clock.tick()
    shares = torch.stack(recent).mean(0)  # [encoders, questions]
    return {
        encoder: {q: round(float(s), 3) for q, s in zip(QUESTIONS, row, strict=True)}
        for encoder, row in zip(("clip", "t5"), shares, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Warm up the text encoders")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--from", type=Path, dest="source", help="a FLUX.1 folder to go on from")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    text = Text()
    if args.source:
        text.adopt(args.source)
    shares = warm_up(text, args.minutes, args.seed)
    for encoder, row in shares.items():
        print(encoder, row)
    budget.save(args.runs / "text.pt", {"text": text.state_dict()})


if __name__ == "__main__":
    main()
