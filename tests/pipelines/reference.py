"""Diffusers' own pipelines over a model's modules: what our latents are compared with."""

from typing import Any

import numpy as np
import torch
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline
from diffusers.pipelines.flux.pipeline_flux_img2img import FluxImg2ImgPipeline
from diffusers.schedulers.scheduling_flow_match_euler_discrete import (
    FlowMatchEulerDiscreteScheduler,
)
from PIL import Image

from pipelines.denoise import step_rows
from pipelines.engine import prompts_of
from pipelines.flux1 import Flux1
from pipelines.requests import RenderRequest
from pipelines.row import Row, group_rows, new_row


def reference(model: Flux1, request: RenderRequest, output_type: str = "latent"):
    """Latents `[tokens, packed]` (or the PIL picture) of picture 0, its noise from the seed."""
    arguments: dict[str, Any] = {
        "prompt": request.prompt,
        "prompt_2": request.secondary_prompt,
        "negative_prompt": request.negative_prompt,
        "negative_prompt_2": request.secondary_negative_prompt,
        "true_cfg_scale": request.true_cfg_scale,
        "width": request.width,
        "height": request.height,
        "num_inference_steps": request.steps,
        "guidance_scale": request.guidance_scale,
        "generator": torch.Generator("cpu").manual_seed(request.seeds[0]),
        "max_sequence_length": model.spec.max_sequence_length,
        "output_type": output_type,
    }
    if request.source is not None:
        arguments |= {"image": Image.fromarray(request.source), "strength": request.strength}
    pipeline = _pipeline(model, FluxPipeline if request.source is None else FluxImg2ImgPipeline)
    return pipeline(**arguments).images[0]


def _pipeline(model: Flux1, pipeline_class):
    pipeline = pipeline_class(
        scheduler=FlowMatchEulerDiscreteScheduler.from_config(dict(model.scheduler_config)),
        vae=model.vae,
        text_encoder=model.text_encoder,
        tokenizer=model.tokenizer,
        text_encoder_2=model.text_encoder_2,
        tokenizer_2=model.tokenizer_2,
        transformer=model.transformer,
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@torch.inference_mode()
def row_of(model: Flux1, request: RenderRequest) -> Row:
    prompts = model.encode_prompts([(clip, t5) for _, clip, t5 in prompts_of(request)])
    source = None if request.source is None else model.encode_picture(request.source)
    return new_row(model, request, 0, prompts, source)


@torch.inference_mode()
def run(model: Flux1, rows: list[Row]) -> list[torch.Tensor]:
    """Steps all rows to their ends, in as few forwards as there are groups."""
    while unfinished := [row for row in rows if not row.is_finished]:
        for group in group_rows(unfinished, max_tokens=10**9):
            assert step_rows(model, group) == []
    return [row.latents for row in rows]


def distance(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Relative L2."""
    return float((ours - theirs).norm() / theirs.norm())


def photo(width: int, height: int) -> np.ndarray:
    """A source picture with structure in every channel."""
    y, x = np.mgrid[0:height, 0:width]
    channels = [x * 255 // width, y * 255 // height, (x // 8 + y // 8) % 2 * 200]
    return np.stack(channels, axis=-1).astype(np.uint8)
