"""Finished latents to pictures: rounding, one copy for all, faults row by row."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from diffusers.image_processor import VaeImageProcessor

from pipelines import decode_memory
from pipelines.decode import decode_rows, to_8_bits, to_pixels
from pipelines.decode_memory import CPU_MAX_PX, INDEX_MAX_PX, measure_max_px
from pipelines.flux import Flux
from pipelines.flux1 import Flux1
from pipelines.requests import Pixels, RenderRequest
from tests.pipelines.reference import row_of

REQUEST = RenderRequest("r", "a star", 48, 32, 1, (1,))


def rows_of(model: Flux, *seeds: int):
    return [row_of(model, replace(REQUEST, seeds=(seed,))) for seed in seeds]


@torch.inference_mode()
def decoded(model: Flux, rows) -> list[Pixels | None]:
    return decode_rows(model, rows).pictures()


def theirs(pictures: torch.Tensor) -> np.ndarray:
    processor = VaeImageProcessor()
    return np.stack([np.asarray(x) for x in processor.postprocess(pictures, output_type="pil")])


def test_pixels_are_rounded_as_diffusers_rounds_them():
    """Every half between two levels, what float32 has just beside it, and what is out of range."""
    halves = (torch.arange(0, 256) + 0.5) / 255 * 2 - 1
    values = torch.cat([halves, halves.nextafter(torch.tensor(9.0)), halves * 1.1, torch.rand(256)])
    pictures = values.view(2, 1, 16, 32).expand(2, 3, 16, 32)
    assert np.array_equal(np.stack(to_pixels(pictures)), theirs(pictures))
    truncated = ((pictures / 2 + 0.5).clamp(0, 1) * 255).to(torch.uint8).permute(0, 2, 3, 1)
    assert not np.array_equal(truncated.numpy(), theirs(pictures))


def test_8_bit_pictures_lie_as_files_want_them():
    pictures = to_8_bits(torch.rand(2, 3, 5, 7))
    assert (pictures.shape, pictures.dtype) == ((2, 5, 7, 3), torch.uint8)
    assert pictures.is_contiguous()


def test_decoded_rows_are_the_vaes_pictures(tiny):
    rows = rows_of(tiny, 1, 2)
    with torch.inference_mode():
        pictures = tiny.decode(torch.stack([row.latents for row in rows]), rows[0].grid)
    ours = decoded(tiny, rows)
    assert np.array_equal(np.stack(ours), theirs(pictures))
    assert all(each.flags.c_contiguous for each in ours)


def test_together_and_alone_are_the_same_picture(tiny):
    rows = rows_of(tiny, 1, 9, 4)
    together = np.stack(decoded(tiny, rows)).astype(int)
    alone = np.stack([decoded(tiny, [row])[0] for row in rows]).astype(int)
    assert np.abs(together - alone).max() <= 1
    assert np.abs(together - np.roll(alone, 1, axis=0)).max() > 1  # in their order


@pytest.mark.parametrize("fault", [torch.nan, torch.inf])
def test_a_row_that_is_not_finite_has_no_picture_and_spoils_no_other(tiny, fault):
    rows = rows_of(tiny, 1, 2, 3)
    fine = decoded(tiny, rows)
    rows[1].latents = rows[1].latents.clone()
    rows[1].latents[0, 0] = fault
    first, second, third = decoded(tiny, rows)
    assert second is None
    assert np.array_equal(first, fine[0]) and np.array_equal(third, fine[2])


def test_one_copy_brings_all_pictures_and_faults_to_the_host(tiny, monkeypatch):
    """On a GPU each copy waits for everything before it. Here `.cpu()` stands for one."""
    copies = []
    real = torch.Tensor.cpu

    def cpu(x):
        copies.append(x.shape)
        return real(x)

    monkeypatch.setattr(torch.Tensor, "cpu", cpu)
    assert len(decoded(tiny, rows_of(tiny, 1, 2, 3))) == 3
    assert copies == [(3, 48 * 32 * 3 + 1)]


# The bound on pixels


class FakeMemory:
    def __init__(self, free_bytes: int, bytes_a_pixel: int) -> None:
        self._free_bytes = free_bytes
        self._bytes_a_pixel = bytes_a_pixel
        self.probed: list[tuple[int, ...]] = []

    def free_bytes(self) -> int:
        return self._free_bytes

    def peak_bytes(self, work) -> int:
        work()
        return self._bytes_a_pixel * self.probed[-1][2] * self.probed[-1][3]


@pytest.fixture
def probe(tiny, monkeypatch):
    """Measures with a memory of so many free bytes, where a pixel takes so many."""

    def measure(free_bytes: int, bytes_a_pixel: int) -> int:
        memory = FakeMemory(free_bytes, bytes_a_pixel)
        real = Flux1.decode

        def decode(self, latents, grid):
            pictures = real(self, latents, grid)
            memory.probed.append(pictures.shape)
            return pictures

        monkeypatch.setattr(Flux1, "decode", decode)
        bound = measure_max_px(tiny, memory)
        assert memory.probed == [(1, 3, decode_memory.PROBE_PX, decode_memory.PROBE_PX)]
        return bound

    return measure


def test_the_bound_is_what_a_share_of_the_free_memory_holds(probe):
    assert probe(free_bytes=8 * 10**9, bytes_a_pixel=1500) == 8 * 10**9 // 4 // 1500


def test_the_bound_stays_below_what_32_bits_index(probe):
    bound = probe(free_bytes=10**12, bytes_a_pixel=1500)
    assert bound == INDEX_MAX_PX and bound * 256 < 2**31


def test_on_a_cpu_nothing_is_measured(tiny, monkeypatch):
    monkeypatch.setattr(Flux1, "decode", None)
    assert measure_max_px(tiny) == CPU_MAX_PX
