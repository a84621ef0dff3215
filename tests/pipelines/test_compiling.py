"""Compiled blocks: no part outside of a graph, no graph for a size, and the same latents."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pipelines.compiling import compile_blocks
from pipelines.flux import Flux
from pipelines.loading import load
from pipelines.requests import RenderRequest
from pipelines.specs import find_spec
from tests.pipelines.reference import distance, photo, row_of, run

REQUEST = RenderRequest("r", "a frog", 48, 32, 2, (1,))
ALONE = [REQUEST, replace(REQUEST, width=64, height=64), replace(REQUEST, width=32, seeds=(2,))]
PAIR = [REQUEST, replace(REQUEST, seeds=(2,))]
OTHER_PAIR = [replace(each, width=64, height=48) for each in [*PAIR, PAIR[0]]]
FOLDERS = {"FLUX.1": "tiny_folder", "FLUX.2": "tiny_flux2_folder"}


@pytest.fixture
def fresh():
    """Whatever other tests compiled is forgotten, and so is this."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def graphs_compiled() -> int:
    """Since `fresh`."""
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def loaded(folder: Path, **options) -> Flux:
    return load(find_spec(str(folder)), device="cpu", on_progress=lambda *_: None, **options)


def latents(model: Flux, requests) -> list[torch.Tensor]:
    return run(model, [row_of(model, each) for each in requests])


@pytest.mark.parametrize("family", FOLDERS)
def test_a_new_size_finds_the_graph_that_is_there(family, request, fresh):
    """`fullgraph`, so a break would raise. A single row is a graph of its own."""
    model = loaded(request.getfixturevalue(FOLDERS[family]))
    expected = [latents(model, each) for each in (ALONE, PAIR, OTHER_PAIR)]
    compile_blocks(model, backend="aot_eager")
    for first in (ALONE[:1], PAIR):
        latents(model, first)
    count = graphs_compiled()
    assert count > 0
    found = [[latents(model, [each])[0] for each in ALONE]]
    found += [latents(model, each) for each in (PAIR, OTHER_PAIR)]
    assert graphs_compiled() == count
    for ours, theirs in zip(found, expected, strict=True):
        assert max(map(distance, ours, theirs)) < 1e-5


def test_what_the_compiler_makes_draws_the_same(tiny_flux2_folder, fresh):
    """With a picture to look at, by the compiler that is used."""
    asked = [replace(REQUEST, references=(photo(32, 32),))]
    (expected,) = latents(loaded(tiny_flux2_folder), asked)
    (ours,) = latents(loaded(tiny_flux2_folder, compiles=True), asked)
    assert graphs_compiled() > 0 and distance(ours, expected) < 1e-5


def test_a_streamed_transformer_is_not_compiled_and_that_is_said(
    tiny_folder, monkeypatch, caplog, fresh
):
    monkeypatch.setattr("pipelines.loading.free_bytes", lambda device: 10**12)
    with caplog.at_level(logging.WARNING):
        model = loaded(tiny_folder, memory="offload", compiles=True)
    assert "it is not compiled" in caplog.text
    latents(model, ALONE[:1])
    assert graphs_compiled() == 0
