"""A FLUX of random weights in diffusers' folder format, small enough for tests on one core."""

import json
from pathlib import Path

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline
from diffusers.schedulers.scheduling_flow_match_euler_discrete import (
    FlowMatchEulerDiscreteScheduler,
)
from tokenizers import Tokenizer, models, trainers
from transformers import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTokenizer,
    T5Config,
    T5EncoderModel,
    T5Tokenizer,
)

TEXTS = ["a red apple on a blue background", "two green frogs, one small yellow star at the left"]
MAX_SEQUENCE_LENGTH = 24


def make_tiny_flux(folder: Path, guidance_embeds: bool = True) -> Path:
    """Writes the folder and returns it: 8x VAE of 16 channels, 3 + 3 blocks, two tokenizers.

    With guidance embedding the schedule shifts with the size, as in FLUX.1-dev; without, it does
    not, as in FLUX.1-schnell.
    """
    torch.manual_seed(0)
    FluxPipeline(
        scheduler=FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=guidance_embeds),
        vae=_vae(),
        text_encoder=_clip(),
        tokenizer=_clip_tokenizer(),
        text_encoder_2=_t5(),
        tokenizer_2=_t5_tokenizer(),
        transformer=_transformer(guidance_embeds),
    ).save_pretrained(folder)
    settings = {
        "name": f"tiny-flux-{'dev' if guidance_embeds else 'schnell'}",
        "native_size": [64, 64],
        "min_side_px": 32,
        "max_pixels": 512 * 512,
        "max_sequence_length": MAX_SEQUENCE_LENGTH,
        "licence": "Apache-2.0",
    }
    (folder / "studio.json").write_text(json.dumps(settings))
    return folder


def _vae() -> AutoencoderKL:
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(8, 8, 8, 8),
        layers_per_block=1,
        latent_channels=16,
        norm_num_groups=4,
        use_quant_conv=False,
        use_post_quant_conv=False,
        mid_block_add_attention=False,
        scaling_factor=0.36,
        shift_factor=0.11,
    )


def _transformer(guidance_embeds: bool) -> FluxTransformer2DModel:
    return FluxTransformer2DModel(
        in_channels=64,
        num_layers=3,
        num_single_layers=3,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        guidance_embeds=guidance_embeds,
        axes_dims_rope=(4, 6, 6),
    )


def _clip() -> CLIPTextModel:
    return CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(_clip_tokenizer()),
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            projection_dim=32,
            bos_token_id=0,
            eos_token_id=1,
            pad_token_id=1,
        )
    )


def _t5() -> T5EncoderModel:
    return T5EncoderModel(
        T5Config(
            vocab_size=len(_t5_tokenizer()),
            d_model=32,
            d_kv=16,
            d_ff=32,
            num_layers=2,
            num_heads=2,
            feed_forward_proj="gated-gelu",
        )
    )


def _clip_tokenizer() -> CLIPTokenizer:
    """Letters and their word-ending forms, without merges."""
    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789.,!-"]
    tokens = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{x}</w>" for x in letters)]
    return CLIPTokenizer(
        vocab={token: id_ for id_, token in enumerate(tokens)}, merges=[], model_max_length=77
    )


def _t5_tokenizer() -> T5Tokenizer:
    """A unigram vocabulary learned from a few words, as sentencepiece would."""
    learner = Tokenizer(models.Unigram())
    special = ["<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    learner.train_from_iterator([f"▁{w}" for text in TEXTS for w in text.split()], trainer)
    vocab = json.loads(learner.to_str())["model"]["vocab"]
    pieces = [(piece, score) for piece, score in vocab]
    return T5Tokenizer(vocab=pieces, extra_ids=0, model_max_length=512)
