"""FLUX models of a given shape without learned weights: on the meta device, or random ones."""

from collections.abc import Mapping
from typing import Any

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.autoencoders.autoencoder_kl_flux2 import AutoencoderKLFlux2
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
from diffusers.models.transformers.transformer_flux2 import Flux2Transformer2DModel
from torch import nn

from pipelines.flux import Flux, PromptEncoding
from pipelines.flux1 import Flux1
from pipelines.flux2 import Flux2
from pipelines.specs import ModelSpec

Config = Mapping[str, Any]
NOTHING: Any = None  # no text encoders: prompts are random numbers, too

# transformer/config.json, vae/config.json and scheduler/scheduler_config.json of FLUX.1-dev.
FLUX1_TRANSFORMER: Config = {
    "in_channels": 64,
    "num_layers": 19,
    "num_single_layers": 38,
    "attention_head_dim": 128,
    "num_attention_heads": 24,
    "joint_attention_dim": 4096,
    "pooled_projection_dim": 768,
    "guidance_embeds": True,
    "axes_dims_rope": (16, 56, 56),
}
FLUX1_VAE: Config = {
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "block_out_channels": (128, 256, 512, 512),
    "layers_per_block": 2,
    "latent_channels": 16,
    "norm_num_groups": 32,
    "sample_size": 1024,
    "scaling_factor": 0.3611,
    "shift_factor": 0.1159,
    "use_quant_conv": False,
    "use_post_quant_conv": False,
}
# FLUX.2-dev has what diffusers' classes default to.
FLUX2_TRANSFORMER: Config = {"guidance_embeds": True}
FLUX2_VAE: Config = {}
FLUX1_SCHEDULER: Config = {
    "use_dynamic_shifting": True,
    "base_shift": 0.5,
    "max_shift": 1.15,
    "base_image_seq_len": 256,
    "max_image_seq_len": 4096,
    "num_train_timesteps": 1000,
}


CLASSES: Mapping[str, tuple[type[Flux], Any, Any]] = {
    "flux1": (Flux1, FluxTransformer2DModel, AutoencoderKL),
    "flux2": (Flux2, Flux2Transformer2DModel, AutoencoderKLFlux2),
}


def untrained(
    spec: ModelSpec,
    transformer: Config,
    vae: Config,
    *,
    device: str,
    dtype: torch.dtype = torch.float32,
) -> Flux:
    """A model of that shape, made on the device itself; it has no text encoders."""
    family, net_class, vae_class = CLASSES[spec.family]
    with torch.device("meta"):
        modules: Any = net_class(**transformer), vae_class(**vae)
    net, autoencoder = (_filled(module, device, dtype) for module in modules)
    return family(
        spec,
        transformer=net,
        vae=autoencoder,
        prompts=NOTHING,
        scheduler_config=FLUX1_SCHEDULER,
        device=torch.device(device),
    )


def _filled(module: nn.Module, device: str, dtype: torch.dtype) -> Any:
    """Small random weights, norms of one, biases of zero: activations stay finite."""
    torch.manual_seed(0)
    module = nn.Module.to(module, dtype)  # diffusers' own `to` warns of layers that FLUX has not
    module = module.to_empty(device=device).eval().requires_grad_(False)
    for name, weights in module.named_parameters():
        if weights.dim() > 1:
            weights.normal_(0, 0.02)
        else:
            weights.fill_(float(name.endswith("weight")))
    for name, values in module.named_buffers():  # of the batch norm that standardises latents
        values.fill_(float(name.endswith("var")))
    return module


def random_prompt(model: Flux) -> PromptEncoding:
    """As long as the model's prompts are, on its device; always the same."""
    torch.manual_seed(0)
    config = model.transformer.config
    shape = (model.spec.max_sequence_length, config["joint_attention_dim"])
    options: dict[str, Any] = {"device": model.device, "dtype": model.dtype}
    text = torch.randn(shape, **options)
    pooled = config.get("pooled_projection_dim")
    return PromptEncoding(text, None if pooled is None else torch.randn(pooled, **options))
