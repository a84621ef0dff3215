"""The embedded text model, fetched and converted once a run."""

from pathlib import Path

import pytest

from pipelines.text import embedded
from pipelines.text.language_model import LanguageModel
from pipelines.text.loading import load_text_model


@pytest.fixture(scope="session")
def smollm2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the embedded model lies."""
    folder = tmp_path_factory.mktemp("text")
    embedded.prepare(folder, lambda detail: None)
    return folder


@pytest.fixture(scope="session")
def smollm2(smollm2_folder: Path) -> LanguageModel:
    """As the studio serves it on a CPU."""
    return load_text_model(
        embedded.NAME,
        folder=smollm2_folder,
        device="cpu",
        dtype="auto",
        token=None,
        progress=lambda detail, share: None,
    )
