"""Known words are one token each, in any case; unknown ones cost little and mean nothing."""

import random
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer, CLIPTokenizer, T5TokenizerFast

from training.captions import write
from training.compositions import FULL, random_scene
from training.grammar import vocabulary
from training.tokenizers import MAX_TOKENS, build_clip_tokenizer, build_t5_tokenizer, save

T5 = build_t5_tokenizer()
CLIP = build_clip_tokenizer()
SENTENCES = [
    "a red apple on a blue background",
    "Two CATS, top-left corner: (ice cream) é 猫!",
    "catalog xyzzy 'tis 2x – it’s",
    "  ",
]


def t5_tokens(text: str) -> list[str]:
    """Without the closing ``</s>``."""
    tokens = T5.convert_ids_to_tokens(T5(text).input_ids)
    assert tokens[-1] == "</s>"
    return tokens[:-1]


@pytest.mark.parametrize("tokenizer", [T5, CLIP])
@pytest.mark.parametrize("form", [str.lower, str.capitalize, str.upper])
def test_each_known_word_is_one_token_in_any_case(tokenizer: Any, form: Any) -> None:
    specials = len(tokenizer("").input_ids)
    for word in vocabulary():
        ids = tokenizer(form(word)).input_ids
        assert len(ids) == specials + 1 and tokenizer.unk_token_id not in ids[:-1], word
        assert ids == tokenizer(word).input_ids


def test_t5_reads_an_unknown_word_of_any_length_as_two_tokens() -> None:
    for word in ("zq", "xylophone", "Q" * 60, "猫猫猫"):
        assert len(t5_tokens(word)) == 2 and t5_tokens(word)[-1] == "<unk>", word
    assert t5_tokens("zzyx qqq") == ["▁", "<unk>", "▁", "<unk>"]


def test_t5_tells_a_word_that_begins_with_a_known_one_from_two_words() -> None:
    assert t5_tokens("carpet") == ["▁car", "<unk>"]
    assert t5_tokens("car pet") == ["▁car", "▁", "<unk>"]
    assert t5_tokens("appletree") != t5_tokens("apple tree") == ["▁apple", "▁tree"]


@pytest.mark.parametrize("text", ["cat,dog", "cat , dog", "CAT,  Dog"])
def test_signs_and_digits_are_words_with_or_without_spaces(text: str) -> None:
    assert t5_tokens(text) == ["▁cat", "▁,", "▁dog"]
    assert t5_tokens("2cats") == t5_tokens("2 cats") == ["▁2", "▁cats"]
    assert CLIP(text).input_ids == CLIP("cat, dog").input_ids


def test_clip_has_a_token_for_every_letter() -> None:
    for text in SENTENCES:
        assert CLIP.unk_token_id not in CLIP(text).input_ids[1:-1]


@pytest.mark.parametrize(
    ("folder", "kind", "built"),
    [("tokenizer", CLIPTokenizer, CLIP), ("tokenizer_2", T5TokenizerFast, T5)],
)
def test_a_saved_tokenizer_reads_the_same(
    folder: str, kind: Any, built: Any, tmp_path: Path
) -> None:
    save(tmp_path)
    for loader in (kind, AutoTokenizer):
        loaded = loader.from_pretrained(tmp_path / folder)
        assert loaded.get_vocab() == built.get_vocab()
        assert loaded.model_max_length == MAX_TOKENS
        assert loaded(SENTENCES).input_ids == built(SENTENCES).input_ids


def test_building_again_gives_the_same_ids() -> None:
    assert build_t5_tokenizer().get_vocab() == T5.get_vocab()
    assert build_clip_tokenizer().get_vocab() == CLIP.get_vocab()


@pytest.mark.parametrize("tokenizer", [T5, CLIP])
def test_captions_fit_but_for_one_in_a_thousand(tokenizer: Any) -> None:
    rng = random.Random(0)
    captions = [write(random_scene(rng, FULL), rng) for _ in range(5000)]
    lengths = [len(ids) for ids in tokenizer(captions).input_ids]
    assert sum(length > MAX_TOKENS for length in lengths) <= 5
    assert max(lengths) > MAX_TOKENS // 2  # the bound above is one that captions come near to
