"""Image-to-image: what a gentle edit keeps, what a strong one follows, and where it ends."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from training.compositions import COLOURS, Mix, Scene, any_scene
from training.drawing import draw
from training.finding import Box, background_rows
from training.measures import background_of, colour_shift, ssim
from training.prompts import caption
from training.reading import read
from training.rendering import Edit, Editor
from training.studies import Bench, Numbers

SOURCES = 15  # drawn ones, and as many that the model made
GENTLE, STRONG = 0.3, 0.7
STRENGTHS = (GENTLE, 0.5, STRONG, 0.9)
MOVED = 0.15  # of the picture's side; a box whose centre moved farther is at another place
ONE_COLOUR = Mix(position=0.5, free=0.5)


@dataclass(frozen=True, slots=True)
class Source:
    """A picture of one object, its words, the same object's words before another colour."""

    pixels: np.ndarray
    text: str
    changed: str
    colour: str  # of the changed background


def sources(bench: Bench) -> list[Source]:
    """Half of them drawn, half made by the model from the same words."""
    rng = random.Random(bench.seed + 1)
    scenes = [any_scene(rng, ONE_COLOUR) for _ in range(SOURCES)]
    texts = [_said(scene, rng) for scene in scenes]
    drawn = [draw(scene, bench.critic.sprites) for scene in scenes]
    made = bench.paint(texts)
    colours = [rng.choice([c for c in COLOURS if c not in scene.background]) for scene in scenes]
    changed = [
        _said(replace(scene, background=(colour,)), rng)
        for scene, colour in zip(scenes, colours, strict=True)
    ]
    return [
        Source(*row)
        for pictures in (drawn, made)
        for row in zip(pictures, texts, changed, colours, strict=True)
    ]


def _said(scene: Scene, rng: random.Random) -> str:
    text = ""
    while not text:
        text = caption(scene, rng)
    return text


def scores(bench: Bench, editor: Editor) -> Numbers:
    """All of image-to-image by name; shares, but for the colour shift (0 to 255)."""
    started = sources(bench)
    edit = Edits(bench, editor, started)
    gentle = edit.made([source.text for source in started], GENTLE)
    pairs = [(s.pixels, pixels) for s, pixels in zip(started, gentle, strict=True)]
    followed = {strength: edit.followed(strength) for strength in STRENGTHS}
    shares = [np.mean([colour for colour, _ in marks]) for marks in followed.values()]
    return {
        "edit_gentle_ssim": float(np.mean([ssim(a, b) for a, b in pairs])),
        "edit_gentle_colour_shift": float(np.mean([colour_shift(a, b) for a, b in pairs])),
        "edit_follows": float(shares[STRENGTHS.index(STRONG)]),
        "edit_keeps_place": float(np.mean([place for _, place in followed[STRONG]])),
        "edit_following_fall": float(max(np.maximum.accumulate(shares) - shares)),
        "edit_full_difference": full_difference(bench, editor, started[:4]),
    } | {f"edit_follows_{s:g}": float(v) for s, v in zip(STRENGTHS, shares, strict=True)}


@dataclass(frozen=True, slots=True)
class Edits:
    """Edits of the sources; source i has its noise from seed ``bench.seed`` + i."""

    bench: Bench
    editor: Editor
    started: Sequence[Source]

    def made(self, texts: Sequence[str], strength: float) -> list[np.ndarray]:
        edits = [
            Edit(source.pixels, text, strength, self.bench.seed + i)
            for i, (source, text) in enumerate(zip(self.started, texts, strict=True))
        ]
        return self.editor.edit(edits, self.bench.settings)

    def followed(self, strength: float) -> list[tuple[bool, bool]]:
        """For each source: has the asked background, has its object where it was."""
        pictures = self.made([source.changed for source in self.started], strength)
        return [
            (
                background_of(background_rows(pixels)) == (source.colour,),
                self._is_kept(source.pixels, pixels),
            )
            for source, pixels in zip(self.started, pictures, strict=True)
        ]

    def _is_kept(self, before: np.ndarray, after: np.ndarray) -> bool:
        first, second = (read(self.bench.critic.judge, pixels) for pixels in (before, after))
        return bool(first and second) and is_near(first[0].box, second[0].box, before.shape)


def is_near(first: Box, second: Box, shape: tuple[int, ...]) -> bool:
    """Whether the boxes' centres differ by at most MOVED of [height, width] in each direction."""
    steps = (abs(a - b) for a, b in zip(first.centre, second.centre, strict=True))
    return all(step <= MOVED * side for step, side in zip(steps, (shape[1], shape[0]), strict=True))


def full_difference(bench: Bench, editor: Editor, started: Sequence[Source]) -> float:
    """Levels of 255 between an edit of strength 1 and diffusers' text-to-image from its noise.

    Image-to-image draws the noise of the encoded source first, which strength 1 then discards.
    """
    edits = [Edit(source.pixels, started[0].text, 1.0, bench.seed) for source in started]
    ours = editor.edit(edits, bench.settings)
    generator = torch.Generator().manual_seed(bench.seed)
    shape = bench.renderer.noise_shape(bench.settings)
    torch.randn(shape, generator=generator)
    noise = torch.randn(shape, generator=generator)
    theirs = bench.renderer.from_noise(started[0].text, noise, bench.settings)
    return float(max(np.abs(pixels.astype(int) - theirs).max() for pixels in ours))
