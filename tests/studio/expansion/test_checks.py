"""An expanded prompt is judged: the subject is there, and what was added can be seen."""

import pytest

from studio.expansion.checks import fault_of, lost_words

IDEA = "a red bicycle"
GOOD = (
    "a red bicycle, leaning against a brick wall, long evening shadows, fallen leaves, warm light, "
    "wet cobblestones, film photograph"
)


def test_a_good_prompt_has_no_fault() -> None:
    assert fault_of(IDEA, GOOD) is None
    assert fault_of("Red bicycles", GOOD) is None  # the same words in another form
    assert fault_of("ein rotes Fahrrad", GOOD.replace(IDEA, "ein rotes Fahrrad")) is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (GOOD.replace("bicycle", "car"), "lost bicycle"),
        (GOOD.replace("red bicycle", "thing"), "lost red, bicycle"),
        ("a red bicycle", "added too little"),
        ("a red bicycle, warm light, brick wall", "added too little"),
        (
            "a red bicycle, as it was once and will be again for all of us and them",
            "nothing to see",
        ),
        ("a red bicycle, " + "light and warm, warm light, " * 4, "nothing to see"),
        (
            "a red bicycle, " + "柔らかい 光, 古い 壁, 濡れた 道, 夕方 の 空, 赤い 葉, 長い 影, 猫",
            "English",
        ),
        (
            "a red bicycle, " + "12345 photo 98765 wall 55555 sky road leaf tree house sun",
            "numbers",
        ),
        (
            "a red bicycle, that he said was in the garden of the house where she and her brother "
            "felt at home when they were young and the summers told of the sea to them",
            "prose",
        ),
        (
            "a red bicycle, suddenly he decided to ride home, she said goodbye, they began a tale, "
            "old house garden tree window evening light road",
            "story",
        ),
        (
            "a red bicycle, wall light leaf, leaf wall light, light leaf wall, road sky house, "
            "wall leaf light, leaf light wall",
            "again and again",
        ),
    ],
)
def test_a_fault_is_named(text: str, fault: str) -> None:
    assert fault in (fault_of(IDEA, text) or "no fault")


def test_lost_words_are_told_as_they_were_typed() -> None:
    assert lost_words("the riding Astronauts", "a horse") == ("riding", "astronauts")
    assert lost_words("the riding Astronauts", "an astronaut rides a horse") == ()
