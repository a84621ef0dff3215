"""The pairs that the expansion adapter learns from: the idea first, and nothing against it."""

import re
from itertools import pairwise
from random import Random

import pytest

from studio.expansion.template import STOP, clean_idea, prefix_of
from training.expansion.grammar import MAX_WORDS, MIN_WORDS, continuation, stems
from training.expansion.ideas import Idea, article
from training.expansion.pairs import Pair, held_out_ideas, pairs
from training.expansion.read import prompt_of
from training.expansion.tags import Circumstances, UnknownTag, needs_of
from training.expansion.vocabulary import CATEGORIES, FOLDER, section, words

PAIRS = list(pairs(1500, seed=7))

# Boosters say nothing that a picture can show; the others are slips of the grammar.
BANNED = re.compile(
    r"masterpiece|\b[48]k\b|trending|best quality|highly detailed|award|stunning|hyper|ultra|"
    r"\bI\b|\bmy\b|\byou\b|[{}|/@\[\]]|,,| ,|  |None",
)
HELD_OUT_NOUNS = frozenset(
    re.findall(
        r"\w+",
        "lighthouse octopus hedgehog owl dragon robot astronaut knight skeleton teapot ramen "
        "violin castle greenhouse fox camper kite balloons fisherman barber freckles clockwork "
        "puddle",
    )
)
SUN = re.compile(r"\b(sun|sunlight|midday|daylight)\b")


def test_a_prompt_begins_with_its_idea_and_ends_with_the_stop() -> None:
    for pair in PAIRS:
        assert pair.prompt.startswith(f"{pair.idea}, "), pair
        assert pair.prefix.endswith(f"Prompt: {pair.idea},")
        assert pair.answer.startswith(" ") and pair.answer.endswith(STOP)
        assert pair.answer.count(STOP) == 1


def test_no_leftovers_and_no_boosters() -> None:
    for pair in PAIRS:
        assert not BANNED.search(pair.written), pair.written


def test_the_length_is_that_of_a_prompt() -> None:
    lengths = [len(pair.written.split()) for pair in PAIRS]
    assert min(lengths) >= MIN_WORDS and max(lengths) <= MAX_WORDS


def test_one_seed_is_one_list() -> None:
    assert list(pairs(50, seed=3)) == list(pairs(50, seed=3))
    assert list(pairs(50, seed=3)) != list(pairs(50, seed=4))


def test_texts_stay_fresh() -> None:
    assert len({pair.prompt for pair in PAIRS}) == len(PAIRS)
    assert len({clause for pair in PAIRS for clause in pair.written.split(", ")}) > 1000
    assert {pair.category for pair in PAIRS} == set(CATEGORIES)


def test_no_held_out_idea_is_trained_on() -> None:
    held_out = {clean_idea(idea).lower() for idea in held_out_ideas()}
    assert len(held_out) == 40
    assert held_out.isdisjoint(pair.idea.lower() for pair in PAIRS)


def test_subjects_of_held_out_ideas_are_no_subjects_here() -> None:
    trained = {
        word
        for category in CATEGORIES
        for phrase in section(category, "subjects")
        for word in re.findall(r"\w+", phrase.text)
    }
    assert "cat" in trained
    assert HELD_OUT_NOUNS.isdisjoint(trained)
    typed = " ".join(held_out_ideas()).lower()
    assert all(noun in typed for noun in HELD_OUT_NOUNS)


def clash(pair: Pair) -> bool:
    """Sun in a picture that the idea sets at night."""
    is_night = re.search(r"\b(at night|full moon|moonlight)\b", pair.idea.lower())
    return bool(is_night and SUN.search(pair.written))


def test_night_stays_night() -> None:
    at_night = [pair for pair in PAIRS if "at night" in pair.idea]
    assert len(at_night) > 15
    assert not [pair for pair in PAIRS if clash(pair)]
    assert clash(Pair("a cat at night", "animals", "bright midday sun"))  # the check can fail


def test_a_named_medium_is_the_only_one() -> None:
    for pair in PAIRS:
        if "oil painting of" in pair.idea.lower():
            assert not re.search(r"photograph|lens|film|watercolour|pixel", pair.written), pair


def test_a_named_colour_gets_no_other_beside_it() -> None:
    bare = [phrase.text for phrase in section("objects", "details") if "hue" in phrase.needs]
    for pair in PAIRS:
        if re.match(r"(a |the )?(red|blue|green) ", pair.idea) and pair.category == "objects":
            assert not any(text in pair.written for text in bare), pair


def test_nothing_is_said_twice() -> None:
    for pair in PAIRS:
        for one, other in pairwise(pair.written.split(", ")):
            assert one != other, pair
    assert stems("Leafy leaves") == {"leafy", "leave"}


def test_a_closed_axis_is_asked_for() -> None:
    whiskers = needs_of(["fur"], {"fur": "animals.body"})
    state = Circumstances()
    assert not state.allows(whiskers)
    state.grant(whiskers)
    assert state.allows(whiskers)
    assert not state.allows(needs_of(["feather"], {"feather": "animals.body"}))


def test_an_open_axis_narrows() -> None:
    state = Circumstances()
    state.settle(needs_of(["dusk", "night"], {}))
    assert state.allows(needs_of(["night"], {})) and not state.allows(needs_of(["day"], {}))
    state.settle(needs_of(["night"], {}))
    assert not state.allows(needs_of(["dusk"], {}))
    assert needs_of(["kitchen"], {})["place"] == {"indoors"}


def test_an_unknown_tag_is_named() -> None:
    with pytest.raises(UnknownTag, match="'nihgt'"):
        needs_of(["nihgt"], {})


def test_every_word_file_reads() -> None:
    names = {path.stem for path in FOLDER.glob("*.txt")}
    assert names == set(CATEGORIES) | {"composition", "light", "media", "places"}
    for name in names:
        assert all(phrase.text for phrases in words(name).values() for phrase in phrases)


def test_a_snowy_night_is_written_as_one() -> None:
    for seed in range(60):
        idea = Idea("a wolf in the snow at night", "animals", "wolf")
        idea.state.grant(needs_of(["animals", "snow", "night", "one"], {}))
        written = continuation(Random(seed), idea)
        assert not re.search(r"\b(sun|midday|blossom|summer|rain|indoors|sofa)\b", written), written


@pytest.mark.parametrize(
    ("typed", "cleaned"),
    [("  a cat \n on a chair. ", "a cat on a chair"), ("CAT,", "CAT"), ("a dog?", "a dog?")],
)
def test_an_idea_is_cleaned_without_touching_its_words(typed: str, cleaned: str) -> None:
    assert clean_idea(typed) == cleaned
    assert prefix_of(typed) == f"Idea: {cleaned}\nPrompt: {cleaned},"


def test_no_idea_is_refused() -> None:
    with pytest.raises(ValueError, match="Type a few words"):
        prefix_of(" .\n")


def test_a_prompt_ends_at_the_stop() -> None:
    assert prompt_of("a cat.", " soft light, \nIdea: a dog") == "a cat, soft light"
    assert prompt_of("a cat", "\n") == "a cat"


def test_articles() -> None:
    assert [article(n) for n in ("cat", "owl", "hour", "unicorn", "old man")] == [
        "a cat", "an owl", "an hour", "a unicorn", "an old man",
    ]  # fmt: skip
