"""A contact sheet: sections of pictures with their prompts beneath, mistakes in red."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

import numpy as np
from PIL import Image, ImageDraw, ImageFont

COLUMNS = 20
SIDE_PX = 136
GAP_PX = 10
LINE_PX = 14
LINES = 4  # of the prompt, at most
LETTERS = 24  # a line
PAPER, INK, WRONG = (252, 252, 250), (40, 40, 44), (190, 30, 30)
FONT = ImageFont.load_default(11)
HEADING = ImageFont.load_default(22)


@dataclass(frozen=True, slots=True)
class Entry:
    """A picture, uint8 [h, w, 3], its prompt, and what is wrong with it, or ""."""

    pixels: np.ndarray
    text: str
    fault: str = ""


def contact_sheet(sections: Sequence[tuple[str, Sequence[Entry]]]) -> Image.Image:
    """All sections under their headings."""
    strips = [_section(title, entries) for title, entries in sections]
    width = max(strip.width for strip in strips)
    sheet = Image.new("RGB", (width, sum(strip.height for strip in strips)), PAPER)
    top = 0
    for strip in strips:
        sheet.paste(strip, (0, top))
        top += strip.height
    return sheet


def _section(title: str, entries: Sequence[Entry]) -> Image.Image:
    width, height = SIDE_PX + GAP_PX, SIDE_PX + GAP_PX + (LINES + 1) * LINE_PX
    rows = -(-len(entries) // COLUMNS)
    strip = Image.new("RGB", (COLUMNS * width + GAP_PX, rows * height + 48), PAPER)
    ImageDraw.Draw(strip).text((GAP_PX, 14), title, fill=INK, font=HEADING)
    for i, entry in enumerate(entries):
        _place(strip, entry, GAP_PX + i % COLUMNS * width, 48 + i // COLUMNS * height)
    return strip


def _place(strip: Image.Image, entry: Entry, x: int, y: int) -> None:
    """The picture, as large as the cell allows, and its lines."""
    picture = Image.fromarray(entry.pixels)
    picture.thumbnail((SIDE_PX, SIDE_PX), Image.Resampling.BOX)
    left, top = x + (SIDE_PX - picture.width) // 2, y + (SIDE_PX - picture.height) // 2
    strip.paste(picture, (left, top))
    draw = ImageDraw.Draw(strip)
    if entry.fault:
        edge = (left - 2, top - 2, left + picture.width + 1, top + picture.height + 1)
        draw.rectangle(edge, outline=WRONG, width=2)
    lines = wrap(entry.text, LETTERS, max_lines=LINES, placeholder=" …")
    faults = wrap(entry.fault, LETTERS, max_lines=1, placeholder=" …")
    for i, line in enumerate([*lines, *faults]):
        colour = INK if i < len(lines) else WRONG
        draw.text((x, y + SIDE_PX + 4 + i * LINE_PX), line, fill=colour, font=FONT)
