"""What is behind the things, in words: colours, gradients and settings.

In templates ``{c}`` and ``{d}`` are colours, ``{d}`` the lower one of a gradient, and ``{n}`` is
one of the nouns.
"""

from __future__ import annotations

# Other words for a drawn colour. Only such as a person would not take for another shade.
COLOUR_WORDS: dict[str, tuple[str, ...]] = {
    "white": (),
    "black": (),
    "grey": ("gray",),
    "red": ("scarlet", "crimson"),
    "orange": (),
    "yellow": ("golden", "gold"),
    "green": (),
    "teal": ("turquoise", "cyan"),
    "blue": (),
    "purple": ("violet",),
    "pink": (),
    "brown": (),
}
# "light blue" is drawn blue, and shows no light bulb.
SHADES = ("bright", "light", "dark", "pale", "vivid", "deep")
# Words of a background of one colour, and after a preposition.
PLAIN_NOUNS = ("{c} background",) * 6 + (
    "{c} backdrop",
    "plain {c} background",
    "solid {c} background",
    "{c} wall",
    "{c} canvas",
    "{c} sky",
    "{c} bg",
    "{c} colour background",
    "{c} color background",
    "background in {c}",
    "{c} surface",
)
PLAIN_PHRASES = ("on a {n}",) * 5 + (
    "on {n}",
    "on {c}",
    "on {c}",
    "against a {n}",
    "against {c}",
    "in front of a {n}",
    "with a {n}",
    "with {n}",
    "with the background in {c}",
)
PLAIN_TAGS = ("{n}",) * 4 + ("background {c}", "background: {c}", "{c}")
GRADIENT_NOUNS = (
    "gradient from {c} to {d}",
    "gradient from {c} to {d}",
    "{c} to {d} gradient",
    "{c} to {d} gradient",
    "{c} to {d} gradient background",
    "gradient background from {c} to {d}",
    "{c}-{d} gradient",
    "{c} and {d} gradient",
    "vertical {c} to {d} gradient",
    "gradient of {c} and {d}",
    "background fading from {c} to {d}",
    "{c} background fading into {d}",
    "{c} background fading to {d}",
    "background that goes from {c} to {d}",
)
GRADIENT_PHRASES = ("on a {n}",) * 4 + (
    "on {n}",
    "on {c} fading into {d}",
    "against a {n}",
    "in front of a {n}",
    "with a {n}",
)
GRADIENT_TAGS = ("{n}",) * 3 + ("{c} fading into {d}", "{c} to {d}", "from {c} to {d}")
SETTING_PHRASES: dict[str, tuple[str, ...]] = {
    "night sky": (
        "at night",
        "in the night sky",
        "under a starry sky",
        "in the night",
        "on a starry night",
        "in a starry sky",
        "in front of a night sky",
        "during the night",
        "in space",
        "in outer space",
    ),
    "grass": (
        "on the grass",
        "on grass",
        "on green grass",
        "in the grass",
        "in a meadow",
        "on a meadow",
        "on a lawn",
        "in a field",
        "in the garden",
    ),
    "sea": (
        "at sea",
        "on the sea",
        "on the blue sea",
        "by the sea",
        "in the sea",
        "on the ocean",
        "in the ocean",
        "on the water",
        "in the water",
    ),
    "snow": (
        "in the snow",
        "on the snow",
        "on snow",
        "in the white snow",
        "in winter",
        "in a snowy landscape",
        "in falling snow",
    ),
    "desert": (
        "in the desert",
        "in a desert",
        "on the sand",
        "on sand",
        "in the dunes",
        "in a sandy desert",
    ),
}
SETTING_NOUNS: dict[str, tuple[str, ...]] = {
    "night sky": ("a night sky", "a starry sky", "a starry night", "night", "space"),
    "grass": ("a meadow", "a lawn", "grass", "a grass field"),
    "sea": ("the sea", "the ocean", "the open sea"),
    "snow": ("snow", "a snowy landscape", "a winter landscape"),
    "desert": ("a desert", "the desert", "sand dunes"),
}


def texts() -> list[str]:
    """Everything above in one list."""
    tables = (COLOUR_WORDS, SETTING_PHRASES, SETTING_NOUNS)
    found = [*COLOUR_WORDS, *SHADES, *PLAIN_NOUNS, *PLAIN_PHRASES, *PLAIN_TAGS]
    found += [*GRADIENT_NOUNS, *GRADIENT_PHRASES, *GRADIENT_TAGS]
    return found + [text for table in tables for row in table.values() for text in row]
