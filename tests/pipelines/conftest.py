"""Models for the tests: two random tiny ones and the embedded one, each loaded once."""

from pathlib import Path

import pytest
import torch

from pipelines.flux1 import Flux1
from pipelines.loading import load
from pipelines.specs import EMBEDDED, find_spec
from tests.threads import one_thread as one_thread
from tests.tiny_flux import make_tiny_flux


def load_exact(model: str, dtype: torch.dtype = torch.float32) -> Flux1:
    return load(find_spec(model), device="cpu", dtype=dtype, on_progress=lambda what, share: None)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory) -> Path:
    return make_tiny_flux(tmp_path_factory.mktemp("models") / "dev", guidance_embeds=True)


@pytest.fixture(scope="session")
def tiny(tiny_folder) -> Flux1:
    """Guidance embedding and a schedule that shifts with the size, as FLUX.1-dev."""
    return load_exact(str(tiny_folder))


@pytest.fixture(scope="session")
def tiny_schnell(tmp_path_factory) -> Flux1:
    folder = tmp_path_factory.mktemp("models") / "schnell"
    return load_exact(str(make_tiny_flux(folder, guidance_embeds=False)))


@pytest.fixture(scope="session")
def embedded() -> Flux1:
    return load_exact(EMBEDDED)
