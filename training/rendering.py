"""Pictures to be judged: text-to-image by diffusers, image-to-image by the studio's engine.

The weights are judged through diffusers' own ``FluxPipeline``, so that a fault of our engine can
neither spoil nor flatter them. Edits go through ``PictureEngine``: it is what people edit with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from diffusers import FluxPipeline

from pipelines.engine import PictureEngine
from pipelines.loading import load
from pipelines.requests import PictureDone, RenderRequest, RequestFailed
from pipelines.specs import find_spec

BATCH = 20  # of 256x256


@dataclass(frozen=True, slots=True)
class Settings:
    """How a picture is drawn; sizes in pixels."""

    steps: int = 20
    guidance_scale: float = 3.5
    width: int = 256
    height: int = 256
    true_cfg_scale: float = 1.0


class Renderer:
    """Text-to-image by diffusers from a model's folder."""

    def __init__(self, folder: Path, max_tokens: int) -> None:
        self.pipeline = FluxPipeline.from_pretrained(folder)
        self.pipeline.set_progress_bar_config(disable=True)
        self.max_tokens = max_tokens

    def render(
        self,
        texts: Sequence[str],
        seeds: Sequence[int],
        settings: Settings,
        negatives: Sequence[str] | None = None,
    ) -> list[np.ndarray]:
        """One uint8 picture [height, width, 3] a text, its noise from the seed beside it."""
        pictures: list[np.ndarray] = []
        batch = max(1, BATCH * 256 * 256 // (settings.width * settings.height))
        for start in range(0, len(texts), batch):
            part = slice(start, start + batch)
            pictures += self._batch(
                list(texts[part]),
                seeds[part],
                settings,
                None if negatives is None else list(negatives[part]),
            )
        return pictures

    def _batch(
        self,
        texts: list[str],
        seeds: Sequence[int],
        settings: Settings,
        negatives: list[str] | None,
        latents: torch.Tensor | None = None,
    ) -> list[np.ndarray]:
        images = self.pipeline(
            texts,
            height=settings.height,
            width=settings.width,
            num_inference_steps=settings.steps,
            guidance_scale=settings.guidance_scale,
            negative_prompt=negatives,
            true_cfg_scale=settings.true_cfg_scale,
            max_sequence_length=self.max_tokens,
            generator=[torch.Generator().manual_seed(seed) for seed in seeds],
            latents=latents,
        ).images
        return [np.asarray(image) for image in images]

    def noise_shape(self, settings: Settings) -> tuple[int, int, int, int]:
        """Of a picture's latents: 1, channels, height, width."""
        scale = self.pipeline.vae_scale_factor
        channels = self.pipeline.vae.config.latent_channels
        return 1, channels, settings.height // scale, settings.width // scale

    def from_noise(self, text: str, noise: torch.Tensor, settings: Settings) -> np.ndarray:
        """The picture of the text that begins with this noise [1, channels, h, w]."""
        packed = FluxPipeline._pack_latents(noise, *noise.shape)
        return self._batch([text], [0], settings, None, packed)[0]


@dataclass(frozen=True, slots=True)
class Edit:
    """A picture, uint8 [h, w, 3], what to make of it, and how far to go: 0 < strength <= 1."""

    source: np.ndarray
    text: str
    strength: float
    seed: int


class Editor:
    """Image-to-image by the studio's engine from a model's folder."""

    def __init__(self, folder: Path) -> None:
        spec = find_spec(str(folder))
        model = load(spec, device="cpu", on_progress=lambda what, share: None)
        self.engine = PictureEngine(model)

    def edit(self, edits: Sequence[Edit], settings: Settings) -> list[np.ndarray]:
        """One picture an edit. Raises RuntimeError, with the engine's words, where one fails."""
        for i, edit in enumerate(edits):
            self.engine.submit(_request(str(i), edit, settings))
        pictures: dict[int, np.ndarray] = {}
        while not self.engine.is_idle:
            for event in self.engine.tick():
                if isinstance(event, RequestFailed):
                    raise RuntimeError(event.message)
                if isinstance(event, PictureDone):
                    pictures[int(event.request_id)] = event.pixels
        return [pictures[i] for i in range(len(edits))]


def _request(name: str, edit: Edit, settings: Settings) -> RenderRequest:
    height, width = edit.source.shape[:2]
    return RenderRequest(
        id=name,
        prompt=edit.text,
        width=width,
        height=height,
        steps=settings.steps,
        seeds=(edit.seed,),
        guidance_scale=settings.guidance_scale,
        source=edit.source,
        strength=edit.strength,
    )
