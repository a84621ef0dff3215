"""Clauses that cannot be in one picture with what was said before: midday at night, two media.

A small model writes each clause for itself. A clause that speaks of an axis (time of day, weather,
medium …) otherwise than the idea or an earlier clause is left out.
"""

import re
from collections.abc import Mapping

Words = re.Pattern[str]


def _words(*alternatives: str) -> Words:
    return re.compile(rf"\b(?:{'|'.join(alternatives)})", re.IGNORECASE)


# An axis names its values by the words that tell them; one clause may tell several axes.
AXES: Mapping[str, Mapping[str, Words]] = {
    "time": {
        "day": _words(
            "midday",
            "noon",
            "daylight",
            "sunny",
            "morning",
            "afternoon",
            r"bright (?:\w+ )?sun\b",
            "overcast",
            "blue sky",
        ),
        "night": _words(
            r"nights?\b",
            "midnight",
            r"moon(?!stone)",
            "starlight",
            "starry",
            r"stars\b",
            "street lamp",
        ),
        "dusk": _words("dusk", "twilight", "sunset", "blue hour", "last sun", "last grey light"),
    },
    "hour": {
        "early": _words("early morning", "dawn", "sunrise", "first light"),
        "late": _words("midday", "noon", "afternoon", "evening", "dusk", "sunset", "last sun"),
    },
    "weather": {
        "wet": _words(r"rain(?!bow)", "storm", "thunder", "drizzle", "downpour", r"fog\b", "foggy"),
        "clear": _words(
            r"clear (?:\w+ )?(?:sky|sun)", "crisp shadows", "short shadows", "sunny", "cloudless"
        ),
    },
    "state": {
        "asleep": _words("asleep", "sleeping", "dozing", "napping"),
        "awake": _words(
            "alert",
            "watchful",
            r"gaze\b",
            "staring",
            "looking at",
            "catchlight",
            r"eyes fixed",
        ),
    },
    "room": {
        "inside": _words(
            "indoors",
            r"in an? (?:\w+,? ){0,3}(?:room|hall|kitchen|corridor)\b",
            "ceiling",
            r"window light",
            "studio backdrop",
            r"librar(?:y|ies)\b",
            r"shop\b",
            r"nook\b",
            "windowsill",
        ),
        "outside": _words(
            "horizon",
            r"skyline",
            r"(?:vast|pale|broad|huge|clear|overcast|open) sky",
            "clouds",
            "meadow",
            "beach",
            "dunes",
            "wheat",
            r"fields?\b",
            "rooftops",
            r"(?:at|by|on|over|across) (?:the|a) (?:\w+ ){0,2}(?:sea|river|lake|street|road)\b",
        ),
        "water": _words("underwater", "under water", "seabed", "coral reef"),
    },
    "medium": {
        "photograph": _words(
            "photo", r"\d+ ?mm\b", r"lens\b", "film still", "instant film", "depth of field"
        ),
        "painting": _words(
            r"(?:oil|acrylic) paint", "impasto", "brushwork", "oil sketch", "fresco"
        ),
        "watercolour": _words(r"watercolou?r", "gouache", "pigments"),
        "drawing": _words(
            "drawing", "illustration", "pencil", "charcoal sketch", "engraving", "etching", "comic"
        ),
        "graphic": _words("poster", "pixel art", "vector", "woodcut", "linocut", "screen ?print"),
        "model": _words("claymation", "3d render", "papercraft", "stop motion"),
    },
}
# A full moon hangs in the dusk, and the sky is in a greenhouse as well.
TOGETHER = frozenset({frozenset({"night", "dusk"})})


def told_by(text: str) -> dict[str, frozenset[str]]:
    """The values that a text tells, by axis."""
    found = {
        axis: frozenset(value for value, words in values.items() if words.search(text))
        for axis, values in AXES.items()
    }
    return {axis: values for axis, values in found.items() if values}


def contradicts(clause: str, before: str) -> bool:
    """Whether `clause` tells an axis otherwise than what stands before it."""
    known = told_by(before)
    for axis, values in told_by(clause).items():
        for value in values:
            others = known.get(axis, frozenset())
            if value not in others and any({value, other} not in TOGETHER for other in others):
                return True
    return False
