"""The words of a text that carry its meaning, in a form that survives plural and tense."""

import re
import unicodedata

_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_VOWEL = re.compile("[aeiouy]")

# Words that hold a sentence together; what a picture shows is in the others.
_STOP_WORDS = """
a about above across after again all along also am among an and another any are around as at
away be because been before behind being below beneath beside between both but by can could did
do does doing down during each else ever every few for from get had has have having he her here
hers him his how i if in inside into is it its itself just let like many may me might more most
much must my near nor of off on once one only onto or other our out over own per quite rather
really same shall she should since so some such than that the their them then there these they
this those through till to together too toward towards under until up upon us very was we were
what when where which while who whom whose why will with within would yet you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

# Of these the words that cannot end a phrase. Others can: "paws tucked in", "the lights are on".
_LINKING_WORDS = """
a about after against also although among an and any are as at be because before
being beneath beside between both but by can could each every for from had has have having
his how if into is its just let like may might must my nor of onto or our quite rather shall should
since so some such than that the their then these this those though till to toward towards until
upon very was we were what when where which while who whose why will with would your
"""
LINKING_WORDS = frozenset(_LINKING_WORDS.split())


def words_of(text: str) -> list[str]:
    """All words in lower case, "don't" and "wide-angle" as one each."""
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]


def stem(word: str) -> str:
    """The word without the endings of plural, tense and possession.

    Only a key to compare by ("running" and "runs" are "run", "ride" and "riding" are "rid"), much
    coarser than Porter's (1980): no word list, no rules for derived words.
    """
    word = word.removesuffix("'s").removesuffix("'")
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 4 and re.search(r"(s|x|z|ch|sh)es$", word):
        return word[:-2]
    if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) > 2 and _VOWEL.search(rest):
            return _without_silent_e(re.sub(r"([^aeioulsz])\1$", r"\1", rest))
    return _without_silent_e(word)


def content_words(text: str) -> tuple[str, ...]:
    """Stems of all words but the stop words, in their order."""
    return tuple(stem(word) for word in words_of(text) if word not in STOP_WORDS)


def is_foreign(text: str) -> bool:
    """Whether less than two of three letters are those of English."""
    letters = [char for char in text if unicodedata.category(char).startswith("L")]
    return 3 * sum(char.isascii() for char in letters) < 2 * len(letters)


def _without_silent_e(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("e") else word
