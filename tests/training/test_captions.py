"""Captions say what the scene holds, in any order of words, and nothing else."""

import random
import re
from itertools import combinations, pairwise

import pytest
from PIL import ImageColor

from training import unknown_words
from training.backgrounds import COLOUR_WORDS, SETTING_NOUNS, SETTING_PHRASES
from training.captions import UNKNOWN, sentence, write
from training.compositions import ABOVE, BESIDE, COLOURS, FULL, TRIO, Scene, Thing, random_scene
from training.compositions import place as place_single
from training.emoji import BY_NAME, COUNTABLE, OBJECTS
from training.grammar import PLACE_TAGS, PLACES, SIZE_WORDS, vocabulary
from training.nouns import NOUNS, names_of, pluralise

DRAWS = 3000


def thing(name: str, colour: str = "", size: str = "", position: str = "") -> Thing:
    return place_single(random.Random(0), name, position, size, colour)


def scene(*things: Thing, behind: str = "blue", arrangement: str = "single") -> Scene:
    return Scene(things, (behind,), arrangement=arrangement)


def some(name: str, count: int) -> Scene:
    spots = {2: BESIDE, 3: TRIO}[count]
    return scene(*(Thing(name, "", "", "", x, y, 0.4) for x, y in spots), arrangement="some")


def sentences(of: Scene, draws: int = DRAWS) -> list[str]:
    rng = random.Random(1)
    return [sentence(of, rng) for _ in range(draws)]


def training_captions(seed: int, count: int) -> list[tuple[Scene, str]]:
    rng = random.Random(seed)
    return [(s, sentence(s, rng)) for s in (random_scene(rng, FULL) for _ in range(count))]


def says(caption: str, *words: str) -> bool:
    return any(re.search(rf"\b{re.escape(word)}\b", caption) for word in words)


def test_one_seed_gives_the_same_captions() -> None:
    def captions(seed: int) -> list[str]:
        rng = random.Random(seed)
        return [write(random_scene(rng, FULL), rng) for _ in range(50)]

    assert captions(3) == captions(3) != captions(4)


@pytest.mark.parametrize(
    ("of", "wanted"),
    [
        (scene(thing("apple")), "a red apple on a blue background"),
        (scene(thing("apple")), "apple, blue background"),
        (scene(thing("apple")), "blue background, an apple"),
        (scene(thing("apple")), "draw an apple on blue"),
        (scene(thing("apple")), "an emoji of an apple on a blue background"),
        (scene(thing("apple", size="large")), "big apple, blue background"),
        (scene(thing("apple", position="left")), "blue background, an apple on the left"),
        (scene(thing("apple", position="top right")), "upper right: an apple on blue"),
        (some("cat", 2), "on a blue background: two cats"),
        (some("apple", 3), "3 apples on a blue background"),
        (Scene((thing("apple"),), (), "night sky"), "an apple at night"),
        (Scene((thing("apple"),), (), "grass"), "a meadow with an apple"),
        (
            Scene((thing("apple"),), ("blue", "pink")),
            "an apple on a gradient from blue to pink",
        ),
        (Scene((thing("apple"),), ("blue", "pink")), "an apple, blue to pink gradient"),
    ],
)
def test_everyday_phrases_are_captions_of_their_scene(of: Scene, wanted: str) -> None:
    assert wanted in sentences(of, 60_000)


def test_no_two_scenes_share_a_caption_that_names_a_background() -> None:
    """Whatever is asked of the text encoders can be answered from the words alone."""
    left, right = thing("cat"), thing("dog")
    different = [
        scene(left, right, arrangement="beside"),
        scene(right, left, arrangement="beside"),
        scene(left, right, arrangement="above"),
        scene(right, left, arrangement="above"),
        scene(left),
        some("cat", 2),
        some("cat", 3),
        Scene((left,), ("blue", "red")),
        Scene((left,), ("red", "blue")),
        Scene((left,), (), "sea"),
    ]
    found = [{c for c in sentences(of) if says(c, "blue", "sea", "ocean")} for of in different]
    for one, other in combinations(found, 2):
        assert not one & other, one & other


