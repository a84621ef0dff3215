"""Words that T5 has no token for are named whole, each once, for the prompt that holds them."""

import copy
import random
import re
from dataclasses import replace

import pytest

from pipelines.clip_t5 import ClipT5
from pipelines.engine import PictureEngine
from pipelines.flux import Flux
from pipelines.requests import Event, RenderRequest, RequestDone, Warned
from pipelines.unknown_words import MAX_CHARACTERS, warning_of
from training.captions import write
from training.compositions import FULL, random_scene
from training.grammar import vocabulary
from training.tokenizers import MAX_TOKENS, build_t5_tokenizer

REQUEST = RenderRequest("r", "a red apple", 48, 32, 1, (5,))


@pytest.fixture(scope="module")
def worded(tiny: Flux) -> Flux:
    """The tiny model behind a tokenizer of whole words, as the embedded model's."""
    model = copy.copy(tiny)
    prompts = copy.copy(tiny.prompts)
    assert isinstance(prompts, ClipT5)
    prompts.t5_tokenizer, prompts.limit = build_t5_tokenizer(), MAX_TOKENS * 2  # cuts no caption
    model.prompts = prompts
    return model


def warnings(model: Flux, request: RenderRequest) -> list[Warned]:
    engine = PictureEngine(model)
    engine.submit(request)
    events: list[Event] = []
    while not engine.is_idle:
        events += engine.tick()
    assert events[-1] == RequestDone(request.id)
    return [event for event in events if isinstance(event, Warned)]


@pytest.mark.parametrize(
    ("prompt", "unknown"),
    [
        ("a red apple on a blue background", ()),
        ("", ()),
        ("a xylophone and a zorblat", ("xylophone", "zorblat")),  # "x" is a word: ▁x <unk>
        ("a carpet, a cat", ("carpet",)),  # ▁car <unk>
        ("Zorblat ZORBLAT zorblat", ("Zorblat",)),
        ("a (zorblat-cat), cat’s qux!", ("zorblat", "s", "qux")),  # signs are words of their own
        ("2zqs and 3 cats", ("zqs",)),
        ("  line\none\tzorblat\n", ("line", "zorblat")),
        ("红苹果 🍎 a cat🍎", ("红苹果", "🍎")),
        ("e\u0301clair é", ("e\u0301clair", "é")),
    ],
)
def test_words_outside_the_vocabulary_are_named_as_they_are_written(
    worded: Flux, prompt: str, unknown: tuple[str, ...]
) -> None:
    assert worded.prompts.unknown_words(prompt) == unknown


def test_the_unknown_token_alone_would_name_a_piece_of_the_word(worded: Flux) -> None:
    assert isinstance(worded.prompts, ClipT5)
    tokenizer = worded.prompts.t5_tokenizer
    encoded = tokenizer("carpet", return_offsets_mapping=True)
    at = encoded.input_ids.index(tokenizer.unk_token_id)
    start, end = encoded.offset_mapping[at]
    assert "carpet"[start:end] == "pet"


def test_of_captions_with_foreign_words_it_names_exactly_those(worded: Flux) -> None:
    known, rng = frozenset(vocabulary()), random.Random(0)
    captions = [write(random_scene(rng, FULL), rng).lower() for _ in range(2000)]
    foreign = [
        tuple(dict.fromkeys(word for word in re.findall("[a-z]+", text) if word not in known))
        for text in captions
    ]
    assert sum(bool(words) for words in foreign) > 200
    for text, words in zip(captions, foreign, strict=True):
        assert worded.prompts.unknown_words(text) == words, text


@pytest.mark.parametrize(
    ("prompt", "unknown"),
    [
        ("a red apple", ()),
        ("a red xylophone, at the left", ("xylophone",)),  # <unk> y l o p h o n e ,
        ("zzyx", ("zzyx",)),  # <unk> y <unk>
        ("apple—apple - apple", ("—", "-")),  # a sign takes no letters with it
        ("🍎apple 猫apple", ("🍎", "猫apple")),
    ],
)
def test_a_tokenizer_of_pieces_names_the_words_of_its_unknown_letters(
    tiny: Flux, prompt: str, unknown: tuple[str, ...]
) -> None:
    assert tiny.prompts.unknown_words(prompt) == unknown


def test_what_is_cut_is_not_named_again(tiny: Flux) -> None:
    prompt = "a red apple " * tiny.spec.max_sequence_length + "zorblat"
    (warned,) = warnings(tiny, replace(REQUEST, prompt=prompt))
    assert warned.code == "prompt_truncated"


def test_each_prompt_that_t5_reads_is_named_with_its_words(tiny: Flux) -> None:
    guided = replace(REQUEST, negative_prompt="a quiz", true_cfg_scale=2.0)
    for request, expected in (
        (replace(REQUEST, prompt="a zorblat"), [("prompt", "zorblat")]),
        (replace(REQUEST, negative_prompt="a quiz"), []),  # without a scale it is not read
        (guided, [("negative_prompt", "quiz")]),
        (
            replace(guided, prompt="zorblat", secondary_prompt="a xylophone"),  # CLIP reads letters
            [("secondary_prompt", "xylophone"), ("negative_prompt", "quiz")],
        ),
    ):
        warned = warnings(tiny, request)
        assert [each.code for each in warned] == ["words_unknown"] * len(expected)
        for each, (param, word) in zip(warned, expected, strict=True):
            assert (each.param, each.message) == (param, warning_of([word]))


def test_the_warning_stays_short() -> None:
    assert warning_of(["xylophone", "zorblat"]) == (
        "This model does not know: xylophone, zorblat. It reads only the rest."
    )
    assert ": 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 3 more." in warning_of([str(i) for i in range(13)])
    assert f": {'x' * MAX_CHARACTERS}…. " in warning_of(["x" * 10_000])


def test_a_very_long_word_is_a_short_warning(tiny: Flux) -> None:
    (warned,) = warnings(tiny, replace(REQUEST, prompt="猫" * 100_000))
    assert len(warned.message) < 200
