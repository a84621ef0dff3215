"""FLUX.2 over diffusers' modules: dev and klein.

All blocks of a kind share one modulation, latents are standardised by the VAE's batch norm, and the
schedule's shift depends on the number of steps, too.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipelines import schedule
from pipelines.flux import Flux, HeadState, PictureEncoding, run_block
from pipelines.grid import Grid, places

REFERENCE_GAP = 10  # between the time coordinates of the picture and its references


class Flux2(Flux):
    def sigmas(self, steps: int, grid: Grid) -> list[float]:
        shift = schedule.flux2_shift(grid.tokens, steps)
        return schedule.shifted_sigmas(steps, shift, self.scheduler_config)

    # Pictures

    def draw_noise(self, grid: Grid, generator: torch.Generator) -> Tensor:
        shape = (1, self.transformer.config["in_channels"], *grid)
        noise = torch.randn(shape, generator=generator, dtype=torch.float32)
        return noise[0].flatten(1).T.contiguous()

    def draw_start(
        self, encoding: PictureEncoding, grid: Grid, generator: torch.Generator
    ) -> Tensor:
        """The posterior's mode, as in diffusers' klein inpainting: nothing is drawn."""
        return self.standardise(encoding.mean)

    def standardise(self, latents: Tensor) -> Tensor:
        mean, std = self._statistics()
        return (latents - mean) / std

    def unstandardise(self, latents: Tensor) -> Tensor:
        mean, std = self._statistics()
        return latents * std + mean

    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Each `[packed]`, float32."""
        norm = self.vae.bn
        variance = norm.running_var.float() + self.vae.config["batch_norm_eps"]
        return norm.running_mean.float(), variance.sqrt()

    # The transformer

    def tail(self, state: HeadState) -> Tensor:
        net, text, picture = self.transformer, state.text, state.picture
        modulations = self._double_modulations(state.modulation)
        for index, block in enumerate(net.transformer_blocks[1:], start=1):
            text, picture = _run_double(index, block, text, picture, modulations, state.rope)
        both = torch.cat([text, picture], dim=1)
        of_both = net.single_stream_modulation(state.modulation)
        for index, block in enumerate(net.single_transformer_blocks):
            both = run_block(
                f"single_transformer_blocks.{index}",
                block,
                hidden_states=both,
                encoder_hidden_states=None,
                temb_mod=of_both,
                image_rotary_emb=state.rope,
            )
        first = text.shape[1]
        return both[:, first : first + state.tokens]

    def _first_block(
        self, picture: Tensor, text: Tensor, modulation: Tensor, rope: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        block, modulations = (
            self.transformer.transformer_blocks[0],
            self._double_modulations(modulation),
        )
        return _run_double(0, block, text, picture, modulations, rope)

    def _double_modulations(self, modulation: Tensor) -> tuple[Tensor, Tensor]:
        net = self.transformer
        of_picture = net.double_stream_modulation_img(modulation)
        return of_picture, net.double_stream_modulation_txt(modulation)

    def _modulation(self, sigmas: Tensor, guidance: Tensor, pooled: Tensor | None) -> Tensor:
        # Without a guidance embedding the module leaves the guidance unread.
        time = self._times(sigmas)
        return self.transformer.time_guidance_embed(time, guidance.to(self.dtype) * 1000)

    def _position_ids(self, text_tokens: int, grids: Sequence[Grid]) -> Tensor:
        """Time, row, column, place in the text: `[all tokens, 4]`."""
        text = torch.zeros(text_tokens, 4, dtype=torch.long)
        text[:, 3] = torch.arange(text_tokens)
        parts = [text]
        for index, grid in enumerate(grids):
            down, across = places(grid)
            time = torch.full_like(down, REFERENCE_GAP * index)
            parts.append(torch.stack([time, down, across, torch.zeros_like(down)], dim=-1))
        return torch.cat(parts)


def _run_double(
    index: int,
    block: Any,
    text: Tensor,
    picture: Tensor,
    modulations: tuple[Tensor, Tensor],
    rope: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """Text and picture behind a block with a stream for each."""
    of_picture, of_text = modulations
    both: tuple[Tensor, Tensor] = run_block(
        f"transformer_blocks.{index}",
        block,
        hidden_states=picture,
        encoder_hidden_states=text,
        temb_mod_img=of_picture,
        temb_mod_txt=of_text,
        image_rotary_emb=rope,
    )
    return both
