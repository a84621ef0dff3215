"""What the embedded model can draw and how to ask for it, as a file beside its weights.

python -m training.world --out assets/flux-emoji/world.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from training.backgrounds import COLOUR_WORDS, SETTING_NOUNS, SETTING_PHRASES
from training.compositions import COLOURS, POSITIONS, SETTINGS
from training.emoji import OBJECTS, Emoji
from training.grammar import (
    ADJECTIVES,
    COUNT_WORDS,
    PLACE_TAGS,
    PLACES,
    RELATIONS,
    SIZE_WORDS,
    STYLES,
)
from training.nouns import NOUNS

FILE = "world.json"


def describe() -> dict[str, Any]:
    """The grammar's tables, each phrase once.

    In ``relations`` ``{a}`` is the left thing of "beside" and the upper one of "above".
    """
    return {
        "objects": [_object(emoji) for emoji in OBJECTS],
        "colours": [
            {"name": name, "synonyms": list(COLOUR_WORDS[name]), "hex": "#" + bytes(rgb).hex()}
            for name, rgb in COLOURS.items()
        ],
        "settings": [
            {"name": name, "phrases": _once(SETTING_PHRASES[name] + SETTING_NOUNS[name])}
            for name in SETTINGS
        ],
        "positions": [
            {"name": name, "phrases": _once(PLACES[name] + PLACE_TAGS[name])}
            for name in POSITIONS
            if name
        ],
        "sizes": [{"name": name, "words": _once(words)} for name, words in SIZE_WORDS.items()],
        "counts": [{"count": count, "words": _once(words)} for count, words in COUNT_WORDS.items()],
        "relations": [{"name": name, "phrases": _once(rows)} for name, rows in RELATIONS.items()],
        "styles": _once(ADJECTIVES + STYLES),
    }


def _object(emoji: Emoji) -> dict[str, Any]:
    """``colour`` is the natural one, "" where people name none; ``plural`` of the name alike."""
    names = [noun.singular.replace("_", " ") for noun in NOUNS[emoji.name]]
    return {
        "name": emoji.name,
        "synonyms": names[1:],
        "colour": emoji.colour,
        "is_paintable": emoji.is_paintable,
        "is_countable": emoji.is_countable,
        "plural": NOUNS[emoji.name][0].plural.replace("_", " "),
    }


def _once(phrases: Iterable[str]) -> list[str]:
    return [phrase for phrase in dict.fromkeys(phrases) if phrase]


def write(folder: Path) -> None:
    """Put ``world.json`` into the model's folder."""
    write_file(folder / FILE)


def write_file(path: Path) -> None:
    path.write_text(json.dumps(describe(), indent=1, ensure_ascii=False) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write what the embedded model can draw")
    parser.add_argument("--out", type=Path, default=Path("assets/flux-emoji") / FILE)
    write_file(parser.parse_args().out)


if __name__ == "__main__":
    main()
