"""FLUX.2, klein and Kontext: latents equal diffusers' own, and what a family changes is noticed."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from pipelines.cache_rules import PRESETS
from pipelines.errors import BadRequest
from pipelines.flux import Flux
from pipelines.flux2 import Flux2
from pipelines.grid import Grid
from pipelines.requests import RenderRequest, check_request
from tests.pipelines.reference import distance, photo, reference, row_of, run

TOLERANCE = 1e-4  # relative L2 in float32
FAMILIES = ("tiny_flux2", "tiny_klein", "tiny_klein_base", "tiny_kontext")
SIZES = [(32, 32), (48, 32)]
SHOWN = {0: (), 1: (photo(64, 80),), 2: (photo(80, 64), photo(64, 64))}  # diffusers: 64 px or more


def requests_for(model: Flux) -> list[RenderRequest]:
    """Sizes, steps, references and, where the family starts from pictures, strength."""
    spec = model.spec
    shown = [count for count in SHOWN if count <= spec.max_references]
    strengths = (None, 0.6) if spec.takes_start else (None,)
    combinations = product(SIZES, (2, 5), shown, strengths)
    return [
        RenderRequest(
            id=str(seed),
            prompt="a red apple on a blue background",
            width=width,
            height=height,
            steps=steps,
            seeds=(seed,),
            guidance_scale=3.0,
            negative_prompt="" if spec.guidance == "true_cfg" else None,
            true_cfg_scale=4.0 if spec.guidance == "true_cfg" else 1.0,
            source=None if strength is None else photo(width, height),
            strength=strength or 1.0,
            references=SHOWN[count],
        )
        for seed, ((width, height), steps, count, strength) in enumerate(combinations)
    ]


@pytest.mark.parametrize("name", FAMILIES)
def test_latents_equal_those_of_diffusers(name, request):
    """All rows run together: other sizes, steps and references are part of the comparison."""
    model = request.getfixturevalue(name)
    requests = requests_for(model)
    ours = run(model, [row_of(model, each) for each in requests])
    theirs = [reference(model, each) for each in requests]
    assert max(map(distance, ours, theirs)) < TOLERANCE


@pytest.mark.parametrize("name", FAMILIES)
def test_with_caches_a_picture_is_the_same_in_company(name, request):
    model = request.getfixturevalue(name)
    rules = [PRESETS[rule] for rule in ("off", "balanced", "fast", "taylorseer")]
    requests = [
        replace(each, steps=12, cache=rules[i % len(rules)])
        for i, each in enumerate(requests_for(model))
    ]
    together = run(model, [row_of(model, each) for each in requests])
    for each, ours in zip(requests, together, strict=True):
        (alone,) = run(model, [row_of(model, each)])
        assert distance(ours, alone) < 1e-5


@pytest.mark.parametrize("name", FAMILIES)
@torch.inference_mode()
def test_head_tail_and_out_are_the_forward(name, request):
    """Bit for bit, with a reference behind."""
    model = request.getfixturevalue(name)
    grid, shown = Grid(2, 3), model.reference(photo(64, 32))
    packed = model.transformer.config["in_channels"]
    latents = torch.randn(2, grid.tokens, packed, generator=torch.Generator().manual_seed(1))
    sigmas, guidance = torch.tensor([0.95, 0.5]), torch.tensor([3.5, 7.0])
    prompts = model.prompts.encode([("an apple", "a frog"), ("", "")])
    state = model.head(latents, sigmas, guidance, prompts, grid, [[shown], [shown]])
    ours = model.out(model.tail(state), state.modulation)
    text = torch.stack([prompt.text for prompt in prompts])
    ids = model._position_ids(text.shape[1], (grid, shown.grid)).float()
    pooled = [prompt.pooled for prompt in prompts if prompt.pooled is not None]
    (theirs,) = model.transformer(
        hidden_states=torch.cat([latents, shown.latents.expand(2, -1, -1)], dim=1),
        timestep=sigmas,
        guidance=guidance,
        encoder_hidden_states=text,
        txt_ids=ids[: text.shape[1]],
        img_ids=ids[text.shape[1] :],
        return_dict=False,
        **({"pooled_projections": torch.stack(pooled)} if pooled else {}),
    )
    assert torch.equal(ours, theirs[:, : grid.tokens])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_decoded_picture_equals_that_of_diffusers(name, request):
    model = request.getfixturevalue(name)
    each = requests_for(model)[0]
    row = row_of(model, each)
    run(model, [row])
    with torch.inference_mode():
        ours = model.decode(row.latents[None], row.grid)[0]
    theirs = torch.tensor(np.asarray(reference(model, each, "pil")))
    pixels = ((ours.clamp(-1, 1) + 1) * 127.5).permute(1, 2, 0)
    assert (pixels - theirs).abs().max() <= 1


# Each of these is a mistake that leaves a plausible picture.


def _reference_at_the_pictures_time(monkeypatch):
    real = Flux2._position_ids

    def ids(self, text_tokens, grids):
        found = real(self, text_tokens, grids)
        found[:, 0] = 0
        return found

    monkeypatch.setattr(Flux2, "_position_ids", ids)


def _statistics_of_nobody(monkeypatch):
    one = torch.ones(())
    monkeypatch.setattr(Flux2, "_statistics", lambda self: (0 * one, one))


def _shift_without_steps(monkeypatch):
    real = Flux2.sigmas
    monkeypatch.setattr(Flux2, "sigmas", lambda self, steps, grid: real(self, steps, Grid(64, 64)))


@pytest.mark.parametrize(
    "break_it", [_reference_at_the_pictures_time, _statistics_of_nobody, _shift_without_steps]
)
def test_a_broken_family_fails_the_comparison(tiny_flux2, monkeypatch, break_it):
    each = next(each for each in requests_for(tiny_flux2) if len(each.references) == 2)
    theirs = reference(tiny_flux2, each)
    monkeypatch.setattr(tiny_flux2, "_ropes", {})
    assert distance(run(tiny_flux2, [row_of(tiny_flux2, each)])[0], theirs) < TOLERANCE
    monkeypatch.setattr(tiny_flux2, "_ropes", {})
    break_it(monkeypatch)
    assert distance(run(tiny_flux2, [row_of(tiny_flux2, each)])[0], theirs) > 10 * TOLERANCE


# What a model cannot take


def test_more_references_than_the_model_looks_at_are_refused(tiny, tiny_kontext):
    shown = RenderRequest("r", "a frog", 32, 32, 2, (1,), references=(photo(32, 32),))
    with pytest.raises(BadRequest, match="0 reference pictures"):
        check_request(shown, tiny.spec)
    check_request(shown, tiny_kontext.spec)
    with pytest.raises(BadRequest, match="1 reference pictures at most, not 2"):
        check_request(replace(shown, references=shown.references * 2), tiny_kontext.spec)


def test_a_reference_off_the_grid_is_refused(tiny_flux2):
    shown = RenderRequest("r", "a frog", 32, 32, 2, (1,), references=(photo(40, 32),))
    with pytest.raises(BadRequest, match="multiples of 16"):
        check_request(shown, tiny_flux2.spec)
