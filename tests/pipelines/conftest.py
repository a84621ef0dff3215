"""Models for the tests: random tiny ones and the embedded one, each loaded once."""

import shutil
from pathlib import Path

import pytest
import torch

from pipelines.flux import Flux
from pipelines.loading import load
from pipelines.specs import EMBEDDED, find_spec
from tests.threads import one_thread as one_thread
from tests.tiny_flux import make_tiny_flux
from tests.tiny_flux2 import make_tiny_flux2, make_tiny_klein


def load_exact(model: str, dtype: torch.dtype = torch.float32) -> Flux:
    return load(find_spec(model), device="cpu", dtype=dtype, on_progress=lambda what, share: None)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    return make_tiny_flux(tmp_path_factory.mktemp("models") / "dev", guidance_embeds=True)


@pytest.fixture(scope="session")
def tiny(tiny_folder) -> Flux:
    """Guidance embedding and a schedule that shifts with the size, as FLUX.1-dev."""
    return load_exact(str(tiny_folder))


@pytest.fixture(scope="session")
def tiny_schnell(tmp_path_factory) -> Flux:
    folder = tmp_path_factory.mktemp("models") / "schnell"
    return load_exact(str(make_tiny_flux(folder, guidance_embeds=False)))


@pytest.fixture(scope="session")
def tiny_kontext(tiny_folder, tmp_path_factory) -> Flux:
    """The same parts as FLUX.1-dev; the index names the other pipeline."""
    folder = tmp_path_factory.mktemp("models") / "kontext"
    shutil.copytree(tiny_folder, folder)
    index = (folder / "model_index.json").read_text()
    (folder / "model_index.json").write_text(index.replace("FluxPipeline", "FluxKontextPipeline"))
    return load_exact(str(folder))


@pytest.fixture(scope="session")
def tiny_flux2_folder(tmp_path_factory) -> Path:
    return make_tiny_flux2(tmp_path_factory.mktemp("models") / "flux2")


@pytest.fixture(scope="session")
def tiny_flux2(tiny_flux2_folder) -> Flux:
    return load_exact(str(tiny_flux2_folder))


@pytest.fixture(scope="session")
def tiny_klein(tmp_path_factory) -> Flux:
    """Distilled: no guidance of any kind."""
    folder = tmp_path_factory.mktemp("models") / "klein"
    return load_exact(str(make_tiny_klein(folder, is_distilled=True)))


@pytest.fixture(scope="session")
def tiny_klein_base(tmp_path_factory) -> Flux:
    folder = tmp_path_factory.mktemp("models") / "klein-base"
    return load_exact(str(make_tiny_klein(folder, is_distilled=False)))


@pytest.fixture(scope="session")
def embedded() -> Flux:
    return load_exact(EMBEDDED)
