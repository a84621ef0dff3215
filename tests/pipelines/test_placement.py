"""What fits stays on the device, the rest is streamed, and a streamed model draws the same."""

import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from diffusers.hooks.group_offloading import ModuleGroup
from safetensors.torch import save_file

from pipelines.errors import LoadFailed, OutOfMemory
from pipelines.loading import load, weights_bytes
from pipelines.placement import (
    GB,
    SPARE,
    WORKING_BYTES,
    Placement,
    bytes_of_weights,
    fits_beside,
    place,
)
from pipelines.requests import RenderRequest
from pipelines.specs import find_spec
from tests.pipelines.reference import photo, row_of, run

# FLUX.1-dev and FLUX.2-dev in bfloat16.
FLUX1 = {
    "text_encoder": GB // 4,
    "text_encoder_2": 19 * GB // 2,
    "vae": GB // 6,
    "transformer": 238 * GB // 10,
}
FLUX2 = {"text_encoder": 48 * GB, "vae": GB // 6, "transformer": 64 * GB}


@pytest.mark.parametrize(
    "sizes, free_gb, streamed",
    [
        (FLUX1, 80, ()),
        (FLUX1, 38, ()),
        (FLUX1, 36, ("text_encoder", "text_encoder_2")),
        (FLUX1, 24, ("text_encoder", "text_encoder_2", "transformer")),
        (FLUX2, 141, ()),
        (FLUX2, 80, ("text_encoder",)),
        (FLUX2, 24, ("text_encoder", "transformer")),
    ],
)
def test_what_does_not_fit_is_streamed_text_encoders_first(sizes, free_gb, streamed):
    placement = place("FLUX", sizes, free_gb * GB, "auto")
    assert placement.streamed == frozenset(streamed)
    assert bool(placement.reason) == bool(streamed)
    if streamed:
        assert f"{sum(sizes.values()) / GB:.1f} GB" in placement.reason
        assert f"{free_gb}.0 GB are free" in placement.reason


def test_a_device_without_room_says_how_much_is_missing():
    with pytest.raises(OutOfMemory, match=r"2\.0 GB are free; streamed it still needs 4\.2 GB"):
        place("FLUX", FLUX1, 2 * GB, "auto")


def test_what_was_asked_for_is_done():
    assert place("FLUX", FLUX1, 2 * GB, "full") == Placement()
    placement = place("FLUX", FLUX1, 80 * GB, "offload")
    assert placement.streamed == {"text_encoder", "text_encoder_2", "transformer"}
    assert "as asked" in placement.reason


@pytest.mark.parametrize("memory", ["auto", "full", "offload"])
def test_on_a_cpu_there_is_nothing_to_choose(memory):
    assert place("FLUX", FLUX1, None, memory) == Placement()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_bytes_are_those_of_the_weights_once_loaded(tmp_path, dtype):
    save_file(
        {"a": torch.zeros(3, 5), "b": torch.zeros(7, dtype=torch.int8)}, tmp_path / "1.safetensors"
    )
    save_file({"c": torch.zeros(())}, tmp_path / "2.safetensors", {"format": "pt"})
    assert bytes_of_weights(tmp_path, dtype) == 23 * dtype.itemsize


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 8 + b"{", json.dumps({"a": 1}).encode()])
def test_a_file_that_is_none_is_named(tmp_path, content):
    (tmp_path / "x.safetensors").write_bytes(content)
    with pytest.raises(LoadFailed, match=r"x\.safetensors cannot be loaded"):
        bytes_of_weights(tmp_path, torch.float32)


@pytest.mark.parametrize("name", ["tiny_folder", "tiny_flux2_folder"])
def test_a_streamed_model_draws_the_same(name, request, monkeypatch, caplog):
    """On a CPU nothing moves, but every layer asks for its weights and gives them back."""
    spec = find_spec(str(request.getfixturevalue(name)))
    asked = RenderRequest("r", "a frog", 48, 32, 2, (1,), source=photo(48, 32), strength=0.9)
    whole = load(spec, device="cpu", on_progress=lambda what, share: None)
    (expected,) = run(whole, [row_of(whole, asked)])
    brought: list[object] = []
    bring = ModuleGroup.onload_

    def onload(group):
        brought.append(group)
        bring(group)

    monkeypatch.setattr(ModuleGroup, "onload_", onload)
    free = WORKING_BYTES + bytes_of_weights(Path(spec.source) / "vae", torch.float32)
    monkeypatch.setattr("pipelines.loading.free_bytes", lambda device: free)
    with caplog.at_level(logging.WARNING):
        streamed = load(spec, device="cpu", on_progress=lambda what, share: None)
    assert "streamed, layer by layer, in every step" in caplog.text
    (ours,) = run(streamed, [row_of(streamed, asked)])
    assert torch.equal(ours, expected)
    assert len(brought) > 2 * len(list(streamed.transformer.transformer_blocks))


def test_a_second_model_fits_where_its_weights_and_what_works_beside_them_do(monkeypatch):
    device = torch.device("cuda:0")
    monkeypatch.setattr("pipelines.placement.free_bytes", lambda device: 30 * GB)
    assert fits_beside(30 * GB - WORKING_BYTES, device)
    assert not fits_beside(30 * GB - WORKING_BYTES + 1, device)


def test_on_a_cpu_main_memory_is_what_is_asked(monkeypatch):
    memory = SimpleNamespace(available=3 * GB)
    monkeypatch.setattr("pipelines.placement.psutil.virtual_memory", lambda: memory)
    assert fits_beside(int(3 * GB / SPARE), torch.device("cpu"))
    assert not fits_beside(int(3 * GB / SPARE) + 2, torch.device("cpu"))


def test_what_a_model_needs_is_what_its_modules_hold(tiny_folder, tiny):
    needed = weights_bytes(
        find_spec(str(tiny_folder)), device="cpu", on_progress=lambda what, share: None
    )
    modules = (tiny.transformer, tiny.vae, tiny.prompts.clip, tiny.prompts.t5)
    held = sum(each.nbytes for module in modules for each in module.parameters())
    assert needed == pytest.approx(held, rel=0.01)
