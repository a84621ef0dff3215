"""Final latents equal those of diffusers' pipelines, and the comparison notices what is broken."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from pipelines import denoise, flux, flux1, schedule
from pipelines.engine import PictureEngine
from pipelines.flux import Flux
from pipelines.flux1 import Flux1
from pipelines.grid import Grid
from pipelines.requests import PictureDone, RenderRequest
from tests.pipelines.reference import distance, photo, reference, row_of, run

# Relative L2 in float32. The worst seen: 3.2e-7 on the tiny models, 1.8e-6 on the embedded one.
TOLERANCE = 1e-4
STRENGTHS = (None, 0.3, 0.6, 1.0)  # None: text-to-image


def requests_for(
    model: Flux, sizes: list[tuple[int, int]], step_counts: tuple[int, ...]
) -> list[RenderRequest]:
    """Every combination of size, steps, guidance, negative prompt and strength, each a seed."""
    combinations = product(sizes, step_counts, (1.0, 4.5), (None, "a green frog"), STRENGTHS)
    return [
        RenderRequest(
            id=str(seed),
            prompt="a red apple on a blue background",
            width=width,
            height=height,
            steps=steps,
            seeds=(seed,),
            guidance_scale=guidance,
            negative_prompt=negative,
            true_cfg_scale=2.5 if negative else 1.0,
            source=None if strength is None else photo(width, height),
            strength=strength or 1.0,
        )
        for seed, ((width, height), steps, guidance, negative, strength) in enumerate(combinations)
    ]


def worst_distance(model: Flux, requests: list[RenderRequest]) -> float:
    """All of our rows run together, so neighbours at other steps are part of the comparison."""
    ours = run(model, [row_of(model, request) for request in requests])
    theirs = [reference(model, request) for request in requests]
    return max(map(distance, ours, theirs))


# The sizes: square, and both ways oblong so that height and width cannot be exchanged.
TINY_SIZES = [(32, 32), (48, 32), (32, 64)]


@pytest.mark.parametrize("name", ["tiny", "tiny_schnell"])
def test_latents_equal_those_of_diffusers(name, request):
    model = request.getfixturevalue(name)
    worst = worst_distance(model, requests_for(model, TINY_SIZES, (2, 5)))
    assert worst < TOLERANCE


def test_latents_of_the_embedded_model_equal_those_of_diffusers(embedded):
    spec = embedded.spec
    small, native = spec.min_side_px, spec.native_width
    sizes = [
        (small, small + spec.size_multiple),
        (small + spec.size_multiple, small),
        (native,) * 2,
    ]
    worst = worst_distance(embedded, requests_for(embedded, sizes, (2, 4)))
    assert worst < TOLERANCE


def test_secondary_prompts_go_to_t5(tiny):
    request = replace(
        requests_for(tiny, [(32, 32)], (3,))[4],
        secondary_prompt="two green frogs",
        secondary_negative_prompt="a small star",
    )
    assert request.uses_true_cfg
    theirs = reference(tiny, request)
    assert distance(run(tiny, [row_of(tiny, request)])[0], theirs) < TOLERANCE
    without = replace(request, secondary_prompt=None)
    assert distance(run(tiny, [row_of(tiny, without)])[0], theirs) > 10 * TOLERANCE


def test_the_picture_equals_that_of_diffusers(tiny):
    """Through the engine and the VAE, in 8 bits: rounding may differ by one."""
    request = requests_for(tiny, [(48, 32)], (3,))[2]
    engine = PictureEngine(tiny)
    engine.submit(request)
    events = [event for _ in range(3) for event in engine.tick()]
    ours = next(event.pixels for event in events if isinstance(event, PictureDone))
    theirs = np.asarray(reference(tiny, request, output_type="pil"))
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1


@torch.inference_mode()
def test_head_tail_and_out_are_the_forward(tiny):
    """Rows at different noise levels, guidance and prompts in one forward."""
    grid = Grid(2, 3)
    latents = torch.randn(3, grid.tokens, 64, generator=torch.Generator().manual_seed(1))
    sigmas, guidance = torch.tensor([0.95, 0.5, 0.1]), torch.tensor([3.5, 7.0, 1.0])
    prompts = tiny.prompts.encode([("an apple", "a frog"), ("", ""), ("a star", "a star")])
    state = tiny.head(latents, sigmas, guidance, prompts, grid)
    ours = tiny.out(tiny.tail(state), state.modulation)
    ids = [(0, y, x) for y in range(grid.height) for x in range(grid.width)]
    (theirs,) = tiny.transformer(
        hidden_states=latents,
        timestep=sigmas,
        guidance=guidance,
        pooled_projections=torch.stack([prompt.pooled for prompt in prompts]),
        encoder_hidden_states=torch.stack([prompt.text for prompt in prompts]),
        txt_ids=torch.zeros(prompts[0].text.shape[0], 3),
        img_ids=torch.tensor(ids, dtype=torch.float32),
        return_dict=False,
    )
    assert distance(ours, theirs) < 1e-6


# Each of these is a mistake that leaves a plausible picture.


def _wrong_sigma(monkeypatch):
    real = schedule.sigmas

    def late(steps, tokens, config):
        levels = real(steps, tokens, config)
        return [*levels[:-2], levels[-2] * 0.99, 0.0]

    monkeypatch.setattr(schedule, "sigmas", late)


def _no_shift(monkeypatch):
    real = schedule.sigmas
    monkeypatch.setattr(schedule, "sigmas", lambda steps, tokens, _: real(steps, tokens, {}))


def _transposed_positions(monkeypatch):
    real = Flux1._rope
    flipped = lambda self, text, grids: real(self, text, (Grid(*grids[0][::-1]),))  # noqa: E731
    monkeypatch.setattr(Flux1, "_rope", flipped)


def _unguided(monkeypatch):
    monkeypatch.setattr(denoise, "_guided", lambda row, positive, negative=None: positive)


def _first_draw_as_noise(monkeypatch):
    """Forgets that the posterior of the source draws first."""
    real = Flux1.draw_noise

    def restarted(self, grid, generator):
        return real(self, grid, torch.Generator().manual_seed(generator.initial_seed()))

    monkeypatch.setattr(Flux1, "draw_noise", restarted)


def _patches_in_another_order(monkeypatch):
    def pack(latents):
        return flux.pack(latents.transpose(1, 2)).contiguous()

    monkeypatch.setattr(flux1, "pack", pack)


@pytest.mark.parametrize(
    "break_it",
    [
        _wrong_sigma,
        _no_shift,
        _transposed_positions,
        _unguided,
        _first_draw_as_noise,
        _patches_in_another_order,
    ],
)
def test_a_broken_engine_fails_the_comparison(tiny, monkeypatch, break_it):
    request = requests_for(tiny, [(48, 32)], (5,))[6]
    assert request.uses_true_cfg and request.strength == 0.6
    theirs = reference(tiny, request)
    assert distance(run(tiny, [row_of(tiny, request)])[0], theirs) < TOLERANCE
    break_it(monkeypatch)
    # 0.01 to 1.3 was seen.
    assert distance(run(tiny, [row_of(tiny, request)])[0], theirs) > 10 * TOLERANCE
