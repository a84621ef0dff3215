"""A small world, as a file beside a model would tell it."""

import json
from pathlib import Path
from typing import Any


def _thing(name: str, *synonyms: str, plural: str = "", paintable: bool = False) -> dict[str, Any]:
    return {
        "name": name,
        "synonyms": list(synonyms),
        "colour": "red" if paintable else "",
        "is_paintable": paintable,
        "is_countable": bool(plural),
        "plural": plural,
    }


def _rows(key: str, values: dict[Any, list[str]], name: str = "name") -> list[dict[str, Any]]:
    return [{name: value, key: phrases} for value, phrases in values.items()]


def small_world() -> dict[str, Any]:
    """Things with and without article and plural, two colours, two of everything else."""
    return {
        "objects": [
            _thing("carrot", plural="carrots"),
            _thing("car", "automobile", plural="cars", paintable=True),
            _thing("apple", plural="apples", paintable=True),
            _thing("mouse", plural="mice"),
            _thing("ice cream", "ice cream cone", plural="ice creams"),
            _thing("unicorn", plural="unicorns"),
            _thing("cherries", paintable=True),
        ],
        "colours": [
            {"name": "red", "synonyms": ["scarlet"], "hex": "#de3434"},
            {"name": "orange", "synonyms": [], "hex": "#f58c28"},
        ],
        "settings": _rows(
            "phrases",
            {
                "snow": ["in the snow", "on the snow", "a snowy landscape", "snow"],
                "night sky": ["at night", "under a starry sky", "night"],
            },
        ),
        "positions": _rows(
            "phrases",
            {
                "left": ["on the left", "to the left", "left side", "left"],
                "top left": ["in the top left", "in the top left corner", "top left"],
            },
        ),
        "sizes": _rows("words", {"small": ["small", "tiny"], "large": ["large", "big"]}),
        "counts": _rows("words", {2: ["two", "2", "a pair of"], 3: ["three"]}, "count"),
        "relations": _rows(
            "phrases",
            {
                "beside": ["{a} and {b}", "{a} next to {b}", "{a} to the left of {b}", "{a}, {b}"],
                "above": ["{a} above {b}", "{b} under {a}", "at the top {a}, at the bottom {b}"],
            },
        ),
        "styles": ["cute", "high quality"],
    }


def write_world(folder: Path, world: dict[str, Any]) -> Path:
    """Puts `world.json` into the folder, and returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "world.json").write_text(json.dumps(world), encoding="utf-8")
    return folder
