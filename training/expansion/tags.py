"""Which words go together: tags on axes, and what an idea has settled on each of them.

Night stays night because `night` and `day` are values of one axis. An idea narrows the axes that
it speaks of; every clause that is chosen narrows them further, and one that would leave an axis
without a value does not fit. A closed axis is different: what nobody granted is not there, so
that only furred animals have whiskers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

OPEN: dict[str, str] = {
    "place": "indoors outdoors studio underwater underground space",
    "time": "dawn day dusk night",
    "weather": "clear cloud rain snow fog storm wind",
    "season": "spring summer autumn winter",
    "scene": (
        "city village field forest mountain desert coast sea river lake garden room kitchen cafe "
        "workshop ice jungle road park hall cave sky reef void mars alien"
    ),
    "pose": "rest move sleep",
    "view": "high level low",
    "shot": "close wide",
    "count": "one many",
    "hue": "free named",
    "tone": "colour grey",
    "medium": (
        "photo oil watercolour gouache pencil ink print digital render pixel anime comic craft"
    ),
    "crowd": "empty people",
    "era": "oldtime today",
    "heat": "hot cold mild",
    "gender": "she he they",
    "age": "child adult",
    "style": "fancy modern",
    "outfit": "shirt coat jumper dress waistcoat apron sportswear plain wedding",
    "category": (
        "animals people food objects vehicles buildings interiors landscapes plants fantasy skies "
        "abstract events"
    ),
}
# Closed: granted by the idea alone.
GRANTED: dict[str, str] = {
    "odd": "odd",
    "pair": "pair",
    "rainwindow": "rainwindow",
    "bare": "bare",
    "substance": (
        "m_glass m_ice m_paper m_wood m_stone m_flowers m_chocolate m_wool m_cloud m_metal m_fire "
        "m_water m_food m_brick"
    ),
}
AXIS_OF = {value: axis for axis, values in OPEN.items() for value in values.split()}
AXIS_OF |= {value: axis for axis, values in GRANTED.items() for value in values.split()}

_OUTDOORS = "city village field forest mountain desert coast sea river lake garden ice jungle road"
IMPLIED: dict[str, str] = (
    dict.fromkeys([*_OUTDOORS.split(), "park", "sky", "mars", "alien"], "outdoors")
    | dict.fromkeys(["room", "kitchen", "cafe", "workshop", "hall"], "indoors")
    | dict.fromkeys(["rain", "fog", "storm", "wind"], "outdoors")
    | {
        "reef": "underwater",
        "cave": "underground",
        "snow": "outdoors winter",
        "rainwindow": "indoors cloud",
    }
)

Needs = dict[str, frozenset[str]]


class UnknownTag(ValueError):
    """A tag that no axis has: a slip in a word file, named with its line."""


def needs_of(tags: Iterable[str], local: dict[str, str]) -> Needs:
    """The tags by their axes, implied ones with them. `local` has the axes of one word file."""
    found: dict[str, set[str]] = {}
    tags = list(tags)
    for tag in tags:
        axis = local.get(tag) or AXIS_OF.get(tag)
        if axis is None:
            raise UnknownTag(f"No axis has the tag {tag!r}. Add it in tags.py or the file's head.")
        found.setdefault(axis, set()).add(tag)
    for axis in ("scene", "weather", "rainwindow"):
        for tag in found.get(axis, ()):
            for implied in IMPLIED.get(tag, "").split():
                found.setdefault(AXIS_OF[implied], set()).add(implied)
    return {axis: frozenset(values) for axis, values in found.items()}


@dataclass(slots=True)
class Circumstances:
    """What is settled so far. An open axis that is absent may still take any of its values."""

    settled: dict[str, frozenset[str]] = field(default_factory=dict)
    granted: dict[str, frozenset[str]] = field(default_factory=dict)

    def allows(self, needs: Needs) -> bool:
        """Whether words with these needs contradict nothing that was said."""
        return all(
            not values.isdisjoint(self.settled.get(axis, values))
            if axis in OPEN
            else not values.isdisjoint(self.granted.get(axis, frozenset()))
            for axis, values in needs.items()
        )

    def settle(self, needs: Needs) -> None:
        """Narrow the open axes by words that `allows` let through."""
        for axis, values in needs.items():
            if axis in OPEN:
                self.settled[axis] = self.settled.get(axis, values) & values

    def grant(self, needs: Needs) -> None:
        """Open the closed axes of words that belong to the idea itself, and narrow the others."""
        self.settle(needs)
        for axis, values in needs.items():
            if axis not in OPEN:
                self.granted[axis] = self.granted.get(axis, frozenset()) | values

    def says(self, axis: str) -> bool:
        """Whether this axis was spoken of."""
        return axis in self.settled or axis in self.granted
