"""The judge's examples are what their labels say, and it learns from them; the reader asks it."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from tests.training.blocks import COLOUR_OF, BlockJudge, blocks, picture_of, square
from training import budget, drawing, judge
from training.compositions import Mix, any_scene
from training.finding import Box
from training.judge import NAMES, SIDE_PX, Examples, Judge, ink_boxes, shaken
from training.reading import Reader, read

UNPAINTED = Mix(0.4, 0.15, free=1.0)
NOTHING = len(NAMES) - 1


@pytest.fixture
def examples(monkeypatch: pytest.MonkeyPatch) -> Examples:
    """Of blocks in their own colours."""
    monkeypatch.setattr(drawing, "load", lambda icons: blocks())
    monkeypatch.setattr(judge, "SCENES", UNPAINTED)
    return Examples(Path(), 5)


def middle_colours(x: torch.Tensor) -> np.ndarray:
    """Medians of the crops' inner halves, 0 to 255: [n, 3]."""
    inner = x[:, :, 16:-16, 16:-16].flatten(2).median(-1).values
    colours: np.ndarray = ((inner + 1) * 127.5).numpy()
    return colours


def test_a_crop_shows_what_its_label_says(examples: Examples) -> None:
    x, labels = examples.batch(150)
    assert x.shape == (150, 3, SIDE_PX, SIDE_PX) and -1 <= float(x.min()) < float(x.max()) <= 1
    named = labels != NOTHING
    wanted = np.array(list(COLOUR_OF.values()))[labels[named]]
    # Gain, offset and noise move a colour by a tenth and 14 levels at most.
    near = np.abs(middle_colours(x[named]) - wanted).max(-1) < 0.1 * wanted.max(-1) + 20
    assert near.mean() > 0.97
    mixed = np.roll(wanted, 7, axis=0)  # broken: labels of other crops
    assert (np.abs(middle_colours(x[named]) - mixed).max(-1) < 45).mean() < 0.4


def test_some_crops_hold_no_whole_thing(examples: Examples) -> None:
    _, labels = examples.batch(400)
    assert 0.08 < float((labels == NOTHING).float().mean()) < 0.22


def test_one_seed_gives_the_same_examples(examples: Examples) -> None:
    again, other = Examples(Path(), 5), Examples(Path(), 6)
    first = examples.batch(20)[0]
    assert torch.equal(first, again.batch(20)[0])
    assert not torch.equal(first, other.batch(20)[0])


def test_ink_boxes_are_what_is_drawn() -> None:
    rng = random.Random(0)
    for _ in range(10):
        scene = any_scene(rng, Mix(free=0.5))
        (box,) = ink_boxes(scene, blocks(), 192, 128)
        white = drawing.draw(replace(scene, background=("white",), setting=""), blocks(), 192, 128)
        ys, xs = np.nonzero(np.abs(white.astype(int) - 250).max(-1))
        assert box == Box(int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1)


def test_a_shaken_box_is_near() -> None:
    rng, box = random.Random(0), Box(40, 40, 100, 100)
    shakes = [shaken(box, rng) for _ in range(100)]
    assert len(set(shakes)) > 50
    assert all(abs(each.left - 40) <= 5 and abs(each.bottom - 100) <= 5 for each in shakes)


def test_the_judge_can_learn_a_batch_by_heart(examples: Examples) -> None:
    torch.manual_seed(0)
    model = Judge().to(memory_format=torch.channels_last)
    x, wanted = examples.batch(16)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(20):
        loss = F.cross_entropy(model(x), wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert float((model(x).argmax(-1) == wanted).float().mean()) > 0.9


def test_a_saved_judge_answers_as_before(tmp_path: Path) -> None:
    model = Judge().eval()
    judge.save(tmp_path, model, 0.5)
    x = torch.randn(2, 3, SIDE_PX, SIDE_PX)
    assert torch.equal(judge.load(tmp_path)(x), model(x))


def test_a_judge_of_other_objects_is_refused(tmp_path: Path) -> None:
    weights = Judge().state_dict()
    budget.save(tmp_path / "judge.pt", {"judge": weights, "names": ["cat"], "accuracy": 0.5})
    with pytest.raises(ValueError, match=r"training\.judge"):
        judge.load(tmp_path)


# The reader, with a judge that knows the blocks by their colours.


def names(pixels: np.ndarray, model: BlockJudge | None = None) -> list[str]:
    return [seen.name for seen in read(model or BlockJudge(), pixels)]


def test_things_apart_are_read_by_name() -> None:
    pixels = picture_of(square("cat", 0.25, 0.3, 0.3), square("dog", 0.7, 0.7, 0.4))
    assert names(pixels) == ["dog", "cat"]


# Two that touch, three in a row of which two touch, three in a corner.
TOUCHING = [
    (("cat", 0.3, 0.5), ("dog", 0.7, 0.5)),
    (("cat", 0.5, 0.3), ("dog", 0.5, 0.7)),
    (("cat", 0.5, 0.3), ("dog", 0.3, 0.7), ("fox", 0.7, 0.7)),
]


@pytest.mark.parametrize("things", TOUCHING)
def test_things_that_touch_are_cut_apart(things: tuple[tuple[str, float, float], ...]) -> None:
    pixels = picture_of(*(square(name, x, y, 0.4) for name, x, y in things))
    assert sorted(names(pixels)) == sorted(name for name, _, _ in things)
    # A judge without the class of no whole object leaves them as they are.
    assert len(names(pixels, BlockJudge(is_blind=True))) == 1


def test_a_known_thing_is_not_cut() -> None:
    (seen,) = read(BlockJudge(), picture_of(square("cat", 0.5, 0.5, 0.7)))
    assert seen.name == "cat" and abs(seen.box.side - 0.7 * 256) < 4


def test_what_the_judge_does_not_know_stays_one_part_without_a_name() -> None:
    pixels = picture_of(square("cat", 0.5, 0.5, 0.6)).copy()
    pixels[60:196:2, 60:196] = 90  # stripes: no block has them, nor has any half
    assert names(pixels) == [""]


def test_pieces_are_joined_where_they_make_a_known_thing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A band of the background's colour runs through the thing, as where both are alike."""
    pixels = picture_of(square("cat", 0.5, 0.5, 0.6)).copy()
    pixels[124:132] = 250
    assert names(pixels) == ["cat"]
    monkeypatch.setattr(Reader, "_joined", lambda self, parts: parts)
    assert len(names(pixels)) > 1


def test_an_empty_picture_shows_nothing() -> None:
    assert names(picture_of(background=("teal",))) == []
