"""A raw continuation to a prompt: nothing leaked, repeated or cut in mid-phrase, and no jumps."""

import random

import pytest

from studio.expansion.budget import Budget, estimated_tokens
from studio.expansion.checks import fault_of
from studio.expansion.cleaning import clean
from studio.expansion.words import content_words, words_of
from training.expansion.pairs import pairs

IDEA = "a cat on a chair"
BUDGET = Budget(512)

CONTINUATIONS = [
    (" soft light, warm colours\n", "soft light, warm colours"),
    ("  soft   light ,  warm\tcolours, ", "soft light, warm colours"),
    (" soft light. Warm colours. ", "soft light, Warm colours"),
    (" soft light, and the", "soft light"),
    (" soft light, a view of the", "soft light, a view"),
    (" soft light, paws tucked in", "soft light, paws tucked in"),
    (" soft light, 35mm photo, f/1.8, 8k", "soft light, 35mm photo, f/1.8, 8k"),
    (" soft light, 12 34 56, chapter 7", "soft light"),
    # What leaks
    (" soft light\n\nIdea: a dog\nPrompt: a dog, grass", "soft light"),
    (" soft light, Prompt: a dog, grass", "soft light"),
    (' soft light, "warm" colours', "soft light, warm colours"),
    (" soft light, #art, see https://x.org/a, www.x.org, @me, <b>red</b>", "soft light"),
    (" soft light (best:1.3), **bold** sky", "soft light best, bold sky"),
    # Prose and negations
    (" soft light, I love her, she loves me, you know it", "soft light"),
    (" soft light, no text, without people, it isn't blurry, never dark", "soft light"),
    (" soft light, there is a dog, the sky was red, warm sky", "soft light, warm sky"),
    # Repetition
    (" soft light, the soft light, lights so soft, warm sky", "soft light, warm sky"),
    (" a cat on a chair, cat, soft light", "soft light"),
    (" golden armour, golden armour scene, gold", "golden armour, gold"),
    (" happy smile, sweet smile, sunny smile, odd smile, grass", "happy smile, sweet smile, grass"),
    (" soft light and a cat and a cat and a cat", "soft light and a cat"),
    (" old old old wood", "old"),
    (" light, light, light, light, warm sky", "light"),
    ("", ""),
    (" , ,, ;", ""),
    (" 柔らかい光, 猫, warm sky", "warm sky"),
]


@pytest.mark.parametrize(("raw", "added"), CONTINUATIONS)
def test_a_continuation_becomes_clauses(raw: str, added: str) -> None:
    text = clean(IDEA, raw, BUDGET, is_answer=False, is_complete=True)
    assert text == (f"{IDEA}, {added}" if added else IDEA)


@pytest.mark.parametrize("idea", ["a cat on a chair", "a cat  on a chair. ", "a cat on a chair,"])
def test_the_idea_stands_in_front_without_its_loose_ends(idea: str) -> None:
    text = clean(idea, " soft light", BUDGET, is_answer=False, is_complete=True)
    assert text == "a cat on a chair, soft light"


def test_what_was_cut_loses_its_last_clause() -> None:
    raw = " soft light, a window with a vi"
    assert clean(IDEA, raw, BUDGET, is_answer=False, is_complete=False) == f"{IDEA}, soft light"
    whole = clean(IDEA, raw, BUDGET, is_answer=False, is_complete=True)
    assert whole.endswith("a window with a vi")


ANSWERS = [
    ("A cat on a chair, soft light, warm colours", "A cat on a chair, soft light, warm colours"),
    ('"A cat on a chair, soft light."', "A cat on a chair, soft light"),
    ("Here is your prompt: a cat on a chair, soft light", "a cat on a chair, soft light"),
    (
        "Sure! Here's an expanded prompt:\n\na cat on a chair, soft light",
        "a cat on a chair, soft light",
    ),
    ("**Prompt:** a cat on a chair, soft light", "a cat on a chair, soft light"),
    ("a cat on a chair, soft light\n\nThis prompt shows a cat", "a cat on a chair, soft light"),
    (
        "A cat sits on a chair. Soft light falls in. You can see dust.",
        "A cat sits on a chair. Soft light falls in.",
    ),
]


@pytest.mark.parametrize(("raw", "text"), ANSWERS)
def test_an_answer_loses_what_is_around_the_prompt(raw: str, text: str) -> None:
    assert clean(IDEA, raw, BUDGET, is_answer=True, is_complete=True) == text


