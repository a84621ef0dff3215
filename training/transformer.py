"""The FLUX transformer and the text encoders, trained together by rectified flow.

    python -m training.transformer --stage half --minutes 25
    python -m training.transformer --stage full --start half --minutes 40
    python -m training.transformer --stage buckets --start full --minutes 15 [--resume]
    python -m training.transformer --stage buckets --from assets/flux-emoji --minutes 60

A stage begins with the weights of ``--start``, or with those of a shipped model and a fresh
optimiser; it reads the pool that ``training.latents`` made for it, and leaves
``runs/transformer-<stage>.pt`` with raw and averaged weights.
"""

from __future__ import annotations

import argparse
import copy
import random
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor, nn

from training import budget
from training.attention import use_matrix_attention
from training.bridge import bridge
from training.guides import Guides
from training.latents import STAGES, Chunk, Pool, Stage
from training.optimisers import MuonAndAdam
from training.text import WIDTH, Text

RUNS = Path(__file__).parent / "runs"
DROPOUT = 0.1  # share of captions replaced by the empty one
EMA = 0.998
PADDED = 0.25  # share of batches with as many pads as the pipeline shows; the others are shorter
GUIDES = 0.05  # weight of what the early blocks are asked
INK = 4.0  # times the weight of a token with a thing in it: backgrounds are learnt in no time


def build() -> FluxTransformer2DModel:
    """2 double and 10 single blocks, 6 heads of 32; 8.6 M weights."""
    return FluxTransformer2DModel(
        patch_size=1,
        in_channels=128,
        num_layers=2,
        num_single_layers=10,
        attention_head_dim=32,
        num_attention_heads=6,
        joint_attention_dim=WIDTH,
        pooled_projection_dim=WIDTH,
        guidance_embeds=True,
        axes_dims_rope=(8, 12, 12),
    )


class Painter(nn.Module):  # type: ignore[misc]
    """Transformer and text encoders: from noisy latents and token ids to velocities."""

    def __init__(self) -> None:
        super().__init__()
        self.transformer, self.text = build(), Text()

    def forward(
        self, x: Tensor, sigma: Tensor, batch: Chunk, guidance: Tensor, spacing: int = 1
    ) -> Tensor:
        """x: packed [rows, tokens, 128]; sigma, guidance: [rows]; answers like x."""
        pooled, tokens = self.text(batch.clip, batch.t5)
        return self.transformer(
            hidden_states=x,
            encoder_hidden_states=tokens,
            pooled_projections=pooled,
            timestep=sigma,
            img_ids=position_ids(batch.latents.shape[2], batch.latents.shape[3], spacing).to(
                x.device
            ),
            txt_ids=torch.zeros(tokens.shape[1], 3, device=x.device),
            guidance=guidance,
            return_dict=False,
        )[0]


