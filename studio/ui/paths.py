"""Where the page of each model is: the default at `/`, the others behind their names."""

import re
from collections.abc import Sequence


def page_paths(names: Sequence[str]) -> dict[str, str]:
    """A path for each model, different ones for names that look alike."""
    paths: dict[str, str] = {}
    for index, name in enumerate(names):
        slug = re.sub(r"[^A-Za-z0-9.-]+", "-", name.rpartition("/")[2]).strip("-.") or "model"
        path = f"/models/{slug}" if index else "/"
        paths[name] = f"{path}-{index}" if path in paths.values() else path
    return paths
