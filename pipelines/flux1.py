"""FLUX.1 over diffusers' modules: dev, schnell and Kontext, which reads reference pictures."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipelines import schedule
from pipelines.flux import Flux, HeadState, PictureEncoding, run_block
from pipelines.grid import PATCH, Grid, pack, places


class Flux1(Flux):
    """Prompts have a pooled vector; latents have one shift and one scale."""

    def sigmas(self, steps: int, grid: Grid) -> list[float]:
        return schedule.sigmas(steps, grid.tokens, self.scheduler_config)

    # Pictures

    def draw_noise(self, grid: Grid, generator: torch.Generator) -> Tensor:
        channels: int = self.vae.config["latent_channels"]
        shape = (1, channels, grid.height * PATCH, grid.width * PATCH)
        return pack(torch.randn(shape, generator=generator, dtype=torch.float32)[0])

    def draw_start(
        self, encoding: PictureEncoding, grid: Grid, generator: torch.Generator
    ) -> Tensor:
        """A draw from the posterior, as diffusers' image-to-image."""
        noise = self.draw_noise(grid, generator).to(self.device)
        return self.standardise(encoding.mean + encoding.std * noise)

    def standardise(self, latents: Tensor) -> Tensor:
        return (latents - self._shift) * self.vae.config["scaling_factor"]

    def unstandardise(self, latents: Tensor) -> Tensor:
        return latents / self.vae.config["scaling_factor"] + self._shift

    @property
    def _shift(self) -> float:
        return self.vae.config["shift_factor"] or 0.0

    # The transformer

    def tail(self, state: HeadState) -> Tensor:
        net, text, picture = self.transformer, state.text, state.picture
        for kind in ("transformer_blocks", "single_transformer_blocks"):
            for index, block in enumerate(getattr(net, kind)):
                if block is not net.transformer_blocks[0]:
                    name = f"{kind}.{index}"
                    text, picture = _run(name, block, text, picture, state.modulation, state.rope)
        return picture[:, : state.tokens]

    def _first_block(
        self, picture: Tensor, text: Tensor, modulation: Tensor, rope: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        block = self.transformer.transformer_blocks[0]
        return _run("transformer_blocks.0", block, text, picture, modulation, rope)

    def _modulation(self, sigmas: Tensor, guidance: Tensor, pooled: Tensor | None) -> Tensor:
        time = self._times(sigmas)
        if not self.transformer.config["guidance_embeds"]:
            return self.transformer.time_text_embed(time, pooled)
        return self.transformer.time_text_embed(time, guidance.to(self.dtype) * 1000, pooled)

    def _position_ids(self, text_tokens: int, grids: Sequence[Grid]) -> Tensor:
        """Text at the origin, pictures at row and column, the first reference one layer away."""
        pictures = []
        for layer, grid in enumerate(grids):
            down, across = places(grid)
            pictures.append(torch.stack([torch.full_like(down, layer), down, across], dim=-1))
        return torch.cat([torch.zeros(text_tokens, 3, dtype=torch.long), *pictures])


def _run(
    name: str,
    block: Any,
    text: Tensor,
    picture: Tensor,
    modulation: Tensor,
    rope: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """Text and picture behind a block; those of both kinds are called alike."""
    both: tuple[Tensor, Tensor] = run_block(
        name,
        block,
        hidden_states=picture,
        encoder_hidden_states=text,
        temb=modulation,
        image_rotary_emb=rope,
    )
    return both
