"""What a model draws, read from its folder: all of it or, with a word in the log, nothing."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.specs import EMBEDDED_FOLDER
from studio.world import MAX_FILE_BYTES, World, read_world
from tests.worlds import small_world, write_world
from training import world as training_world


def test_a_world_says_what_its_file_says(tmp_path: Path) -> None:
    world = read_world(str(write_world(tmp_path, small_world())))
    assert world is not None
    assert world.model_dump(mode="json") == small_world()


def test_the_file_of_the_training_is_taken(tmp_path: Path) -> None:
    training_world.write(tmp_path)
    world = read_world(str(tmp_path))
    assert world is not None
    told = training_world.describe()
    for key, rows in world.model_dump(mode="json", exclude_unset=True).items():
        assert rows == json.loads(json.dumps(told[key])), key


def test_the_shipped_file_is_what_the_grammar_writes() -> None:
    shipped = json.loads((EMBEDDED_FOLDER / "world.json").read_text(encoding="utf-8"))
    assert shipped == json.loads(json.dumps(training_world.describe()))
    world = read_world(str(EMBEDDED_FOLDER))
    assert world is not None and len(world.objects) >= 150


@pytest.mark.parametrize("source", ["black-forest-labs/FLUX.1-dev", "", "no/such/folder"])
def test_a_model_without_a_file_has_no_world(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_world(source) is None
    assert not caplog.messages


def changed(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    """Sets `objects.0.name` and the like."""

    def change(world: dict[str, Any]) -> None:
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = world
        for part in parents:
            place = place[part]
        place[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed("objects", []), "objects"),
        (changed("extra", 1), "extra"),
        (lambda world: world.pop("styles"), "styles"),
        (changed("objects.0.name", "two  spaces"), "objects.0.name"),
        (changed("objects.0.name", " "), "objects.0.name"),
        (changed("objects.0.name", "x" * 81), "objects.0.name"),
        (changed("objects.0.is_countable", 1), "objects.0.is_countable"),
        (changed("objects.0.colour", "ultraviolet"), "ultraviolet"),
        (changed("colours.0.hex", "red;position:fixed"), "colours.0.hex"),
        (changed("colours.0.hex", "#DE3434"), "colours.0.hex"),
        (changed("settings.0.phrases", []), "settings.0.phrases"),
        (changed("counts.0.count", "two"), "counts.0.count"),
        (changed("relations.0.phrases.0", "{a} and more"), "{a} and {b}"),
        (changed("relations.0.phrases.0", "{a} and {b} and {b}"), "{a} and {b}"),
        (changed("relations.0.phrases.0", "{a} and {b} and {"), "relations.0.phrases.0"),
    ],
)
def test_a_broken_file_is_ignored_and_the_log_names_the_fault(
    change: Callable[[dict[str, Any]], None],
    words: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = copy.deepcopy(small_world())
    change(world)
    assert read_world(str(write_world(tmp_path, world))) is None
    assert words in caplog.text and str(tmp_path / "world.json") in caplog.text


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b" " * (MAX_FILE_BYTES + 1)],
)
def test_a_file_that_is_no_world_is_ignored(
    content: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "world.json").write_bytes(content)
    assert read_world(str(tmp_path)) is None
    assert "is ignored" in caplog.text
    assert len(caplog.text) < 1000


def test_the_size_limit_is_far_from_the_embedded_models_file(tmp_path: Path) -> None:
    training_world.write(tmp_path)
    assert (tmp_path / "world.json").stat().st_size * 10 < MAX_FILE_BYTES
    assert World.model_validate_json((tmp_path / "world.json").read_bytes())
