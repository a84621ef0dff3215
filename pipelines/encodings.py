"""Prompts and reference pictures that were encoded lately: people try one prompt many times.

Bounded by bytes on the device, the least lately used goes first. Keyed by content, so a changed
picture is another one.
"""

import hashlib
from collections.abc import Hashable, Sequence
from contextlib import suppress
from typing import Any

from cachetools import LRUCache

from pipelines.flux import Flux, PromptEncoding, Reference
from pipelines.requests import Pixels

MAX_BYTES = 256 * 2**20  # sixteen prompts of FLUX.2-dev in bfloat16, or fifty of FLUX.1


class Encodings:
    """Encodes by the model what is not kept. Prompts and references have half of the room each."""

    def __init__(self, model: Flux, max_bytes: int = MAX_BYTES) -> None:
        self._model = model
        self._prompts = LRUCache[Hashable, PromptEncoding](max_bytes // 2, _bytes_of_prompt)
        self._references = LRUCache[Hashable, Reference](
            max_bytes // 2, lambda reference: reference.latents.nbytes
        )

    def prompts(self, texts: Sequence[tuple[str, str]]) -> list[PromptEncoding]:
        """One for each pair; the new ones in one forward."""
        found = {pair: self._prompts[pair] for pair in texts if pair in self._prompts}
        if new := [pair for pair in dict.fromkeys(texts) if pair not in found]:
            made = dict(zip(new, self._model.prompts.encode(new), strict=True))
            found |= made
            for pair, encoding in made.items():
                _keep(self._prompts, pair, encoding)
        return [found[pair] for pair in texts]

    def reference(self, pixels: Pixels) -> Reference:
        key = (pixels.shape, hashlib.sha256(pixels.tobytes()).digest())
        if key in self._references:
            return self._references[key]
        reference = self._model.reference(pixels)
        _keep(self._references, key, reference)
        return reference


def _keep(cache: LRUCache[Hashable, Any], key: Hashable, value: Any) -> None:
    with suppress(ValueError):  # larger than all room: it is used once
        cache[key] = value


def _bytes_of_prompt(encoding: PromptEncoding) -> int:
    return sum(x.nbytes for x in (encoding.text, encoding.pooled) if x is not None)
