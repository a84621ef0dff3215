"""Previews: of the picture as foreseen, by the VAE or by a fitted matrix."""

import time
from itertools import pairwise
from typing import cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from pipelines import previews
from pipelines.denoise import step_rows
from pipelines.flux import Flux, Reference
from pipelines.grid import Grid, pack, unpack
from pipelines.previews import Previewer, fit_matrix
from pipelines.requests import RenderRequest
from tests.pipelines.reference import distance, photo, row_of, run


def stepped(model, request, steps=1):
    row = row_of(model, request)
    with torch.inference_mode():
        for _ in range(steps):
            step_rows(model, [row])
    return row


REQUEST = RenderRequest("r", "a red apple", 48, 32, 4, (5,))


def test_the_foreseen_picture_after_the_last_step_is_the_picture(tiny):
    row = stepped(tiny, REQUEST, steps=4)
    assert distance(row.clean_latents(), row.latents) == 0.0


def test_the_foreseen_picture_lies_on_the_line_of_the_velocity(tiny):
    """Going all the way to sigma 0 with the last velocity gives the same."""
    row = stepped(tiny, REQUEST)
    start = row_of(tiny, REQUEST).latents
    assert distance(row.clean_latents(), start - row.sigmas[0] * row.velocity) < 1e-6


def test_a_small_picture_is_drawn_by_the_vae(tiny):
    row = stepped(tiny, REQUEST)
    with torch.inference_mode():
        assert Previewer(tiny, time.monotonic).draw(row).shape == (32, 48, 3)


def test_a_large_picture_is_drawn_at_latent_size(tiny, monkeypatch):
    monkeypatch.setattr(previews, "MAX_VAE_TOKENS", 1)
    row = stepped(tiny, REQUEST)
    with torch.inference_mode():
        preview = Previewer(tiny, time.monotonic).draw(row)
    assert (preview.shape, preview.dtype) == ((4, 6, 3), np.uint8)


def test_the_matrix_is_fitted_before_the_first_preview(tiny, monkeypatch):
    """A step that waits for the fit would be a long one."""
    monkeypatch.setattr(previews, "MAX_VAE_TOKENS", 1)
    previewer = Previewer(tiny, time.monotonic)
    monkeypatch.setattr(previews, "fit_matrix", None)
    with torch.inference_mode():
        assert previewer.draw(stepped(tiny, REQUEST)).shape == (4, 6, 3)


def test_where_the_fit_fails_the_first_preview_tries_again(tiny, monkeypatch):
    def no_room(model):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(previews, "MAX_VAE_TOKENS", 1)
    with monkeypatch.context() as at_load:
        at_load.setattr(previews, "fit_matrix", no_room)
        previewer = Previewer(tiny, time.monotonic)
    with torch.inference_mode():
        assert previewer.draw(stepped(tiny, REQUEST)).shape == (4, 6, 3)


def test_a_request_has_two_previews_a_second_at_most(tiny):
    now_s = 0.0
    previewer = Previewer(tiny, lambda: now_s)
    row = stepped(tiny, REQUEST)
    shown_s = []
    with torch.inference_mode():
        while now_s < 5.0:
            if previewer.choose([row]):
                previewer.draw(row)
                shown_s.append(now_s)
            now_s += 0.07
    assert len(shown_s) >= 9  # and not much less either
    assert all(later - earlier >= 0.5 for earlier, later in pairwise(shown_s))


class LinearVae:
    """Latents that are a fixed mixture of the mean colours, so the fit must find its inverse."""

    device = torch.device("cpu")
    mixture = torch.randn(16, 3, generator=torch.Generator().manual_seed(0))

    class spec:
        size_multiple = 16

    def reference(self, pixels):
        x = torch.tensor(pixels).permute(2, 0, 1).float() / 127.5 - 1
        mean = torch.einsum("cd,dhw->chw", self.mixture, F.avg_pool2d(x, 8)) + 0.3
        return Reference(pack(0.5 * mean), Grid(mean.shape[1] // 2, mean.shape[2] // 2))


def test_the_matrix_finds_the_colours_of_a_linear_vae():
    vae = LinearVae()
    source = photo(64, 64)
    shown = vae.reference(source)
    latents = unpack(shown.latents[None], shown.grid)
    ours = previews._project(latents, fit_matrix(cast(Flux, vae)))[0]
    theirs = F.avg_pool2d(torch.tensor(source).permute(2, 0, 1).float() / 127.5 - 1, 8)
    assert (ours - theirs).abs().max() < 0.02


def test_the_matrix_shows_the_embedded_models_colours(embedded):
    """Means over 3 x 3 latents, for the matrix cannot see edges."""
    side = embedded.spec.native_width
    request = RenderRequest("r", "a red apple on a blue background", side, side, 6, (1,))
    row = row_of(embedded, request)
    run(embedded, [row])
    with torch.inference_mode():
        latents, grid = row.latents[None], row.grid
        ours = previews._project(unpack(latents, grid), fit_matrix(embedded))
        scale = embedded.spec.size_multiple // 2
        theirs = F.avg_pool2d(embedded.decode(latents, grid).clamp(-1, 1), scale)
    smooth = [F.avg_pool2d(x, 3, stride=1).flatten().numpy() for x in (ours, theirs)]
    assert np.corrcoef(smooth[0], smooth[1])[0, 1] > 0.8


@pytest.mark.parametrize("grid", [Grid(2, 3), Grid(4, 1)])
def test_unpack_undoes_pack(grid):
    latents = torch.randn(5, grid.height * 2, grid.width * 2)
    assert torch.equal(unpack(pack(latents)[None], grid)[0], latents)
