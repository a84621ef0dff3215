"""The words of a prompt that its tokenizer has no token for: the model reads them as `<unk>`."""

import unicodedata
from collections.abc import Sequence

Span = tuple[int, int]  # characters of the prompt, from the first to behind the last

MAX_NAMED = 10  # words in a warning
MAX_CHARACTERS = 40  # of each: text without spaces is one word, however long


def unknown_words(
    prompt: str,
    ids: Sequence[int],
    spans: Sequence[Span],
    words: Sequence[int | None],
    unknown_id: int | None,
) -> tuple[str, ...]:
    """Whole words as they are written, each once, in their order; three values a token.

    `words` numbers what the tokenizer itself holds to be words. What it names may be a part of
    one ("pet" of "carpet"), or more ("猫," with its comma): letters are added up to the word's
    ends, signs are not.
    """
    whole: dict[int | None, Span] = {}
    for (start, end), word in zip(spans, words, strict=True):
        whole[word] = (whole.get(word, (start, end))[0], end)
    found: dict[str, str] = {}
    for id_, (start, end), word in zip(ids, spans, words, strict=True):
        if id_ == unknown_id and start < end:
            text = _up_to_signs(prompt, (start, end), whole[word])
            found.setdefault(text.casefold(), text)
    return tuple(found.values())


def warning_of(words: Sequence[str]) -> str:
    """The sentence for people, which stays short."""
    named = [f"{w[:MAX_CHARACTERS]}…" if len(w) > MAX_CHARACTERS else w for w in words]
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    return (
        f"This model does not know: {', '.join(named[:MAX_NAMED])}{more}. It reads only the rest."
    )


def _up_to_signs(prompt: str, unknown: Span, word: Span) -> str:
    (start, end), (first, last) = unknown, word
    while start > first and _is_letter(prompt[start]) and _is_letter(prompt[start - 1]):
        start -= 1
    while end < last and _is_letter(prompt[end - 1]) and _is_letter(prompt[end]):
        end += 1
    return prompt[start:end]


def _is_letter(character: str) -> bool:
    """Letters, digits, and the accents that stand as characters of their own."""
    return unicodedata.category(character)[0] in "LNM"
