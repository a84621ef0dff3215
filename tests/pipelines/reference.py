"""Diffusers' own pipelines over a model's modules: what our latents are compared with."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline
from diffusers.pipelines.flux.pipeline_flux_img2img import FluxImg2ImgPipeline
from diffusers.pipelines.flux.pipeline_flux_kontext import FluxKontextPipeline
from diffusers.pipelines.flux2.pipeline_flux2 import Flux2Pipeline, compute_empirical_mu
from diffusers.pipelines.flux2.pipeline_flux2_klein import Flux2KleinPipeline
from diffusers.schedulers.scheduling_flow_match_euler_discrete import (
    FlowMatchEulerDiscreteScheduler,
)
from PIL import Image
from transformers import Mistral3ForConditionalGeneration, Qwen3ForCausalLM

from pipelines.denoise import step_rows
from pipelines.engine import prompts_of
from pipelines.flux import Flux
from pipelines.requests import RenderRequest
from pipelines.row import Conditioning, Row, group_rows, new_row


def reference(model: Flux, request: RenderRequest, output_type: str = "latent"):
    """Latents `[tokens, packed]` (or the PIL picture) of picture 0, its noise from the seed."""
    arguments: dict[str, Any] = {
        "prompt": request.prompt,
        "width": request.width,
        "height": request.height,
        "num_inference_steps": request.steps,
        "generator": torch.Generator("cpu").manual_seed(request.seeds[0]),
        "max_sequence_length": model.spec.max_sequence_length,
        "output_type": output_type,
    }
    more = _flux1_arguments if model.spec.family == "flux1" else _flux2_arguments
    pipeline_class, others = more(model, request)
    pipeline = _pipeline(model, pipeline_class)
    (made,) = pipeline(**arguments, **others).images
    if model.spec.family == "flux2-klein" and output_type == "latent":
        return _as_in_the_loop(pipeline, made[None])
    return made


def _flux1_arguments(model: Flux, request: RenderRequest) -> tuple[Any, dict[str, Any]]:
    arguments: dict[str, Any] = {
        "prompt_2": request.secondary_prompt,
        "negative_prompt": request.negative_prompt,
        "negative_prompt_2": request.secondary_negative_prompt,
        "true_cfg_scale": request.true_cfg_scale,
        "guidance_scale": request.guidance_scale,
    }
    if request.references:
        (shown,) = request.references
        sizes = {"max_area": request.width * request.height, "_auto_resize": False}
        return FluxKontextPipeline, arguments | sizes | {"image": Image.fromarray(shown)}
    if request.source is None:
        return FluxPipeline, arguments
    source = {"image": Image.fromarray(request.source), "strength": request.strength}
    return FluxImg2ImgPipeline, arguments | source


def _flux2_arguments(model: Flux, request: RenderRequest) -> tuple[Any, dict[str, Any]]:
    """Diffusers has no image-to-image for FLUX.2: the loop begins late, with our own latents."""
    is_dev = model.spec.family == "flux2"
    guidance = request.guidance_scale if is_dev else request.true_cfg_scale
    arguments: dict[str, Any] = {"guidance_scale": guidance}
    if request.references:
        arguments["image"] = [Image.fromarray(pixels) for pixels in request.references]
    if request.source is not None:
        even = np.linspace(1.0, 1 / request.steps, request.steps)
        arguments["sigmas"] = even[request.steps - request.steps_run :].tolist()
        arguments["latents"] = _started(model, request)
    return (Flux2Pipeline if is_dev else Flux2KleinPipeline), arguments


@torch.inference_mode()
def _as_in_the_loop(pipeline: Any, latents: torch.Tensor) -> torch.Tensor:
    """Klein's pipeline returns latents as its VAE takes them; packed and standardised again."""
    norm, eps = pipeline.vae.bn, pipeline.vae.config.batch_norm_eps
    mean, std = norm.running_mean, (norm.running_var + eps).sqrt()
    packed = pipeline._pack_latents(pipeline._patchify_latents(latents))
    return ((packed - mean) / std)[0]


@torch.inference_mode()
def _started(model: Flux, request: RenderRequest) -> torch.Tensor:
    """Clean latents and noise mixed by diffusers' scheduler, `[1, packed, height, width]`."""
    pipeline = _pipeline(model, Flux2KleinPipeline)
    pixels = torch.tensor(request.source).permute(2, 0, 1)[None].float() / 127.5 - 1
    generator = torch.Generator("cpu").manual_seed(request.seeds[0])
    clean = pipeline._encode_vae_image(pixels, generator)
    noise = torch.randn(clean.shape, generator=generator)
    scheduler = pipeline.scheduler
    mu = compute_empirical_mu(clean.shape[2] * clean.shape[3], request.steps)
    scheduler.set_timesteps(sigmas=np.linspace(1.0, 1 / request.steps, request.steps), mu=mu)
    first = scheduler.timesteps[request.steps - request.steps_run]
    return scheduler.scale_noise(clean, first[None], noise)


def _pipeline(model: Flux, pipeline_class):
    parts = {
        "scheduler": FlowMatchEulerDiscreteScheduler.from_config(dict(model.scheduler_config)),
        "vae": model.vae,
        "transformer": model.transformer,
    }
    prompts: Any = model.prompts
    if model.spec.family == "flux1":
        parts |= {"text_encoder": prompts.clip, "tokenizer": prompts.clip_tokenizer}
        parts |= {"text_encoder_2": prompts.t5, "tokenizer_2": prompts.t5_tokenizer}
    else:
        parts |= {"text_encoder": _read_by_diffusers(model), "tokenizer": prompts.tokenizer}
    pipeline = pipeline_class(**parts)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@lru_cache
def _read_by_diffusers(model: Flux) -> Any:
    """The whole text encoder of the model's folder: ours has lost what is not read."""
    is_dev = model.spec.family == "flux2"
    encoder = Mistral3ForConditionalGeneration if is_dev else Qwen3ForCausalLM
    return encoder.from_pretrained(Path(model.spec.source) / "text_encoder").eval()


@torch.inference_mode()
def row_of(model: Flux, request: RenderRequest) -> Row:
    prompts = model.prompts.encode([(first, second) for _, first, second in prompts_of(request)])
    source = None if request.source is None else model.encode_picture(request.source)
    references = tuple(model.reference(pixels) for pixels in request.references)
    return new_row(model, request, 0, Conditioning(prompts, source, references))


@torch.inference_mode()
def run(model: Flux, rows: list[Row]) -> list[torch.Tensor]:
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