REVERSING = r"\b(right of|below|under|beneath|underneath)\b"


def first_named_is_second(caption: str) -> bool:
    """An English reader's view: whether "a ... b" means that b is the left or upper one."""
    first, between, _ = re.split(r"\b(?:cat|dog)\b", caption)
    is_last = r"^ (on the right|at the bottom|right)( and|,)"
    announced = re.search(r"(on the right|at the bottom)\W*(an?|the|one)? ?$", first)
    return bool(re.search(REVERSING, between) or re.search(is_last, between) or announced)


@pytest.mark.parametrize("arrangement", ["beside", "above"])
def test_the_first_thing_is_the_left_or_upper_one_in_any_order_of_words(arrangement: str) -> None:
    cat, dog = (
        Thing(n, "", "", "", x, y, 0.4) for n, (x, y) in zip(("cat", "dog"), ABOVE, strict=True)
    )
    reversed_ones = 0
    for caption in sentences(scene(cat, dog, arrangement=arrangement)):
        names = re.findall(r"\b(?:cat|dog)\b", caption)
        if len(names) == 2:
            assert (names == ["dog", "cat"]) == first_named_is_second(caption), caption
            reversed_ones += names == ["dog", "cat"]
    assert reversed_ones > DRAWS / 20


def test_paint_and_size_are_always_said_and_the_natural_colour_half_of_the_time() -> None:
    painted = scene(thing("apple", colour="green", size="small"))
    assert all(says(c, "green") and says(c, *SIZE_WORDS["small"]) for c in sentences(painted))
    assert not any(says(c, "red", "scarlet", "crimson") for c in sentences(painted))
    plain = [says(c, "red", *COLOUR_WORDS["red"]) for c in sentences(scene(thing("apple")))]
    assert 0.4 < sum(plain) / DRAWS < 0.6


def test_colours_settings_places_and_sizes_are_those_of_the_scene() -> None:
    for of, caption in training_captions(5, DRAWS):
        for item in of.things:
            if item.position:
                assert says(caption, *PLACES[item.position], *PLACE_TAGS[item.position]), caption
            for size, words in SIZE_WORDS.items():
                if size not in {t.size for t in of.things}:
                    assert not says(caption, *words), caption
        own = {c for t in of.things for c in (t.colour, BY_NAME[t.name].colour)}
        own |= {"blue", "green", "white"} if of.setting else set()  # "on green grass"
        absent = COLOURS.keys() - own - set(of.background)
        assert not says(caption, *absent), caption
        for setting in SETTING_NOUNS.keys() - {of.setting}:
            assert not says(caption, *SETTING_PHRASES[setting]), caption


def test_a_few_captions_say_nothing_of_the_background() -> None:
    silent = [not says(c, "blue") for c in sentences(scene(thing("apple")), 10_000)]
    assert 0.01 < sum(silent) / len(silent) < 0.06


def test_articles_fit() -> None:
    rng = random.Random(2)
    for _ in range(2 * DRAWS):
        words = re.findall(r"[\w-]+", write(random_scene(rng, FULL), rng).lower())
        for article, word in pairwise(words):
            if article == "a" and not word.startswith("uni"):
                assert word[0] not in "aeiou", words
            if article == "an":
                assert word[0] in "aeiou" and not word.startswith("uni"), words


@pytest.mark.parametrize("name", ["cherries", "fries", "broccoli", "fire", "corn"])
def test_plurals_and_masses_have_no_article(name: str) -> None:
    assert not any(says(c, f"a {name}", f"one {name}") for c in sentences(scene(thing(name))))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("apple", "apples"),
        ("strawberry", "strawberries"),
        ("monkey", "monkeys"),
        ("peach", "peaches"),
        ("fox", "foxes"),
        ("bus", "buses"),
        ("mouse", "mice"),
        ("sheep", "sheep"),
        ("maple leaf", "maple leaves"),
        ("tomato", "tomatoes"),
        ("cactus", "cacti"),
        ("slice of pizza", "slices of pizza"),
        ("gift box", "gift boxes"),
        ("jack-o-lantern", "jack-o-lanterns"),
    ],
)
def test_plurals_are_english(name: str, wanted: str) -> None:
    assert pluralise(name) == wanted


