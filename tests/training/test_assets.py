"""The shipped model: loads in diffusers as it stands, fits its size, reads captions as trained."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import FluxImg2ImgPipeline, FluxPipeline
from PIL import Image
from transformers import CLIPTokenizer, T5TokenizerFast

from training.export import SPEC, weight_bytes
from training.tokenizers import build_clip_tokenizer, build_t5_tokenizer

ASSETS = Path(__file__).parents[2] / "assets" / "flux-emoji"
SENTENCES = [
    "a red apple on a blue background",
    "A Cat next to a DOG, teal background.",
    "a medium-sized xylophone é 猫 on white",
    "",
]


@pytest.fixture(scope="module")
def pipeline() -> FluxPipeline:
    pipeline = FluxPipeline.from_pretrained(ASSETS)
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def test_the_weights_are_small() -> None:
    assert 1_000_000 < weight_bytes(ASSETS) <= 24_000_000


def test_the_card_and_the_spec_are_there() -> None:
    card = (ASSETS / "README.md").read_text()
    assert card.startswith("---\n")
    for word in ("height=256", "width=256", "max_sequence_length=40", "guidance_scale", "MIT"):
        assert word in card
    assert json.loads((ASSETS / "studio.json").read_text()) == SPEC


def test_every_part_is_computed_in_float32(pipeline: FluxPipeline) -> None:
    for part in ("transformer", "vae", "text_encoder", "text_encoder_2"):
        assert getattr(pipeline, part).dtype == torch.float32, part


@pytest.mark.parametrize("size", [(256, 256), (128, 192)])
def test_two_steps_give_a_picture(pipeline: FluxPipeline, size: tuple[int, int]) -> None:
    height, width = size
    picture = pipeline(
        SENTENCES[0],
        height=height,
        width=width,
        num_inference_steps=2,
        max_sequence_length=40,
        generator=torch.Generator().manual_seed(0),
    ).images[0]
    assert picture.size == (width, height)


def test_image_to_image_loads_and_runs(pipeline: FluxPipeline) -> None:
    painter = FluxImg2ImgPipeline.from_pipe(pipeline)
    painter.set_progress_bar_config(disable=True)
    picture = painter(
        SENTENCES[0],
        image=Image.new("RGB", (256, 256), "white"),
        height=256,
        width=256,
        strength=0.5,
        num_inference_steps=4,
        max_sequence_length=40,
    ).images[0]
    assert picture.size == (256, 256)


@pytest.mark.parametrize(
    ("folder", "kind", "built"),
    [
        ("tokenizer", CLIPTokenizer, build_clip_tokenizer),
        ("tokenizer_2", T5TokenizerFast, build_t5_tokenizer),
    ],
)
def test_the_shipped_tokenizer_is_the_trained_one(folder: str, kind: Any, built: Any) -> None:
    shipped, trained = kind.from_pretrained(ASSETS / folder), built()
    assert shipped.get_vocab() == trained.get_vocab()
    assert shipped.model_max_length == 40
    for sentence in SENTENCES:
        assert shipped(sentence).input_ids == trained(sentence).input_ids


def test_the_shipped_latents_are_balanced(pipeline: FluxPipeline) -> None:
    """No direction drowns the others in the transformer's eyes."""
    patches = torch.rand((8, 3, 8, 8), generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        latents = pipeline.vae.encode(patches.repeat_interleave(32, -1).repeat_interleave(32, -2))
    spread = latents.latent_dist.mean.movedim(1, -1).flatten(0, 2)
    variance = torch.linalg.eigvalsh(torch.cov(spread.T))
    assert variance.max() / variance.median() < 12  # 82 before it was balanced
