"""Kimi K2.5 with and without pictures: the text is that of transformers' own `generate`."""

import io

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from transformers.modeling_layers import MtpModel

from pipelines.text.agreement import check_agreement, check_architecture
from pipelines.text.engine import EngineOptions
from pipelines.text.language_model import LanguageModel
from pipelines.text.mtp import MtpDrafter
from pipelines.text.pictures import MAX_PICTURES, cut
from pipelines.text.requests import Message, Sampling, TextRequest
from tests.pipelines.text.serving import open_engine, run
from tests.pipelines.text.tiny_models import (
    PICTURE,
    Stock,
    language_model,
    load,
    make_kimi,
    make_module,
    random_ids,
    save,
    text_of,
)

WRITTEN = 16
BEFORE, AFTER = random_ids(9, 1), random_ids(5, 2)


def encoded(pixels: NDArray[np.uint8]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def picture(height: int, width: int, seed: int = 0) -> bytes:
    random = np.random.default_rng(seed)
    return encoded(random.integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def kimi() -> LanguageModel:
    return language_model(make_kimi(), chats=True)


@pytest.fixture(scope="module")
def stock(kimi) -> Stock:
    return Stock(kimi.module)


def ask(name: str, *pictures: bytes) -> TextRequest:
    turns = (Message("user", text_of(BEFORE)), Message("user", text_of(AFTER), pictures))
    greedy = Sampling(temperature=0, repetition_penalty=1.1)
    return TextRequest(name, turns, seed=0, sampling=greedy, max_tokens=WRITTEN)


def answers(model: LanguageModel, *requests: TextRequest) -> list[list[int]]:
    engine, told = open_engine(model)
    run(engine, requests, apart=3)
    return [[int(word) for word in told.text(request.id).split()] for request in requests]


def expected(stock: Stock, *pictures: bytes) -> list[int]:
    cuts = [cut(file, 4, 2) for file in pictures]
    ids = [*BEFORE, *(PICTURE for one in cuts for _ in range(len(one.pixels) // 4)), *AFTER]
    more: dict[str, torch.Tensor] = {}
    if pictures:
        more = {
            "pixel_values": torch.cat([one.pixels for one in cuts]),
            "image_grid_thw": torch.tensor([[1, one.rows, one.columns] for one in cuts]),
        }
    return stock.generate(ids, WRITTEN, repetition_penalty=1.1, **more)


def test_text_alone(kimi, stock):
    check_architecture("kimi", kimi.module.config, type(kimi.module))
    check_agreement(kimi)
    assert answers(kimi, ask("a")) == [expected(stock)]


def test_text_with_pictures_in_a_batch(kimi, stock):
    """A prompt with a picture, one with two, one with none; the last has the first one's."""
    one, other = picture(20, 16, seed=1), picture(8, 24, seed=2)
    texts = answers(kimi, ask("a", one), ask("b", one, other), ask("c"), ask("d", one))
    assert texts[0] == texts[3] == expected(stock, one)
    assert texts[1] == expected(stock, one, other)
    assert texts[2] == expected(stock)
    assert texts[0] != expected(stock, other)  # it was looked at


def test_another_picture_is_no_kept_beginning(kimi, stock):
    """Prompts of the same length with the same text around: only what is equal is reused."""
    one, other = picture(16, 16, seed=3), picture(16, 16, seed=4)
    engine, told = open_engine(kimi)
    for name, file in (("a", one), ("b", other), ("c", one)):
        run(engine, [ask(name, file)])
    assert told.done("b").usage.cached_tokens < len(BEFORE)
    assert told.done("c").usage.cached_tokens == len(BEFORE) + 4 + len(AFTER) - 1
    for name, file in (("b", other), ("c", one)):
        assert [int(word) for word in told.text(name).split()] == expected(stock, file)


def test_modules_that_draft_see_the_picture(stock):
    """They read a prompt with rows of a picture, and the text does not hang on their drafts."""
    module = make_kimi()
    module.config.text_config.num_mtp_layers = 1
    torch.manual_seed(1)
    mtp = MtpModel(module, 1).eval().requires_grad_(False)
    model = language_model(module, chats=True)
    engine, told = open_engine(model, EngineOptions(widths=(0, 2), is_adaptive=False))
    engine.drafter = MtpDrafter(mtp, model, engine.cache)
    file = picture(20, 16, seed=1)
    run(engine, [ask("a", file)])
    assert told.speculation.drafted > 0
    assert [int(word) for word in told.text("a").split()] == expected(stock, file)


def test_kept_pictures_are_bounded(kimi):
    for seed in range(MAX_PICTURES + 3):
        ids = kimi.encode((Message("user", "1", (picture(8, 8, seed=100 + seed),)),))
    kept = kimi._pictures
    assert kept is not None and len(kept._rows) == len(kept._firsts) == MAX_PICTURES
    assert torch.isfinite(kimi.embed(torch.tensor(ids))).all()


# What is refused


@pytest.mark.parametrize(
    ("pictures", "said"),
    [((b"nothing",), "send PNG, JPEG or WebP"), ((picture(8, 8),) * 5, "send 4 at most")],
)
def test_pictures_that_cannot_be_read(kimi, pictures, said):
    engine, told = open_engine(kimi)
    run(engine, [ask("a", *pictures)])
    assert said in told.failed("a").message and told.failed("a").param == "input"


def test_a_model_without_eyes_says_so():
    engine, told = open_engine(language_model(make_module("llama"), chats=True))
    run(engine, [ask("a", picture(8, 8))])
    assert "sees no pictures" in told.failed("a").message


# Patches


def test_patches_are_squares_in_reading_order():
    pixels = np.zeros((8, 16, 3), dtype=np.uint8)
    pixels[4:, 8:12] = (255, 0, 51)
    patches = cut(encoded(pixels), 4, 2)
    assert (patches.rows, patches.columns, patches.pixels.shape) == (2, 4, (8, 3, 4, 4))
    coloured = patches.pixels[4 + 2]
    for channel, value in enumerate((1.0, -1.0, 51 / 127.5 - 1)):
        torch.testing.assert_close(coloured[channel], torch.full((4, 4), value))
    assert (patches.pixels[[0, 1, 2, 3, 4, 5, 7]] == -1).all()


def test_edges_are_filled_up_and_large_pictures_made_smaller():
    white = np.full((10, 9, 3), 255, dtype=np.uint8)
    patches = cut(encoded(white), 4, 2)
    assert (patches.rows, patches.columns) == (4, 4)
    assert patches.pixels[0].min() == 1 and patches.pixels[-1].max() == -1
    wide = cut(encoded(np.zeros((8, 4096, 3), dtype=np.uint8)), 4, 2)
    assert (wide.rows, wide.columns) == (2, 512)


def test_a_folder_of_kimi(tmp_path):
    module = make_kimi()
    model = load(save(tmp_path / "kimi", module), tmp_path)
    file = picture(8, 8)
    assert answers(model, ask("a", file)) == [expected(Stock(module), file)]
