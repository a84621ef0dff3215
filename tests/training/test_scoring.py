"""A critic gives a mark to what is drawn as asked, and none to each thing that is not."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.training.blocks import BlockJudge, blocks, picture_of, square
from training.compositions import COLOURS, Scene, Thing
from training.drawing import draw
from training.finding import Box
from training.judge import NAMES
from training.prompts import Stranger, Wish
from training.reading import Seen
from training.scoring import Critic, Verdict, pair_marks, shares, stands


class CatJudge(BlockJudge):
    """Goes by the shape, as the trained one does: every block is a cat to it."""

    def forward(self, x: Tensor) -> Tensor:
        logits = torch.zeros(len(x), len(NAMES))
        logits[:, NAMES.index("cat")] = 9
        return logits


CRITIC = Critic(BlockJudge(), blocks())


def wish_for(
    *things: Thing, axis: str, background: tuple[str, ...] = ("white",), text: str = ""
) -> Wish:
    arrangement = {"pair": "beside", "count": "some"}.get(axis, "single")
    return Wish(text, Scene(things, background, "", arrangement, is_snapped=False), axis)


# A wish, and what a picture that misses it shows instead: the name of the mark that is lost.
MISSES = [
    (
        wish_for(square("cat", 0.5, 0.5, 0.6), axis="plain"),
        [square("dog", 0.5, 0.5, 0.6)],
        "object",
    ),
    (
        wish_for(square("cat", 0.25, 0.5, 0.4, position="left"), axis="position"),
        [square("cat", 0.6, 0.5, 0.4)],
        "position",
    ),
    (
        wish_for(square("cat", 0.5, 0.5, 0.3, size="small"), axis="size"),
        [square("cat", 0.5, 0.5, 0.5)],
        "size",
    ),
    (
        wish_for(square("cat", 0.5, 0.5, 0.68, size="large"), axis="size"),
        [square("cat", 0.5, 0.5, 0.5)],
        "size",
    ),
    (
        wish_for(square("cat", 0.25, 0.5, 0.3), square("cat", 0.75, 0.5, 0.3), axis="count"),
        [square("cat", 0.25, 0.5, 0.3)],
        "count_many",
    ),
    (
        wish_for(square("cat", 0.25, 0.5, 0.3), square("cat", 0.75, 0.5, 0.3), axis="count"),
        [square("cat", 0.25, 0.5, 0.3), square("dog", 0.75, 0.5, 0.3)],
        "object",
    ),
    (
        wish_for(square("cat", 0.25, 0.5, 0.3), square("dog", 0.75, 0.5, 0.3), axis="pair"),
        [square("cat", 0.25, 0.5, 0.3), square("fox", 0.75, 0.5, 0.3)],
        "pair_objects",
    ),
    (
        wish_for(
            square("cat", 0.25, 0.5, 0.3),
            square("dog", 0.75, 0.5, 0.3),
            axis="pair",
            text="a cat left of a dog",
        ),
        [square("dog", 0.25, 0.5, 0.3), square("cat", 0.75, 0.5, 0.3)],
        "pair_relation",
    ),
]


@pytest.mark.parametrize(("wish", "instead", "lost"), MISSES)
def test_a_mark_is_lost_by_what_is_missed(wish: Wish, instead: list[Thing], lost: str) -> None:
    right = CRITIC.verdict(wish, draw(wish.scene, blocks()))
    assert all(right.marks.values()), right
    missed = CRITIC.verdict(wish, picture_of(*instead))
    assert not missed.marks[lost] and missed.marks["background"]


@pytest.mark.parametrize("axis", ["gradient", "setting"])
def test_a_background_of_another_kind_loses_both_marks(axis: str) -> None:
    thing = square("cat", 0.5, 0.5, 0.6)
    asked = Scene((thing,), ("red", "white")) if axis == "gradient" else Scene((thing,), (), "sea")
    wish = Wish("", asked, axis)
    assert CRITIC.verdict(wish, draw(asked, blocks())).marks[axis]
    marks = CRITIC.verdict(wish, picture_of(thing)).marks
    assert not marks[axis] and not marks["background"] and marks["object"]


def test_recolouring_needs_the_object_and_the_colour() -> None:
    wish = wish_for(square("cat", 0.5, 0.5, 0.6, colour="green"), axis="paint")

    critic = Critic(CatJudge(), blocks())
    assert critic.verdict(wish, draw(wish.scene, blocks())).marks["recolouring"]
    for colour in ("", "blue"):
        other = replace(wish.scene, things=(square("cat", 0.5, 0.5, 0.6, colour=colour),))
        assert not critic.verdict(wish, draw(other, blocks())).marks["recolouring"]
    # Right colour, but no cat: the block judge does not know a green one.
    assert not CRITIC.verdict(wish, draw(wish.scene, blocks())).marks["recolouring"]


def test_an_empty_picture_has_the_background_alone() -> None:
    wish = wish_for(
        square("cat", 0.2, 0.2, 0.3, position="top left", size="small"), axis="position"
    )
    marks = CRITIC.verdict(wish, picture_of()).marks
    assert [name for name, is_right in marks.items() if is_right] == ["background"]


def test_next_to_asks_for_no_order_and_left_does() -> None:
    things = (square("cat", 0.25, 0.5, 0.3), square("dog", 0.75, 0.5, 0.3))
    beside = wish_for(*things, axis="pair", text="a cat next to a dog")
    assert stands(beside, "left of") and stands(beside, "right of") and not stands(beside, "above")
    ordered = replace(beside, text="A dog to the RIGHT of a cat")
    assert stands(ordered, "left of") and not stands(ordered, "right of")
    above = replace(beside, scene=replace(beside.scene, arrangement="above"), text="a cat on a dog")
    assert stands(above, "above") and not stands(above, "below")


def test_both_of_a_pair_are_needed_for_the_relation() -> None:
    wish = wish_for(square("cat", 0, 0, 1), square("dog", 1, 0, 1), axis="pair")
    cat, dog = Seen("cat", Box(0, 40, 20, 60)), Seen("dog", Box(60, 40, 80, 60))
    assert pair_marks(wish, [cat, dog]) == {"pair_objects": True, "pair_relation": True}
    assert pair_marks(wish, [cat, cat]) == {"pair_objects": False, "pair_relation": False}


def test_a_stranger_is_judged_by_what_the_prompt_says() -> None:
    pixels = picture_of(square("cat", 0.5, 0.5, 0.6), background=("teal",))
    marks = CRITIC.stranger_verdict(Stranger("kitty!", "cat", ("teal",)), pixels).marks
    assert marks == {"strangers_object": True, "strangers_background": True}
    assert CRITIC.stranger_verdict(Stranger("", "dog", ()), pixels).marks == {
        "strangers_object": False
    }


def test_shares_are_of_those_that_were_asked() -> None:
    verdicts = [Verdict("", "", "", "", marks) for marks in ({"a": True, "b": False}, {"a": False})]
    assert shares(verdicts) == {"a": (0.5, 2), "b": (0.0, 1)}


def test_drawings_are_the_ceiling() -> None:
    wishes = [wish_for(square(name, 0.5, 0.5, 0.6), axis="plain") for name in ("cat", "dog")]
    assert shares(CRITIC.drawn(wishes))["object"] == (1.0, 2)
    blank = [np.full((256, 256, 3), COLOURS["white"], np.uint8)] * 2
    assert shares(CRITIC.verdicts(wishes, blank))["object"] == (0.0, 2)
