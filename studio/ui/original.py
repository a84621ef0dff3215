"""What the page keeps of an expansion: the words before it, for as long as the prompt comes of it.

One hidden control holds both texts, as JSON that `assets/expand.js` writes, too. The prompt may be
edited after; one that is emptied, or replaced by another, has no words before it. Nobody has to
notice which it was, since the texts are compared when they are used.
"""

import json
import re
from collections.abc import Mapping
from typing import Any


def keep_expansion(settings: Mapping[str, Any]) -> str:
    """The control's value for settings from the history or a file; empty without an expansion."""
    original, prompt = settings.get("original_prompt"), settings.get("prompt")
    if not isinstance(original, str) or not isinstance(prompt, str) or not original.strip():
        return ""
    return json.dumps({"original": original, "expanded": prompt})


def original_of(prompt: str, kept: str) -> str | None:
    """The words before the expansion of which `prompt` comes; `kept` may be anything."""
    try:
        texts = json.loads(kept) if kept else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(texts, dict):
        return None
    original, expanded = texts.get("original"), texts.get("expanded")
    if not isinstance(original, str) or not isinstance(expanded, str):
        return None
    return original if comes_of(prompt, expanded) else None


def comes_of(prompt: str, expanded: str) -> bool:
    """Whether `prompt` is the expansion, or still is after an edit.

    It is as long as half of the words are there. `comesOf` in `assets/expand.js` says the same.
    """
    if prompt.strip() == expanded.strip():
        return True
    words = _words(expanded)
    return bool(words) and 2 * len(words & _words(prompt)) >= len(words)


def _words(text: str) -> set[str]:
    """Without the short ones, which any two prompts share."""
    return {word for word in re.findall(r"[^\W_]+", text.lower()) if len(word) > 3}
