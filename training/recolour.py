"""Painting an icon in another colour: the pixels of its main hue, their shading kept."""

from __future__ import annotations

import numpy as np
from PIL import Image

HUE_REACH = 0.13  # of the colour circle, on each side of the main hue
MIN_SATURATION = 0.22


def recolour(sprite: Image.Image, colour: tuple[int, int, int]) -> Image.Image:
    """The RGBA sprite with its main hue turned into ``colour`` (sRGB, 0 to 255).

    A painted pixel keeps how much lighter or darker it is than the painted area's middle; leaves,
    wheels and eyes of other hues stay as they are.
    """
    rgba = np.asarray(sprite, np.float32) / 255
    rgb, alpha = rgba[..., :3], rgba[..., 3:]
    mask = _main_hue(rgb, alpha[..., 0])
    light = rgb @ np.array([0.299, 0.587, 0.114], np.float32)
    middle = float(np.median(light[(mask > 0.5) & (alpha[..., 0] > 0.5)]))
    painted = _shade(np.array(colour, np.float32) / 255, light, middle)
    mixed = mask[..., None] * painted + (1 - mask[..., None]) * rgb
    return Image.fromarray((np.concatenate([mixed, alpha], -1) * 255).round().astype(np.uint8))


def _main_hue(rgb: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Share of the paint in each pixel, 0 to 1: near the commonest hue, and not grey."""
    hsv = np.asarray(Image.fromarray((rgb * 255).astype(np.uint8)).convert("HSV"), np.float32) / 255
    hue, saturation = hsv[..., 0], hsv[..., 1]
    weight = saturation * hsv[..., 2] * alpha * (saturation > MIN_SATURATION)
    votes, edges = np.histogram(hue, bins=36, range=(0, 1), weights=weight)
    votes = votes + np.roll(votes, 1) + np.roll(votes, -1)
    main = (edges[int(votes.argmax())] + edges[int(votes.argmax()) + 1]) / 2
    distance = np.abs((hue - main + 0.5) % 1 - 0.5)
    near = np.clip((HUE_REACH - distance) / 0.03, 0, 1)
    coloured: np.ndarray = np.clip((saturation - MIN_SATURATION) / 0.08, 0, 1)
    return near * coloured


def _shade(colour: np.ndarray, light: np.ndarray, middle: float) -> np.ndarray:
    """``colour`` where the light is ``middle``, towards black below it and towards white above."""
    darker = np.clip(light / max(middle, 1e-3), 0, 1)[..., None] * colour
    lighter = np.clip((light - middle) / max(1 - middle, 1e-3), 0, 1)[..., None]
    return darker + lighter * (1 - colour)