def test_only_what_can_be_counted_is_counted() -> None:
    assert {n for n, nouns in NOUNS.items() if nouns[0].plural} == {e.name for e in COUNTABLE}
    two, three = sentences(some("sheep", 2)), sentences(some("sheep", 3))
    assert all(says(c, "two", "2", "2x", "a pair of", "a couple of") for c in two)
    # "lambs" are three; "sheep" alone is one, so there a number or "some" is always said.
    some_words = ("three", "3", "3x", "trio", "some", "few", "several")
    assert all(says(c, "lambs", *some_words) for c in three)
    assert any(c.startswith("apples") for c in sentences(some("apple", 3)))


def test_no_phrase_has_two_meanings() -> None:
    names = [{n.singular for n in nouns} | {n.plural for n in nouns} for nouns in NOUNS.values()]
    for groups in (
        [set(words) - {""} for words in names],
        [{name, *words} for name, words in COLOUR_WORDS.items()],
        [set(PLACES[p] + PLACE_TAGS[p]) for p in PLACES],
        [set(SETTING_PHRASES[s] + SETTING_NOUNS[s]) for s in SETTING_NOUNS],
        [set(words) for words in SIZE_WORDS.values()],
    ):
        assert sum(len(group) for group in groups) == len(set().union(*groups))
    for emoji in OBJECTS:
        assert set(names_of(emoji)) >= {emoji.name, *emoji.synonyms}


@pytest.mark.parametrize("word", ["gray", "crimson", "gold", "turquoise", "cyan"])
def test_a_colour_s_other_word_is_nearest_to_the_drawn_colour(word: str) -> None:
    wanted = ImageColor.getrgb(word)
    nearest = min(
        COLOURS, key=lambda c: sum((a - b) ** 2 for a, b in zip(COLOURS[c], wanted, strict=True))
    )
    assert word in COLOUR_WORDS[nearest]


def test_vocabulary_holds_every_word_and_no_more() -> None:
    said = {w for _, c in training_captions(2, 20 * DRAWS) for w in re.findall("[a-z]+", c)}
    known = set(vocabulary())
    assert said <= known
    assert len(known - said) < 0.02 * len(known), known - said


def test_some_captions_hold_unknown_words() -> None:
    rng, known = random.Random(4), set(vocabulary())
    captions = [write(random_scene(rng, FULL), rng).lower() for _ in range(DRAWS)]
    unknown = [bool(set(re.findall("[a-z]+", c)) - known) for c in captions]
    assert abs(sum(unknown) / DRAWS - UNKNOWN) < 0.03


def test_an_unknown_word_is_none_of_the_vocabulary() -> None:
    rng, known = random.Random(0), set(vocabulary())
    words = [unknown_words.unknown_word(rng) for _ in range(DRAWS)]
    assert not known & set(words) and len(set(words)) > DRAWS / 3
    assert not known & {*unknown_words.ENGLISH, *unknown_words.COMPOUNDS}


def test_a_compound_begins_with_a_word_that_it_does_not_mean() -> None:
    heads = tuple(word for word in vocabulary() if len(word) > 2)
    assert all(word.startswith(heads) for word in unknown_words.COMPOUNDS)
    rng = random.Random(0)
    assert {"carpet", "starfish", "catalog", "sunny", "appletree"} <= {
        unknown_words.unknown_word(rng) for _ in range(20_000)
    }


def test_an_unknown_word_does_not_split_a_name() -> None:
    rng = random.Random(6)
    for _ in range(DRAWS):
        caption = write(scene(thing("hot dog")), rng).lower()
        assert says(caption, "hot dog", "hotdog"), caption
