"""The parts of the training loop that can be wrong without a crash."""

import random
from pathlib import Path

import pytest
import torch
from diffusers import FluxPipeline

from training import budget
from training.attention import matrix_attention
from training.drawing import paint_background
from training.latents import CAPTIONS, STAGES, Chunk, Pool, ink_of
from training.optimisers import MuonAndAdam
from training.transformer import INK, Captions, noised, pack, position_ids, weighted_error


def test_packing_and_ids_are_those_of_the_pipeline() -> None:
    latents = torch.randn(2, 32, 8, 12)
    theirs = FluxPipeline._pack_latents(latents, 2, 32, 8, 12)
    assert torch.equal(pack(latents), theirs)
    ids = FluxPipeline._prepare_latent_image_ids(2, 4, 6, "cpu", torch.float32)
    assert torch.equal(position_ids(8, 12, 1), ids)


def test_half_resolution_ids_stand_in_the_middle_of_the_full_ones() -> None:
    half, full = position_ids(8, 8, 2), position_ids(16, 16, 1)
    assert torch.allclose(half.mean(0), full.mean(0))


def test_noised_keeps_the_rectified_flow_identity() -> None:
    clean = torch.randn(4, 16, 128)
    x, sigma, velocity = noised(clean, 0.5, torch.Generator().manual_seed(0))
    assert torch.allclose(x - sigma[:, None, None] * velocity, clean, atol=1e-5)
    assert sigma.min() > 0 and sigma.max() < 1


def test_matrix_attention_equals_pytorch_s() -> None:
    q, k, v = torch.randn(3, 2, 10, 4, 8)  # [rows, tokens, heads, d]
    theirs = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    ).transpose(1, 2)
    assert torch.allclose(matrix_attention(q, k, v), theirs, atol=1e-5)


class Letters:
    """A stand-in for ``Text`` that knows the empty caption alone."""

    def tokenise(self, captions: list[str]) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.zeros(1, 40, dtype=torch.long), torch.zeros(1, 40, dtype=torch.long)


def chunk_of(rows: int, tokens: torch.Tensor) -> Chunk:
    nothing = torch.zeros(rows)
    return Chunk(nothing, nothing, nothing, tokens, tokens)


def test_dropped_captions_are_the_empty_one() -> None:
    captions = Captions(Letters(), 24)  # type: ignore[arg-type]
    ones = torch.ones(64, 40, dtype=torch.long)
    clean = chunk_of(64, ones)
    batch = captions.drop(clean, random.Random(0), 0.5)
    assert torch.equal(batch.clip.sum(1) == 0, batch.t5.sum(1) == 0)
    assert 10 < int((batch.clip.sum(1) == 0).sum()) < 54


@pytest.mark.parametrize("longest, shorter", [(11, 16), (16, 16), (30, 24), (40, 24)])
def test_a_batch_has_few_pads_or_all_of_the_stage(longest: int, shorter: int) -> None:
    captions = Captions(Letters(), 24)  # type: ignore[arg-type]
    t5 = torch.zeros(2, 40, dtype=torch.long)
    t5[0, :longest] = 1
    batch = chunk_of(2, t5)
    rng = random.Random(0)
    lengths = [captions.trim(batch, rng).t5.shape[1] for _ in range(40)]
    assert set(lengths) == {shorter, 24}


def chunk(value: float) -> dict[str, torch.Tensor]:
    """Eight pictures, whose captions are numbered by picture and phrasing."""
    numbers = torch.arange(8 * CAPTIONS).view(8, CAPTIONS, 1).expand(-1, -1, 40).short()
    latents = torch.full((8, 32, 4, 4), value).half()
    ink, parts = torch.zeros(8, 4).bool(), torch.zeros(8, 4, 2).byte()
    return {"latents": latents, "ink": ink, "parts": parts, "clip": numbers, "t5": numbers}


def test_a_pool_takes_up_new_chunks_and_forgets_old_ones(tmp_path: Path) -> None:
    for i in range(2):
        budget.save(tmp_path / f"{i}.pt", chunk(float(i)))
    pool = Pool(tmp_path)
    assert pool.batch(random.Random(0), 4).latents.shape == (4, 32, 4, 4)
    (tmp_path / "0.pt").unlink()
    pool.refresh()
    assert [float(c["latents"][0, 0, 0, 0]) for c in pool.chunks.values()] == [1.0]


def test_both_tokenizers_read_the_same_of_a_picture_s_captions(tmp_path: Path) -> None:
    budget.save(tmp_path / "0.pt", chunk(0.0))
    pool, rng = Pool(tmp_path), random.Random(0)
    batches = [pool.batch(rng, 8) for _ in range(20)]
    assert all(torch.equal(batch.clip, batch.t5) for batch in batches)
    met = {int(n) for batch in batches for n in batch.t5[:, 0]}
    assert met == set(range(8 * CAPTIONS))


def test_ink_is_where_the_picture_leaves_its_background() -> None:
    background = paint_background(("blue",), 96, 64)
    picture = background.copy()
    picture[40, 70] = 255  # second row, third column of the grid of 32 px
    assert ink_of(picture, background).nonzero()[0].tolist() == [5]


def test_inked_tokens_weigh_more_and_an_even_error_is_unchanged() -> None:
    error, ink = torch.zeros(1, 4, 128), torch.tensor([[True, False, False, False]])
    assert float(weighted_error(torch.ones_like(error), ink)) == pytest.approx(1.0)
    error[0, 0] = 1.0
    assert float(weighted_error(error, ink)) == pytest.approx(INK / (INK + 3))


def test_a_kernel_is_stepped_in_place_as_a_matrix() -> None:
    layer = torch.nn.Conv2d(4, 8, 3)
    before = layer.weight.detach().clone()
    assert layer.bias is not None
    optimiser = MuonAndAdam([layer.weight], [layer.bias], 1e-2, 1e-2)
    layer(torch.randn(1, 4, 5, 5)).square().sum().backward()
    optimiser.step(1.0)
    assert not torch.equal(layer.weight, before) and layer.weight.grad is None


def test_the_rate_rises_stays_and_falls() -> None:
    rates = [budget.learning_rate(p / 10) for p in range(11)]
    assert rates[0] < 0.01 and rates[2] == rates[5] == 1.0 and rates[10] == 0.02


def test_a_paused_run_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pause = tmp_path / "pause"
    pause.touch()
    monkeypatch.setenv(budget.PAUSE_VARIABLE, str(pause))
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        pause.unlink()

    monkeypatch.setattr("time.sleep", nap)
    budget.Budget(1.0).tick()
    assert naps == [1.0]


def test_the_last_stage_pads_as_the_pipeline_does() -> None:
    assert STAGES["buckets"].tokens == 40 and STAGES["buckets"].spacing == 1
    assert all(side % 32 == 0 for size in STAGES["buckets"].sizes for side in size)
