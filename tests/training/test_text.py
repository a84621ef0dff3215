"""The text encoders take over a shipped model's, and are asked the right questions."""

import random
from pathlib import Path

import pytest
import torch

from training import budget, tokenizers
from training import text as text_module
from training.compositions import ABOVE, BESIDE, FULL, Scene, Thing, place, random_scene
from training.grammar import vocabulary
from training.text import QUESTIONS, Text, answers, warm_up

RNG = random.Random(0)


def with_words(words: list[str], monkeypatch: pytest.MonkeyPatch) -> Text:
    """Fresh encoders for this vocabulary."""
    monkeypatch.setattr(tokenizers, "vocabulary", lambda: words)
    return Text()


def export(text: Text, folder: Path) -> None:
    """The four folders of the text side, as ``FluxPipeline.save_pretrained`` writes them."""
    text.clip.save_pretrained(folder / "text_encoder")
    text.t5.save_pretrained(folder / "text_encoder_2")
    text.clip_tokenizer.save_pretrained(folder / "tokenizer")
    text.t5_tokenizer.save_pretrained(folder / "tokenizer_2")


@pytest.mark.parametrize("caption", ["a red apple", "", "zzz apple, a", "a red apple 2"])
def test_adopted_encoders_answer_as_the_shipped_ones_for_words_that_both_know(
    caption: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = with_words(["a", "apple", "banana", "red"], monkeypatch)
    export(shipped, tmp_path)
    text = with_words(["a", "above", "apple", "cat", "red"], monkeypatch)
    ids = text.tokenise([caption])
    assert not torch.equal(ids[1], shipped.tokenise([caption])[1]) or not caption
    wanted = shipped(*shipped.tokenise([caption]))
    fresh = text(*ids)
    text.adopt(tmp_path)
    for mine, theirs, before in zip(text(*ids), wanted, fresh, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-6)
        assert not torch.allclose(before, theirs, atol=1e-2)


def test_new_words_stay_fresh_at_the_scale_of_the_shipped_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = with_words(["a", "apple"], monkeypatch)
    with torch.no_grad():
        shipped.t5.shared.weight.mul_(7)
    export(shipped, tmp_path)
    text = with_words(["a", "apple", "cat"], monkeypatch)
    cat = text.t5_tokenizer.convert_tokens_to_ids("▁cat")
    before = text.t5.shared.weight[cat].detach().clone()
    text.adopt(tmp_path)
    after = text.t5.shared.weight[cat].detach()
    assert torch.nn.functional.cosine_similarity(before, after, dim=0) > 0.999
    assert 5 < after.norm() / before.norm() < 9
    assert text.t5.encoder.embed_tokens.weight is text.t5.shared.weight


def test_encoders_of_another_shape_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_module, "WIDTH", 64)
    export(with_words(["a"], monkeypatch), tmp_path)
    monkeypatch.undo()
    with pytest.raises(RuntimeError):
        Text().adopt(tmp_path)


def asked(scene: Scene) -> dict[str, str]:
    return {q: o[i] for (q, o), i in zip(QUESTIONS.items(), answers(scene), strict=True)}


def test_the_answers_for_two_things_on_a_gradient() -> None:
    upper, lower = (
        Thing(name, colour, size, "", x, y, 0.4)
        for (name, colour, size), (x, y) in zip(
            (("apple", "green", "small"), ("cat", "", "large")), ABOVE, strict=True
        )
    )
    assert asked(Scene((upper, lower), ("blue", "pink"), arrangement="above")) == {
        "first": "apple",
        "second": "cat",
        "first colour": "green",
        "second colour": "",
        "top colour": "blue",
        "bottom colour": "pink",
        "setting": "",
        "position": "",
        "size": "small",
        "second size": "large",
        "arrangement": "above",
        "count": "1",
    }


def test_the_answers_for_two_of_a_kind_in_a_setting() -> None:
    ducks = tuple(Thing("duck", "", "", "", x, y, 0.4) for x, y in BESIDE)
    found = asked(Scene(ducks, (), "sea", "some"))
    assert (found["first"], found["second"], found["count"]) == ("duck", "", "2")
    assert (found["setting"], found["top colour"], found["arrangement"]) == ("sea", "", "some")


def test_the_answers_for_one_thing_at_a_corner() -> None:
    found = asked(Scene((place(RNG, "fox", "top left", "small"),), ("white",)))
    assert (found["position"], found["size"], found["count"]) == ("top left", "small", "1")
    assert found["top colour"] == found["bottom colour"] == "white"


def test_every_answer_is_met_in_training() -> None:
    rng = random.Random(0)
    rows = [answers(random_scene(rng, FULL)) for _ in range(9000)]
    met = (set(column) for column in zip(*rows, strict=True))
    for (question, options), seen in zip(QUESTIONS.items(), met, strict=True):
        unmet = {"first": {""}, "second size": {"medium"}}.get(question, set())
        assert {options[i] for i in seen} == set(options) - unmet, question


class Steps(budget.Budget):
    """A budget of 50 steps, so that the machine's speed decides nothing."""

    def tick(self) -> None:
        self.spent_s += self.limit_s / 50


def test_a_short_warm_up_teaches_both_encoders(monkeypatch: pytest.MonkeyPatch) -> None:
    """The background's colour is soon read; the commonest answer alone is right in .15."""
    monkeypatch.setattr(budget, "Budget", Steps)
    torch.manual_seed(0)
    shares = warm_up(Text(), 1.0, seed=0, batch=32)
    for encoder in ("clip", "t5"):
        assert shares[encoder].keys() == QUESTIONS.keys()
        assert shares[encoder]["top colour"] > 0.3, shares


def test_vocabulary_is_what_the_encoders_are_sized_for() -> None:
    text = Text()
    assert text.t5.shared.num_embeddings == len(text.t5_tokenizer) > len(vocabulary())
    assert text.clip.get_input_embeddings().num_embeddings == len(text.clip_tokenizer)
