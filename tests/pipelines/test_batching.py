"""A picture does not depend on who shares its forwards, and a seed gives one picture."""

from dataclasses import replace

import pytest
import torch

from pipelines.denoise import step_rows
from pipelines.requests import RenderRequest
from pipelines.row import group_rows
from tests.pipelines.conftest import load_exact
from tests.pipelines.reference import distance, photo, row_of, run

REQUEST = RenderRequest("main", "a red apple", 48, 32, 6, (7,))
NEIGHBOURS = [
    RenderRequest("longer", "two green frogs", 48, 32, 9, (1,), guidance_scale=1.0),
    RenderRequest("short", "a star", 48, 32, 2, (2,), negative_prompt="a frog", true_cfg_scale=3.0),
    RenderRequest("photo", "a star", 48, 32, 5, (3,), source=photo(48, 32), strength=0.6),
    RenderRequest("other size", "a star", 32, 64, 4, (4,)),
]
VARIANTS = {
    "text": REQUEST,
    "negative": replace(REQUEST, negative_prompt="a green frog", true_cfg_scale=2.0),
    "photo": replace(REQUEST, source=photo(48, 32), strength=0.7),
}


def run_with_neighbours(model, request):
    """Neighbour k joins at tick k and leaves when it is done; our row joins at tick 1."""
    row, arrivals = row_of(model, request), [row_of(model, each) for each in NEIGHBOURS]
    present, companies = [], set()
    for tick in range(20):
        present += arrivals[tick : tick + 1] + ([row] if tick == 1 else [])
        present = [each for each in present if not each.is_finished]
        for group in group_rows(present, max_tokens=10**9):
            with torch.inference_mode():
                step_rows(model, group)
            if row in group:
                companies.add(frozenset(each.request.id for each in group))
    assert row.is_finished and len(companies) >= 3  # neighbours did come and go
    return row.latents


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_picture_is_the_same_alone_and_among_others(tiny, variant):
    alone = run(tiny, [row_of(tiny, VARIANTS[variant])])[0]
    assert distance(run_with_neighbours(tiny, VARIANTS[variant]), alone) < 1e-5


def test_the_embedded_models_picture_is_the_same_alone_and_among_others(embedded):
    side = embedded.spec.native_width
    mine = replace(REQUEST, width=side, height=side, steps=4)
    others = [replace(mine, id=str(n), prompt="a star", steps=n, seeds=(n,)) for n in (2, 3, 5)]
    rows = [row_of(embedded, each) for each in [others[0], mine, *others[1:]]]
    alone = run(embedded, [row_of(embedded, mine)])[0]
    assert distance(run(embedded, rows)[1], alone) < 1e-5


def test_two_runs_of_a_seed_are_the_same_bytes(tiny):
    first, second = (run(tiny, [row_of(tiny, REQUEST)])[0] for _ in range(2))
    assert first.numpy().tobytes() == second.numpy().tobytes()


def test_another_seed_is_another_picture(tiny):
    ours = run(tiny, [row_of(tiny, REQUEST)])[0]
    theirs = run(tiny, [row_of(tiny, replace(REQUEST, seeds=(8,)))])[0]
    assert distance(ours, theirs) > 0.1


def test_groups_hold_one_size_and_no_more_tokens_than_allowed(tiny):
    rows = [row_of(tiny, each) for each in [REQUEST, *NEIGHBOURS]]
    by_size = group_rows(rows, max_tokens=10**9)
    assert [len(group) for group in by_size] == [4, 1]
    tokens = rows[0].tokens
    bounded = group_rows(rows[:2] * 3, max_tokens=2 * tokens)
    assert [len(group) for group in bounded] == [2, 2, 2]
    assert [len(group) for group in group_rows(rows[:2], max_tokens=1)] == [1, 1]


def test_a_row_whose_velocity_is_not_finite_does_not_move_and_harms_nobody(tiny):
    sick, well = row_of(tiny, REQUEST), row_of(tiny, replace(REQUEST, seeds=(8,)))
    sick.latents = sick.latents.clone()
    sick.latents[0, 0] = torch.nan
    with torch.inference_mode():
        assert step_rows(tiny, [sick, well]) == [sick]
    assert (sick.steps_done, well.steps_done) == (0, 1)
    assert well.latents.isfinite().all()


def test_bfloat16_draws_nearly_the_same_picture(tiny, tiny_folder):
    """The latents stay in float32 between steps, so only the forwards are rounded."""
    coarse = load_exact(str(tiny_folder), torch.bfloat16)
    ours = run(coarse, [row_of(coarse, VARIANTS["photo"])])[0]
    assert ours.dtype == torch.float32
    assert distance(ours, run(tiny, [row_of(tiny, VARIANTS["photo"])])[0]) < 0.02
