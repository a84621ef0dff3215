"""Whether an expanded prompt is one: the subject is there, and what was added can be seen."""

import re

from studio.expansion.budget import MIN_ADDED_WORDS
from studio.expansion.words import STOP_WORDS, content_words, is_foreign, stem, words_of

MIN_NEW_CONTENT = 6  # content words that the idea does not have
MAX_STOP_SHARE = 0.55  # prose has more small words than a list of what is seen
MIN_DISTINCT_SHARE = 0.6  # of the content words; a loop has few
MAX_DIGIT_SHARE = 0.06  # of the letters and digits
MAX_STORY_WORDS = 3

# Words of telling rather than showing.
_STORY = re.compile(
    r"\b(?:said|says|told|asked|thought|knew|felt|wanted|decided|began|started|suddenly|because"
    r"|however|therefore|although|there is|there was|once upon|he|she|they|it's|that's|this is"
    r"|imagine|story)\b",
    re.IGNORECASE,
)


def fault_of(idea: str, text: str) -> str | None:
    """Why `text` is no good prompt for `idea`, as the end of "the text …"; None where it is one."""
    if lost := lost_words(idea, text):
        return f"lost {', '.join(lost)}"
    added = _added(idea, text)
    words = words_of(added)
    if len(words) < MIN_ADDED_WORDS:
        return "added too little"
    new = set(content_words(added)) - set(content_words(idea))
    if len(new) < MIN_NEW_CONTENT:
        return "added nothing to see"
    if is_foreign(added) and not is_foreign(idea):
        return "left the English language"
    if _digit_share(added) > MAX_DIGIT_SHARE:
        return "was full of numbers"
    return _style_fault(added, words)


def lost_words(idea: str, text: str) -> tuple[str, ...]:
    """Words of the idea that carry its meaning and are not in the text, as they were typed."""
    there = set(content_words(text))
    missing = [w for w in words_of(idea) if w not in STOP_WORDS and stem(w) not in there]
    return tuple(dict.fromkeys(missing))


def _style_fault(added: str, words: list[str]) -> str | None:
    if sum(word in STOP_WORDS for word in words) > MAX_STOP_SHARE * len(words):
        return "was prose"
    if len(_STORY.findall(added)) >= MAX_STORY_WORDS:
        return "told a story"
    contents = content_words(added)
    if len(set(contents)) < MIN_DISTINCT_SHARE * len(contents):
        return "said the same again and again"
    return None


def _added(idea: str, text: str) -> str:
    return text[len(idea) :] if text.lower().startswith(idea.lower()) else text


def _digit_share(text: str) -> float:
    signs = [char for char in text if char.isalnum()]
    return sum(char.isdigit() for char in signs) / max(1, len(signs))
