"""What tests of several parts share."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def smollm2_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the embedded text model lies: fetched and converted once a run."""
    from pipelines.text import embedded

    folder = tmp_path_factory.mktemp("text")
    embedded.prepare(folder, lambda detail: None)
    return folder
