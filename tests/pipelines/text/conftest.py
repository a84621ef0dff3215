"""The embedded text model, loaded once a run."""

from pathlib import Path

import pytest

from pipelines.text import embedded
from pipelines.text.language_model import LanguageModel
from pipelines.text.loading import load_text_model


@pytest.fixture(scope="session")
def smollm2(smollm2_folder: Path) -> LanguageModel:
    """As the studio serves it on a CPU."""
    return load_text_model(embedded.NAME, folder=smollm2_folder, device="cpu")
