"""The evaluation's prompts: held out, balanced, said in full, and strangers' that can be met."""

import random
import re
from collections import Counter

import pytest

from training import prompts
from training.compositions import COLOURS, SETTINGS, Scene, combinations, is_held_out, place
from training.emoji import BY_NAME
from training.prompts import (
    KNOWN,
    UNKNOWN,
    Wish,
    caption,
    held_out_wishes,
    strangers,
    with_unknown_words,
)

WISHES = held_out_wishes(7)


def test_every_wish_asks_for_what_training_never_showed() -> None:
    assert all(any(is_held_out(*parts) for parts in combinations(w.scene)) for w in WISHES)


@pytest.mark.parametrize(("axis", "kind"), [("pair", "pair"), ("paint", "paint")])
def test_pairs_and_paints_are_held_out_themselves(axis: str, kind: str) -> None:
    for wish in WISHES:
        if wish.axis == axis:
            asked = [parts for parts in combinations(wish.scene) if parts[0] == kind]
            assert any(is_held_out(*parts) for parts in asked), wish.text


def test_each_score_has_forty_prompts_and_its_values_take_turns() -> None:
    assert len(WISHES) == 300
    counts = Counter(wish.axis for wish in WISHES)
    assert all(counts[axis] >= 40 for axis in prompts.AXES if axis != "plain")
    assert len({wish.names[0] for wish in WISHES}) > 100
    for axis, values in prompts.VALUES.items():
        turns = Counter(prompts._value(axis, w.scene) for w in WISHES if w.axis == axis)
        assert set(turns) == set(values) and max(turns.values()) - min(turns.values()) <= 1


def test_one_seed_gives_the_same_wishes() -> None:
    assert held_out_wishes(7) == WISHES != held_out_wishes(8)


def test_wishes_are_in_known_words() -> None:
    for wish in WISHES:
        assert set(re.findall("[a-z]+", wish.text.lower())) <= KNOWN | {"x"}, wish.text


def test_a_caption_that_says_no_background_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene((place(random.Random(0), "cat", "", ""),), ("teal",))
    told = {"seen": "a cat on {b}", "hidden": "a cat", "unknown": "a zorblat cat on {b}"}
    for kind, text in told.items():
        monkeypatch.setattr(prompts, "write", lambda s, rng, t=text: t.format(b=s.background[0]))
        assert bool(caption(scene, random.Random(0))) == (kind == "seen")


@pytest.mark.parametrize(
    ("text", "is_taken"), [("some cats", False), ("three cats", True), ("3x cats", True)]
)
def test_several_are_asked_for_by_number(
    text: str, is_taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    thing = place(random.Random(0), "cat", "", "")
    scene = Scene((thing,) * 3, ("teal",), "", "some")
    monkeypatch.setattr(prompts, "write", lambda s, rng: f"{text} on {s.background[0]}")
    assert bool(caption(scene, random.Random(0))) == is_taken


def test_unknown_words_are_unknown_and_the_others_keep_their_order() -> None:
    assert not KNOWN & set(UNKNOWN)
    text = "a red apple on blue"
    longer = with_unknown_words(text, random.Random(0)).split()
    assert [word for word in longer if word not in UNKNOWN] == text.split()
    assert len(longer) == len(text.split()) + 2


def test_strangers_ask_for_what_the_model_may_know() -> None:
    asked = strangers()
    assert len(asked) >= 40 and len({stranger.text for stranger in asked}) == len(asked)
    for stranger in asked:
        assert stranger.name in BY_NAME, stranger
        assert set(stranger.background) <= {*COLOURS, *SETTINGS}, stranger
    held = {wish.text.lower().strip(".!") for wish in WISHES}
    assert not held & {stranger.text.lower().strip(".!") for stranger in asked}


def test_a_wish_knows_its_background() -> None:
    thing = place(random.Random(0), "cat", "", "")
    assert Wish("", Scene((thing,), ("red", "blue")), "gradient").background == ("red", "blue")
    assert Wish("", Scene((thing,), (), "sea"), "setting").background == ("sea",)
