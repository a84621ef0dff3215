"""Finished pictures as HTML: buttons that open the large view, and the history strip.

Pictures are shown by the studio's own owner-checked routes. Gradio's picture components would make
a lossy WebP of them and serve a copy to anyone. Addresses are relative, so they work below a
proxy's path. Every value is escaped; the script reads the settings from `data-` attributes.
"""

import json
from html import escape

from studio.job import Picture
from studio.ui.step_cache import cache_fact


def shot(picture: Picture, *, is_thumbnail: bool, base: str = "") -> str:
    """A picture as a button; the large view takes everything it shows from the attributes.

    `base` leads to the studio's root.
    """
    path = picture.thumbnail_path if is_thumbnail else picture.content_path
    source, content = (f"{base}{each.lstrip('/')}" for each in (path, picture.content_path))
    lazy = " loading='lazy'" if is_thumbnail else ""
    label = f"Open picture: {picture.request.prompt[:120]}"
    return (
        f"<button type='button' class='shot' aria-label='{_attribute(label)}' "
        f"data-picture='{_attribute(picture.id)}' data-content='{_attribute(content)}' "
        f"data-name='{_attribute(file_name(picture))}' "
        f"data-cache='{_attribute(cache_fact(picture))}' "
        f"data-settings='{_attribute(json.dumps(shown_settings(picture)))}'>"
        f"<img src='{_attribute(source)}' alt='' width='{picture.width}' "
        f"height='{picture.height}' decoding='async'{lazy}></button>"
    )


def shown_settings(picture: Picture) -> dict[str, object]:
    """What "copy settings" copies: the picture's own seed, and nothing that did not act."""
    values = picture.request.to_dict() | {
        "seed": picture.seed,
        "count": 1,
        "steps_computed": picture.steps_computed,
        "steps_predicted": picture.steps_predicted,
    }
    if not picture.request.has_source:
        values.pop("strength")
    if not picture.request.guidance_scale:
        values.pop("guidance_scale")
    if picture.format == "png":
        values.pop("quality")
    return {name: value for name, value in values.items() if value is not None}


def file_name(picture: Picture) -> str:
    """A name for the download: ASCII and short whatever the prompt."""
    words = "".join(c if c.isascii() and c.isalnum() else " " for c in picture.request.prompt)
    slug = "-".join(words.lower().split())[:40].strip("-") or "picture"
    suffix = "jpg" if picture.format == "jpeg" else picture.format
    return f"{slug}-{picture.seed}.{suffix}"


def strip(pictures: tuple[Picture, ...], *, has_more: bool, base: str = "") -> str:
    """The history, newest first, with a button for the next page."""
    if not pictures:
        return "<p class='strip-empty'>Your pictures will be kept here.</p>"
    shots = "".join(shot(picture, is_thumbnail=True, base=base) for picture in pictures)
    more = (
        "<button type='button' class='more' data-do='more'>Load more</button>" if has_more else ""
    )
    return f"<nav class='strip' aria-label='History'>{shots}{more}</nav>"


def _attribute(value: str) -> str:
    return escape(value, quote=True)
