"""The words of the captions, as tables: sentences, places, sizes, counts, relations, fillers.

In templates ``{a}`` is the left or upper one of two things and ``{b}`` the other.
"""

from __future__ import annotations

import re

from training import backgrounds
from training.nouns import NOUNS

# How what is shown {s} and what is behind it stand together: {p} "on a blue background",
# {n} "a blue background", {t} "blue background", {k} "blue". The first may follow "draw".
ORDERS = ("{s} {p}",) * 9 + ("{s}, {t}",) * 4 + ("{s}, {p}", "{n} with {s}", "{n} with {s}")
FREE_ORDERS = (
    "{t}, {s}",
    "{t}, {s}",
    "{t}: {s}",
    "{p}, {s}",
    "{p}: {s}",
    "{p} {s}",
    "{s}. {t}",
    "{s}, the background is {k}",
    "{s}. the background is {k}",
    "the background is {k}, with {s}",
    "{s} and the background is {k}",
    "{n} behind {s}",
)
PLACES: dict[str, tuple[str, ...]] = {
    "centre": ("in the centre", "in the middle", "in the center", "centered", "centred"),
    "left": ("on the left", "at the left", "on the left side", "to the left", "in the left half"),
    "right": (
        "on the right",
        "at the right",
        "on the right side",
        "to the right",
        "in the right half",
    ),
    "top": ("at the top", "near the top", "in the upper part", "on the top", "in the upper half"),
    "bottom": (
        "at the bottom",
        "near the bottom",
        "in the lower part",
        "on the bottom",
        "in the lower half",
    ),
}
_CORNERS = ("in the {y} {x}", "in the {y} {x} corner", "at the {y} {x}")
PLACES |= {
    f"{y} {x}": tuple(form.format(y=word, x=x) for word in words for form in _CORNERS)
    for y, words in (("top", ("top", "upper")), ("bottom", ("bottom", "lower")))
    for x in ("left", "right")
}
# As a word of its own: "apple, top left, blue background".
PLACE_TAGS: dict[str, tuple[str, ...]] = {
    "centre": ("centre", "center", "middle"),
    "left": ("left", "left side", "left-hand side"),
    "right": ("right", "right side", "right-hand side"),
    "top": ("top", "upper part"),
    "bottom": ("bottom", "lower part"),
    "top left": ("top left", "top left corner", "upper left"),
    "top right": ("top right", "top right corner", "upper right"),
    "bottom left": ("bottom left", "bottom left corner", "lower left"),
    "bottom right": ("bottom right", "bottom right corner", "lower right"),
}
SIZE_WORDS: dict[str, tuple[str, ...]] = {
    "small": ("small", "small", "tiny", "little", "mini"),
    "medium": ("medium-sized", "medium"),
    "large": ("large", "big", "big", "huge", "giant", "enormous"),
}
COUNT_WORDS: dict[int, tuple[str, ...]] = {
    2: ("two", "two", "two", "2", "2", "a pair of", "a couple of", "2x"),
    3: ("three", "three", "three", "3", "3", "a trio of", "some", "a few", "several", "3x", ""),
}
RELATIONS: dict[str, tuple[str, ...]] = {
    "beside": (
        "{a} and {b}",
        "{a} and {b}",
        "{a} and {b}",
        "{a}, {b}",
        "{a} & {b}",
        "{a} + {b}",
        "{a} with {b}",
        "{a} next to {b}",
        "{a} next to {b}",
        "{a} beside {b}",
        "{a} by {b}",
        "{a} and {b} side by side",
        "{a} to the left of {b}",
        "{a} left of {b}",
        "{a} on the left and {b} on the right",
        "{a} on the left, {b} on the right",
        "{a} left, {b} right",
        "{b} to the right of {a}",
        "{b} to the right of {a}",
        "{b} right of {a}",
        "{b} on the right and {a} on the left",
        "{b} on the right, {a} on the left",
        "on the left {a}, on the right {b}",
    ),
    "above": (
        "{a} above {b}",
        "{a} above {b}",
        "{a} over {b}",
        "{a} on {b}",
        "{a} on top of {b}",
        "{a} at the top and {b} at the bottom",
        "{a} at the top, {b} at the bottom",
        "{b} below {a}",
        "{b} under {a}",
        "{b} beneath {a}",
        "{b} underneath {a}",
        "{b} at the bottom and {a} at the top",
        "at the top {a}, at the bottom {b}",
    ),
}
# True of every picture, or idle: they change nothing.
ADJECTIVES = (
    *("cute", "simple", "flat", "nice", "beautiful", "pretty", "lovely", "cartoon", "adorable"),
    *("funny", "minimal", "clean", "stylized", "detailed", "colourful", "colorful"),
)
STYLES = (
    *("cute", "simple", "minimal", "minimalist", "clean", "beautiful", "detailed"),
    *("hd", "4k", "8k", "high quality", "best quality", "highly detailed", "masterpiece"),
    *("flat", "flat design", "flat style", "cartoon", "cartoon style", "emoji", "emoji style"),
    *("clip art", "vector art", "digital art", "art", "illustration", "drawing", "icon", "logo"),
    *("sticker", "symbol"),
)
MEDIA = (
    *("picture of", "image of", "drawing of", "illustration of", "emoji of", "icon of"),
    *("cartoon of", "painting of"),
)
INTROS = (
    *("draw", "draw me", "please draw", "can you draw", "could you draw", "paint", "sketch"),
    *("make", "create", "generate", "design", "render", "show me", "show", "give me"),
    *("i want", "i would like", "i need", "i see", "we see", "here is", "this is"),
)
ARTICLES = ("a", "an", "the", "one")
COLOURED = ("coloured", "colored")


def vocabulary() -> list[str]:
    """Every word that a caption can hold, sorted: the tokenizers keep each of them whole."""
    names = [name for nouns in NOUNS.values() for n in nouns for name in (n.singular, n.plural)]
    texts = [*backgrounds.texts(), *ORDERS, *FREE_ORDERS, *names, *ARTICLES, *COLOURED]
    for table in (PLACES, PLACE_TAGS, SIZE_WORDS, RELATIONS):
        texts += [text for row in table.values() for text in row]
    texts += [text for row in COUNT_WORDS.values() for text in row]
    texts += [*ADJECTIVES, *STYLES, *MEDIA, *INTROS]
    bare = re.sub(r"\{\w\}", " ", " ".join(texts))
    return sorted(set(re.findall("[a-z]+", bare)))
