"""``world.json`` tells what the model draws; its phrases are those that the model was taught."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from training import world
from training.compositions import COLOURS, POSITIONS, SETTINGS, SIZES
from training.emoji import BY_NAME
from training.grammar import vocabulary


@pytest.fixture
def written(tmp_path: Path) -> dict[str, Any]:
    world.write(tmp_path)
    content: dict[str, Any] = json.loads((tmp_path / "world.json").read_text())
    return content


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in rows]


def phrases(content: Any) -> list[str]:
    """Every string inside."""
    if isinstance(content, str):
        return [content]
    inner = content.values() if isinstance(content, dict) else content
    return [s for item in inner for s in phrases(item)] if not isinstance(content, int) else []


def test_it_names_everything_that_a_scene_can_hold(written: dict[str, Any]) -> None:
    assert names(written["objects"]) == list(BY_NAME)
    assert names(written["colours"]) == list(COLOURS)
    assert names(written["settings"]) == list(SETTINGS)
    assert set(names(written["positions"])) == set(POSITIONS) - {""}
    assert set(names(written["sizes"])) == set(SIZES) - {""}
    assert names(written["relations"]) == ["beside", "above"]
    assert [row["count"] for row in written["counts"]] == [2, 3]


def test_an_object_s_row_is_that_of_the_table(written: dict[str, Any]) -> None:
    apple, bike = (
        next(row for row in written["objects"] if row["name"] == name)
        for name in ("apple", "bicycle")
    )
    assert apple["colour"] == "red" and apple["is_paintable"] and apple["is_countable"]
    assert bike["synonyms"] == ["bike"] and not bike["is_paintable"]


def test_a_colour_s_hex_is_what_is_drawn(written: dict[str, Any]) -> None:
    for row in written["colours"]:
        drawn = tuple(int(row["hex"][i : i + 2], 16) for i in (1, 3, 5))
        assert drawn == COLOURS[row["name"]]


def test_its_words_are_all_known_and_said_once(written: dict[str, Any]) -> None:
    for row in written["colours"]:
        del row["hex"]
    said = re.sub(r"\{[ab]\}", " ", " ".join(phrases(written)))
    assert set(re.findall("[a-z]+", said)) <= set(vocabulary())
    for part in ("settings", "positions", "relations"):
        for row in written[part]:
            assert row["phrases"] and len(set(row["phrases"])) == len(row["phrases"])
