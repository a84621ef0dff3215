"""A prompt or a reference that comes again is not encoded again, and room is bounded."""

import numpy as np
import pytest
import torch

from pipelines.encodings import Encodings
from pipelines.engine import PictureEngine
from pipelines.requests import RenderRequest
from tests.pipelines.reference import photo
from tests.pipelines.test_engine import finish, pictures


@pytest.fixture
def asked(tiny_kontext, monkeypatch) -> list[object]:
    """What the model was asked to encode."""
    asked: list[object] = []
    real_encode, real_reference = tiny_kontext.prompts.encode, tiny_kontext.reference

    def encode(texts):
        asked.extend(texts)
        return real_encode(texts)

    def reference(pixels):
        asked.append(pixels.shape)
        return real_reference(pixels)

    monkeypatch.setattr(tiny_kontext.prompts, "encode", encode)
    monkeypatch.setattr(tiny_kontext, "reference", reference)
    return asked


@torch.inference_mode()
def test_only_what_is_new_is_encoded(tiny_kontext, asked):
    kept = Encodings(tiny_kontext)
    first = kept.prompts([("a", "a"), ("", "")])
    again = kept.prompts([("", ""), ("b", "a"), ("a", "a"), ("b", "a")])
    assert asked == [("a", "a"), ("", ""), ("b", "a")]
    assert again[0] is first[1] and again[2] is first[0] and again[1] is again[3]


@torch.inference_mode()
def test_a_reference_is_known_by_its_pixels_and_shape(tiny_kontext, asked):
    kept, shown = Encodings(tiny_kontext), photo(48, 32)
    first = kept.reference(shown)
    assert kept.reference(shown.copy()) is first
    changed = shown.copy()
    changed[0, 0, 0] ^= 1
    assert kept.reference(changed) is not first
    assert kept.reference(np.ascontiguousarray(shown.reshape(48, 32, 3))) is not first
    assert len(asked) == 3


@torch.inference_mode()
def test_the_oldest_go_when_room_is_used_up_and_giants_are_used_once(tiny_kontext, asked):
    one = tiny_kontext.prompts.encode([("x", "x")])[0]
    size = one.text.nbytes + one.pooled.nbytes
    asked.clear()
    kept = Encodings(tiny_kontext, max_bytes=2 * (2 * size + 1))
    for name in ("a", "b", "a", "c", "a", "b"):
        kept.prompts([(name, name)])
    assert [text for text, _ in asked] == ["a", "b", "c", "b"]
    small = Encodings(tiny_kontext, max_bytes=4)
    assert small.reference(photo(32, 32)).grid == small.reference(photo(32, 32)).grid


def test_the_same_prompt_twice_makes_the_same_picture(tiny_kontext, asked):
    engine = PictureEngine(tiny_kontext)
    made = []
    for id_ in ("first", "second"):
        shown = (photo(48, 32),)
        engine.submit(RenderRequest(id_, "a frog", 32, 32, 2, (7,), references=shown))
        made.append(pictures(finish(engine))[0].pixels)
    assert np.array_equal(made[0], made[1])
    assert asked.count((32, 48, 3)) == 1