def position_ids(height: int, width: int, spacing: int) -> Tensor:
    """FLUX's ids [tokens, 3] of a latent of this size; spaced ones: at the patch's middle."""
    rows = torch.arange(height // 2) * spacing + (spacing - 1) / 2
    columns = torch.arange(width // 2) * spacing + (spacing - 1) / 2
    grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij"), -1).reshape(-1, 2)
    return torch.cat([torch.zeros(len(grid), 1), grid], 1)


def pack(latents: Tensor) -> Tensor:
    """[rows, c, h, w] -> [rows, h/2·w/2, 4c], in FLUX's order."""
    n, c, h, w = latents.shape
    x = latents.view(n, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5)
    return x.reshape(n, h * w // 4, 4 * c)


def noised(
    clean: Tensor, mean: float = 0.0, generator: torch.Generator | None = None
) -> tuple[Tensor, ...]:
    """Rectified flow (Liu et al. 2022): x = (1-σ)·clean + σ·noise, σ logit-normal (Esser 2024).

    ``mean`` is that of σ's logit: above 0 for larger pictures, which need more noise to be hidden.
    Returns x, σ [rows] and the velocity noise - clean.
    """
    noise = torch.randn(clean.shape, generator=generator).to(clean)
    sigma = torch.sigmoid(mean + torch.randn(len(clean), generator=generator)).to(clean)
    s = sigma[:, None, None]
    return (1 - s) * clean + s * noise, sigma, noise - clean


class Captions:
    """Prepares a batch's token ids: some captions emptied, and most batches without idle pads."""

    def __init__(self, text: Text, tokens: int) -> None:
        self.tokens = tokens
        self.empty_clip, self.empty_t5 = text.tokenise([""])

    def drop(self, batch: Chunk, rng: random.Random, share: float) -> Chunk:
        gone = torch.tensor([rng.random() < share for _ in batch.clip])[:, None]
        clip = torch.where(gone, self.empty_clip, batch.clip)
        t5 = torch.where(gone, self.empty_t5[:, : batch.t5.shape[1]], batch.t5)
        return replace(batch, clip=clip, t5=t5)

    def trim(self, batch: Chunk, rng: random.Random) -> Chunk:
        """At the stage's length, or at the multiple of 8 that holds every caption."""
        length = self.tokens
        if rng.random() >= PADDED:
            longest = int((batch.t5 != self.empty_t5[0, -1]).sum(1).max())
            length = min(length, -(-longest // 8) * 8)
        return replace(batch, t5=batch.t5[:, :length])


def matrices_of(painter: Painter) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Matrices inside blocks and layers for Muon; embeddings, norms, biases and ends for Adam."""
    inner: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in painter.named_parameters():
        is_block = "blocks." in name or ".layers." in name or ".block." in name
        is_matrix = parameter.ndim == 2 and "relative_attention_bias" not in name
        (inner if is_block and is_matrix else rest).append(parameter)
    return inner, rest


def average(ema: nn.Module, model: nn.Module, step: int) -> None:
    """Move the averaged weights a little towards the trained ones; faster in the beginning."""
    decay = min(EMA, (1 + step) / (10 + step))
    with torch.no_grad():
        torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)


def to_device(batch: Chunk, device: str) -> Chunk:
    return Chunk(*(getattr(batch, field.name).to(device) for field in fields(Chunk)))


def load_start(painter: Painter, ema: Painter, state: Mapping[str, Mapping[str, Tensor]]) -> None:
    painter.load_state_dict(state["model"])
    ema.load_state_dict(state["ema"])


def first_painter(args: argparse.Namespace) -> Painter:
    """The warmed-up text encoders, beside a shipped model's transformer or a new one.

    A shipped transformer has learnt to read other vectors: `bridge` makes it read the new ones.
    """
    painter = Painter()
    painter.text.load_state_dict(budget.load(args.runs / "text.pt")["text"])
    if args.from_model:
        shipped = FluxTransformer2DModel.from_pretrained(args.from_model / "transformer")
        painter.transformer.load_state_dict(shipped.float().state_dict())
        old = Text()
        old.adopt(args.from_model)
        bridge(painter.transformer, old, painter.text)
    return painter


def compile_blocks(painter: Painter) -> None:
    """Compile each block for any size: 1.2 times the pictures a second, after 90 s on two cores."""
    transformer = painter.transformer
    for block in (*transformer.transformer_blocks, *transformer.single_transformer_blocks):
        block.forward = torch.compile(block.forward, dynamic=True)  # leaves its hooks outside


def flow_loss(painter: Painter, batch: Chunk, stage: Stage) -> Tensor:
    """Mean squared error of the velocity, at guidance 1 (what the embedding means undistilled)."""
    x, sigma, velocity = noised(pack(batch.latents), stage.noise)
    with torch.autocast(x.device.type, torch.bfloat16):
        answer = painter(x, sigma, batch, torch.ones_like(sigma), stage.spacing)
    return weighted_error(answer.float() - velocity, batch.ink)


def weighted_error(error: Tensor, ink: Tensor) -> Tensor:
    """Mean square of [rows, tokens, 128], where tokens with ink [rows, tokens] count more."""
    weight = 1 + (INK - 1) * ink.to(error)
    return (error.square().mean(-1) * weight).sum() / weight.sum()


def train(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    stage, device = STAGES[args.stage], args.device
    path = args.runs / f"transformer-{args.stage}.pt"
    source = path if args.resume else args.runs / f"transformer-{args.start}.pt"
    state = budget.load(source) if args.resume or args.start else {}
    painter = Painter() if state else first_painter(args)
    ema = copy.deepcopy(painter).requires_grad_(False)
    if state:
        load_start(painter, ema, state)
    painter.to(device)
    ema.to(device)
    if device == "cpu":
        use_matrix_attention()
    if args.compile:
        compile_blocks(painter)
    guides = Guides(painter.transformer).to(device)
    matrices, others = matrices_of(painter)
    optimiser = MuonAndAdam(
        matrices, [*others, *guides.parameters()], args.muon_rate, args.adam_rate
    )
    if "guides" in state:  # the optimiser of a checkpoint without them has other parameters
        guides.load_state_dict(state["guides"])
        optimiser.load_state_dict(state["optimiser"])
    clock = budget.Budget(args.minutes, state["spent_s"] if args.resume else 0.0)
    step, seen = state.get("step", 0), state.get("seen", 0)
    pool = Pool(args.runs / "pools" / args.stage)
    captions = Captions(painter.text, stage.tokens)

    def checkpoint() -> None:
        pool.refresh()
        weights = {"model": painter.state_dict(), "ema": ema.state_dict()}
        numbers = {"spent_s": clock.spent_s, "step": step, "seen": seen}
        learnt = {"optimiser": optimiser.state_dict(), "guides": guides.state_dict()}
        budget.save(path, {**weights, **learnt, **numbers})

    means: dict[str, float] = {}
    recent = 0
    while not clock.is_over:
        chosen = captions.trim(pool.batch(rng, args.batch), rng)
        batch = to_device(captions.drop(chosen, rng, DROPOUT), device)
        losses = {"loss": flow_loss(painter, batch, stage)}
        losses |= guides.loss(*(side // 2 for side in batch.latents.shape[2:]), batch.parts)
        (losses["loss"] + GUIDES * (losses["places"] + losses["names"])).backward()
        optimiser.step(budget.learning_rate(clock.progress, warm=args.warm, flat=args.flat))
        step, seen = step + 1, seen + args.batch
        average(ema, painter, step)
        clock.tick()
        recent += 1
        for name, value in losses.items():
            before = means.get(name, 0.0)
            means[name] = before + (float(value.detach()) - before) / min(50, recent)
        if step % args.log_every == 0:
            told = " ".join(f"{name} {mean:.4f}" for name, mean in means.items())
            print(f"{step} {clock.spent_s:.0f} s {seen} seen {told}", flush=True)
        if clock.is_save_due():
            checkpoint()
    checkpoint()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the transformer for one stage")
    parser.add_argument("--stage", choices=sorted(STAGES), required=True)
    parser.add_argument("--start", default="", help="stage whose weights to begin with")
    parser.add_argument("--from", dest="from_model", type=Path, help="folder of a shipped model")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--muon-rate", type=float, default=2e-3)
    parser.add_argument("--adam-rate", type=float, default=1e-3)
    parser.add_argument("--warm", type=float, default=0.02, help="share of the time to rise")
    parser.add_argument("--flat", type=float, default=0.9, help="share of the time before falling")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--compile", action="store_true", help="the blocks, by torch.compile")
    parser.add_argument("--resume", action="store_true")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
