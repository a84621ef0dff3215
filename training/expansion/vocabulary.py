"""The word files in `words/`, read once: phrases with their tags, by file and section.

A line is `text | tags`; a subject is `one / many | tags`. `[name]` opens a section, `#` a remark,
`@axis a b c` names a closed axis of that file (see `tags`) with its values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from training.expansion.tags import OPEN, Needs, needs_of

FOLDER = Path(__file__).parent / "words"
CATEGORIES: tuple[str, ...] = tuple(OPEN["category"].split())

# Colours and what only colour can show: such words cannot stand in a black-and-white picture.
_COLOURED = re.compile(
    r"\b(red|orange|yellow|green|blue|teal|violet|purple|pink|rose|lilac|lavender|turquoise|gold|"
    r"golden|amber|honey|copper|russet|rust|rust-coloured|ochre|umber|navy|burgundy|mustard|coral|"
    r"mint|peach|apricot|brown|browns|emerald|cobalt|indigo|cream|sepia|colour|colours|saturated|"
    r"hues|tones|neon|pinks|oranges|coloured)\b"
)
_GREY_SECTIONS = {"before", "after", "name", "detail"}  # of a medium: they say it by a tag


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words for a slot, and what must hold for them to fit. `many` is a subject's plural."""

    text: str
    needs: Needs
    many: str = ""

    @property
    def has_plural(self) -> bool:
        """Whether several of it are called otherwise than one."""
        return self.many not in ("", self.text)


Sections = dict[str, tuple[Phrase, ...]]


@cache
def words(name: str) -> Sections:
    """The sections of one word file. Raises `UnknownTag` and `FileNotFoundError`."""
    local: dict[str, str] = {}
    sections: dict[str, list[Phrase]] = {}
    section: list[Phrase] = []
    title = ""
    for line in (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("@"):
            axis, *values = line[1:].split()
            local |= dict.fromkeys(values, f"{name}.{axis}")
        elif line.startswith("["):
            title = line.strip("[]")
            section = sections.setdefault(title, [])
        elif line and not line.startswith("#"):
            section.append(_phrase(line, local, title))
    return {title: tuple(phrases) for title, phrases in sections.items()}


def _phrase(line: str, local: dict[str, str], title: str) -> Phrase:
    text, _, tags = (part.strip() for part in line.partition("|"))
    one, _, many = (part.strip() for part in text.partition(" / "))
    needs = needs_of(tags.split(), local)
    if title not in _GREY_SECTIONS and (title == "palette" or _COLOURED.search(text)):
        needs = {"tone": frozenset({"colour"})} | needs
    return Phrase(one, needs, many)


def section(name: str, title: str) -> tuple[Phrase, ...]:
    """One section's phrases; none where the file has no such section."""
    return words(name).get(title, ())
