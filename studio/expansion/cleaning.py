"""What a text model wrote, as a prompt: clauses that a person would have kept, and nothing else.

A clause is judged by itself and by those before it. So the clean form of a part of a text is a
beginning of the clean form of the whole, and what streams onto the page never jumps back.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from studio.expansion.budget import Budget
from studio.expansion.conflicts import contradicts
from studio.expansion.template import clean_idea
from studio.expansion.words import LINKING_WORDS, content_words, is_foreign, words_of

MAX_CLAUSE_WORDS = 24
SAME_SHARE = 0.75  # of two clauses' content words, from which they say the same
SAME_HEAD = 2  # clauses that may end in the same word: "warm light, soft light"
IN_A_LOOP = 3  # clauses in a row that say nothing new

# A sign ends a clause where something follows that is not part of a number.
_END = re.compile(r",(?=\D)|[.!?]+(?=[\s\"'”’]|$)|[;|•\n]+|\s[–—-]+(?=\s)")
# The layout of the request, come back in the answer, and what a chat model explains behind it.
_LEAK = re.compile(
    r"\n\s*\n|#{2,}|<\|?/?\w|```"
    r"|\b(?:idea|prompts?|negative prompt|notes?|examples?|user|assistant|output|input|answer)"
    r"\s*(?:\d\s*)?:",
    re.IGNORECASE,
)
_PREFACE = re.compile(
    r"\s*(?:(?:sure|certainly|of course|okay|ok|absolutely|great)\b[^.:!,\n]{0,40}[.:!,]\s*"
    r"|here(?:'s|’s| is| are)\b[^:\n]{0,80}:\s*"
    r"|(?:the |your |an? )?(?:(?:expanded|detailed|improved|new|image|final) )*prompt\s*:\s*)",
    re.IGNORECASE,
)
# What a reasoning model says to itself; open as long as its end has not come.
_THOUGHT = re.compile(r"\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.IGNORECASE | re.DOTALL)
_MAY_BE_PREFACE = re.compile(
    r"\s*(?:sure|certainly|of course|okay|ok|absolutely|great|here)\b[^:\n]{0,90}$", re.IGNORECASE
)
_PERSON = re.compile(
    r"\b(?:i|i'm|i've|i'd|i'll|me|my|mine|myself|we|we're|our|ours|us|you|you're|your|yours"
    r"|yourself|please|sorry|he|she|they|it's|someone|who)\b",
    re.IGNORECASE,
)
# A list of what is seen has no verb like these; a large model's sentences may.
_TELLING = re.compile(r"\b(?:is|are|was|were|has|have|had)\b", re.IGNORECASE)
# A picture model draws what is named, also behind a "no".
_NEGATION = re.compile(
    r"\b(?:no|not|never|without|none|nothing|nor|avoid|exclude|excluding|\w+n't|cannot)\b",
    re.IGNORECASE,
)
_MARKUP = re.compile(r"https?:|www\.|\w\.(?:com|org|net)\b|[#@<>{}\[\]\\=~^|]|\ufffd")
_NUMBER = re.compile(r"\d")
_KNOWN_NUMBER = re.compile(
    r"\bf/\d+(?:\.\d+)?\b|\b\d{1,4}(?:mm|-bit|k|d|s|px|th|st|nd|rd)\b|\b1[5-9]\d0s?\b",
    re.IGNORECASE,
)
_DROPPED_SIGNS = re.compile(r"[()*_`\"“”«»„]|:\s*\d+(?:\.\d+)?")
_OPENING_WORDS = frozenset({"and", "or", "but", "also", "then", "so", "plus"})


@dataclass(slots=True)
class Kept:
    """The clauses so far, and what the next must not repeat."""

    text: str
    contents: list[frozenset[str]] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    own: int = 0  # the first of `contents` are the idea's

    def says_again(self, words: tuple[str, ...]) -> bool:
        """Whether a clause of these content words adds nothing."""
        new = frozenset(words)
        is_same = any(
            new <= old or len(new & old) >= SAME_SHARE * len(new | old) for old in self.contents
        )
        # "golden armour scene" after "golden armour"; of the idea's own words more may be said.
        is_longer = any(old < new and len(new) == len(old) + 1 for old in self.contents[self.own :])
        return is_same or is_longer or self.heads.count(words[-1]) >= SAME_HEAD

    def note(self, words: tuple[str, ...]) -> None:
        self.contents.append(frozenset(words))
        self.heads.append(words[-1])


def clean(idea: str, raw: str, budget: Budget, *, is_answer: bool, is_complete: bool) -> str:
    """`raw` as a prompt, or its beginning where it is not complete yet.

    `raw` goes on behind `idea` and a comma, or is a whole prompt in its place (`is_answer`). A text
    that was cut (`is_complete` false) loses its last clause, since nobody knows how it ends.
    """
    idea = clean_idea(idea)
    kept = Kept("" if is_answer else idea)
    if not is_answer:
        for words in (content_words(clause) for clause, _ in _clauses(f"{idea}\n")):
            if words:
                kept.note(words)
    kept.own = len(kept.contents)
    seen_twice = 0
    ending = "," if kept.text else ""
    body = _unwrapped(idea, raw, is_answer=is_answer, is_complete=is_complete)
    for clause, sign in _clauses(body):
        clause = _usable(clause, idea, is_list=not is_answer)
        words = content_words(clause)
        if not words or kept.says_again(words):
            seen_twice += bool(words)
            if seen_twice == IN_A_LOOP:
                break
            continue
        # An answer may come to the idea's own words late; they hold from its beginning.
        if contradicts(clause, f"{idea}\n{kept.text}"):
            continue
        longer = f"{kept.text}{ending} {clause}".strip()
        if not budget.fits(idea, longer):
            break
        seen_twice = 0
        kept.text = longer
        kept.note(words)
        ending = "." if is_answer and sign[:1] in ".!?" else ","
    return f"{kept.text}." if ". " in kept.text and is_complete and is_answer else kept.text


def _unwrapped(idea: str, raw: str, *, is_answer: bool, is_complete: bool) -> str:
    """Without the words around a prompt; a complete text ends its last clause."""
    text = raw.replace("’", "'").replace("**", "")
    if is_answer:
        text = _without_preface(idea.replace("’", "'"), text, is_complete=is_complete)
    leak = _LEAK.search(text)
    if leak:
        return f"{text[: leak.start()]}\n"
    return f"{text}\n" if is_complete else text


def _without_preface(idea: str, text: str, *, is_complete: bool) -> str:
    """The prompt in an answer; empty as long as it is open whether it has begun."""
    text = _THOUGHT.sub("", text, count=1).lstrip()
    while not _begins_with(text, idea):
        if not is_complete and _begins_with(idea, text):
            return ""
        preface = _PREFACE.match(text)
        if preface is None or _is_own(preface[0], idea):
            is_open = not is_complete and _MAY_BE_PREFACE.match(text)
            return "" if is_open else text
        text = text[preface.end() :].lstrip()
    return text


def _begins_with(text: str, beginning: str) -> bool:
    return text.lower().startswith(beginning.lower())


def _is_own(preface: str, idea: str) -> bool:
    """Whether it is no preface, but the idea: "Great Wall of China," for "the great wall"."""
    shared = set(content_words(preface)) & set(content_words(idea))
    return words_of(preface)[0] in words_of(idea) and len(shared) > 1


def _clauses(text: str) -> Iterator[tuple[str, str]]:
    """Each clause that has an end, with the sign that ends it."""
    start = 0
    for end in _END.finditer(text):
        if end.end() == len(text) and end[0][0] in ".!?":
            return  # more may follow: "f/1." and "8"
        yield text[start : end.start()], end[0].strip()
        start = end.end()


def _usable(clause: str, idea: str, *, is_list: bool) -> str:
    """The clause as it may stand in a prompt; empty where it may not."""
    if _MARKUP.search(clause) or _speaks(clause, idea) or _negates(clause, idea):
        return ""
    if is_list and _TELLING.search(clause):
        return ""
    signs = _DROPPED_SIGNS if '"' not in idea else re.compile(r"[()*_`]")
    text = " ".join(signs.sub(" ", clause).split()).strip(" '-–—:/&+")
    if _NUMBER.search(_KNOWN_NUMBER.sub("", text)) and not _NUMBER.search(idea):
        return ""
    if is_foreign(text) and not is_foreign(idea):
        return ""
    words = _without_ends(_before_loop(text.split(" ")))
    return " ".join(words) if len(words) <= MAX_CLAUSE_WORDS else ""


def _speaks(clause: str, idea: str) -> bool:
    """Whether it tells of a person that the idea does not: "my dog" may be the idea's."""
    own = words_of(idea)
    return any(word[0].lower() not in own for word in _PERSON.finditer(clause))


def _negates(clause: str, idea: str) -> bool:
    """Whether something is denied that the idea does not deny: a sign may say "no smoking"."""
    own, contents = words_of(idea), content_words(idea)
    for word in _NEGATION.finditer(clause):
        denied = content_words(clause[word.end() :])[:1]
        if word[0].lower() not in own or not set(denied) <= set(contents):
            return True
    return False


def _before_loop(words: list[str]) -> list[str]:
    """Up to where a word or a pair of words comes again: "a cat and a cat and a cat"."""
    pairs: set[tuple[str, str]] = set()
    for i, word in enumerate(words):
        pair = (words[i - 1].lower(), word.lower()) if i else ("", word.lower())
        if pair in pairs or pair[0] == pair[1]:
            return words[: i - 1 if pair in pairs else i]
        pairs.add(pair)
    return words


def _without_ends(words: list[str]) -> list[str]:
    """Without the words that wait for more ("and the") or go on from a clause that may be gone."""
    while words and words[-1].lower().strip("'") in LINKING_WORDS:
        words = words[:-1]
    while words and words[0].lower() in _OPENING_WORDS:
        words = words[1:]
    return words if words_of(" ".join(words)) else []
