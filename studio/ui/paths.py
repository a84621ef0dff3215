"""Where the page of each model is: the default at `/`, the others behind their names.

Addresses inside a page are relative, so they work below a proxy's path; `base` leads from a page to
the studio's root.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """One page among those of all models."""

    path: str  # where it is mounted
    base: str = ""  # in front of a relative address from the root
    models: tuple[tuple[str, str], ...] = ()  # each model and the way to its page from here


def places(names: Sequence[str]) -> dict[str, Place]:
    """The page of each model; names that look alike get different paths."""
    paths: dict[str, str] = {}
    for index, name in enumerate(names):
        slug = re.sub(r"[^A-Za-z0-9.-]+", "-", name.rpartition("/")[2]).strip("-.") or "model"
        path = f"/models/{slug}" if index else "/"
        paths[name] = f"{path}-{index}" if path in paths.values() else path
    return {name: _place(path, paths) for name, path in paths.items()}


def _place(path: str, paths: dict[str, str]) -> Place:
    base = "../" * path.strip("/").count("/") + "../" if path != "/" else ""
    ways = {name: f"{base}{other.strip('/')}" for name, other in paths.items()}
    return Place(
        path,
        base,
        tuple((name, way.rstrip("/") + "/" if way else "./") for name, way in ways.items()),
    )