OWN_WORDS = [
    ("great white shark", "Great white shark, open jaws", "Great white shark, open jaws"),
    ("the great wall of china", "Great Wall of China, at dawn", "Great Wall of China, at dawn"),
    ("great white shark", "Great! Great white shark, foam", "Great white shark, foam"),
    ("great, big dog", "Great, big dog, tall grass", "Great, big dog, tall grass"),
    ("my dog in the snow", "My dog in the snow, I love it, firs", "My dog in the snow, firs"),
    (
        "a sign that says no smoking",
        "A sign that says no smoking, no text, rusty wall",
        "A sign that says no smoking, rusty wall",
    ),
    (
        "don't walk sign",
        "A red don't walk sign, it isn't blurry, rain",
        "A red don't walk sign, rain",
    ),
    ("a cat", "<think>\nA cat? Warm, soft.\n</think>\n\nA cat, soft light", "A cat, soft light"),
    ("a cat", "<think>A cat, soft light, grass", ""),
]


@pytest.mark.parametrize(("idea", "raw", "text"), OWN_WORDS)
def test_the_ideas_own_words_are_no_preface_no_person_and_no_negation(
    idea: str, raw: str, text: str
) -> None:
    assert clean(idea, raw, BUDGET, is_answer=True, is_complete=True) == text
    shown = ""
    for end in range(len(raw)):
        longer = clean(idea, raw[:end], BUDGET, is_answer=True, is_complete=False)
        assert longer.startswith(shown), (shown, longer)
        shown = longer


def test_what_an_answer_adds_does_not_drop_the_ideas_own_words_behind_it() -> None:
    raw = "Sunny morning, a cat at night, soft fur"
    assert clean("a cat at night", raw, BUDGET, is_answer=True, is_complete=True) == (
        "a cat at night, soft fur"
    )


PIECES = [
    *(text for text, _ in CONTINUATIONS),
    " Here is", " f/1.8", " 1,000 stars", " wow... so", " it's", " - a dash - here", " Note: x",
]  # fmt: skip


@pytest.mark.parametrize("is_answer", [False, True])
def test_what_is_shown_never_jumps_back(is_answer: bool) -> None:
    """For any text and any place to stop reading, the clean beginning begins the clean whole."""
    rng = random.Random(1)
    for _ in range(150):
        raw = ",".join(rng.sample(PIECES, 4))
        shown = ""
        for end in range(len(raw) + 1):
            text = clean(IDEA, raw[:end], BUDGET, is_answer=is_answer, is_complete=False)
            assert text.startswith(shown), (raw[:end], shown, text)
            shown = text
        final = clean(IDEA, raw, BUDGET, is_answer=is_answer, is_complete=True)
        assert final.startswith(shown), (raw, shown, final)


def test_a_prompt_stays_within_words_and_tokens() -> None:
    raw = ", ".join(f"{letter}olm {letter}arn" for letter in "bcdfghjklmnpqrtvwz")
    text = clean(IDEA, raw, Budget(512, 20), is_answer=False, is_complete=True)
    assert 15 <= len(words_of(text)) - len(words_of(IDEA)) <= 20
    short = clean(IDEA, raw, Budget(30), is_answer=False, is_complete=True)
    assert IDEA in short and short != IDEA and estimated_tokens(short) <= 30
    by_letters = Budget(40, count=len)
    assert len(clean(IDEA, raw, by_letters, is_answer=False, is_complete=True)) <= 40


@pytest.mark.parametrize(
    "words",
    [
        "cat cats cat's",
        "run runs running",
        "city cities",
        "box boxes",
        "ride rides riding",
        "glass",
    ],
)
def test_words_are_the_same_in_plural_and_tense(words: str) -> None:
    assert len(set(content_words(words))) == 1


def test_small_words_carry_no_content() -> None:
    assert content_words("the cat and a dog in it") == ("cat", "dog")


def test_what_the_adapter_was_taught_passes_nearly_as_it_is() -> None:
    """The training's own pairs are good prompts: none may fail, few may lose a clause."""
    changed = 0
    for pair in pairs(300, seed=3):
        text = clean(pair.idea, f" {pair.written}\n", BUDGET, is_answer=False, is_complete=True)
        assert fault_of(pair.idea, text) is None, text
        changed += text != pair.prompt
    assert changed < 0.1 * 300
