"""How much room a picture model leaves for words."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from pipelines.specs import ModelSpec
from studio.expansion.words import words_of

CHARACTERS_A_TOKEN = 4  # of one word; T5's and Mistral's English words take fewer pieces than this
END_TOKENS = 2  # what every tokenizer adds at the ends

MAX_ADDED_WORDS = 60
MAX_ADDED_BY_EXAMPLES = 36  # a small model that completes examples strays from its subject later
MIN_ADDED_WORDS = 10  # fewer change no picture
LONG_IDEA_WORDS = 45  # above, an idea is a prompt already

CountTokens = Callable[[str], int]


def estimated_tokens(text: str) -> int:
    """More tokens than any of the models' tokenizers makes of English, without asking one.

    A letter outside ASCII may be as many tokens as it has bytes.
    """
    words = sum(math.ceil(len(word.encode()) / CHARACTERS_A_TOKEN) for word in words_of(text))
    signs = sum(not char.isalnum() and not char.isspace() for char in text)
    return words + signs + END_TOKENS


@dataclass(frozen=True, slots=True)
class Budget:
    """What an expanded prompt may have.

    `max_tokens` is the model's own limit (`ModelSpec.max_sequence_length`). CLIP's 77 tokens are no
    limit here, although FLUX.1 has a CLIP: of that only one pooled vector is used, T5 reads the
    whole prompt, and the subject stands in front, where CLIP sees it.
    """

    max_tokens: int
    max_added_words: int = MAX_ADDED_WORDS
    count: CountTokens = estimated_tokens

    def fits(self, idea: str, text: str) -> bool:
        """Whether the model reads all of `text`, and it is no longer than anybody wants."""
        added = len(words_of(text)) - len(words_of(idea))
        return added <= self.max_added_words and self.count(text) <= self.max_tokens


def budget_of(spec: ModelSpec, *, max_added_words: int = MAX_ADDED_WORDS) -> Budget:
    """The room of one picture model."""
    return Budget(spec.max_sequence_length, max_added_words)
