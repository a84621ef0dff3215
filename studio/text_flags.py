"""Which text flags go with which --text-engine: what would have no effect is refused."""

from collections.abc import Sequence
from typing import Final

# Flag to the engine that has a use for it.
TEXT_FLAGS: Final = {
    "text_url": "http",
    "text_key": "http",
    "text_dialect": "http",
    "speculation": "local",
    "draft_model": "local",
    "rejection_sampling_strategy": "local",
    "kv_cache_format": "local",
    "text_batch_priority": "local",
}


def fault_of_flags(engine: str, given: Sequence[str]) -> str | None:
    """What is wrong with the flags of `TEXT_FLAGS` that were `given`: a sentence, or None."""
    if engine == "http" and "text_url" not in given:
        return "--text-engine http needs --text-url: http://host:port/v1."
    idle = [name for name in given if TEXT_FLAGS[name] != engine]
    if not idle:
        return None
    flags = ", ".join(f"--{name.replace('_', '-')}" for name in idle)
    way_out = " or ".join(dict.fromkeys(f"--text-engine {TEXT_FLAGS[name]}" for name in idle))
    return f"--text-engine {engine} has no use for {flags}: leave that out, or take {way_out}."
