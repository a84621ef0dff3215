"""What the page keeps of an expansion: the words before it, for as long as the prompt stays it.

One hidden control holds both texts, as JSON that `assets/expand.js` writes, too. Whoever edits the
prompt away from the expansion has written a prompt of his own, and the words before it are dropped;
nobody has to notice the edit, since the texts are compared when they are used.
"""

import json
from collections.abc import Mapping
from typing import Any


def keep_expansion(settings: Mapping[str, Any]) -> str:
    """The control's value for settings from the history or a file; empty without an expansion."""
    original, prompt = settings.get("original_prompt"), settings.get("prompt")
    if not isinstance(original, str) or not isinstance(prompt, str) or not original.strip():
        return ""
    return json.dumps({"original": original, "expanded": prompt})


def original_of(prompt: str, kept: str) -> str | None:
    """The words before the expansion, where `prompt` is that expansion; `kept` may be anything."""
    try:
        texts = json.loads(kept) if kept else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(texts, dict):
        return None
    original, expanded = texts.get("original"), texts.get("expanded")
    if not isinstance(original, str) or not isinstance(expanded, str):
        return None
    return original if expanded.strip() == prompt.strip() else None
