"""How a text model is asked: by its adapter, by examples, or by chat."""

import random

import pytest

from pipelines.specs import EMBEDDED_FOLDER
from pipelines.text.requests import Message
from studio.engine.text_http.body import call_of
from studio.engine.text_http.dialects import DIALECTS
from studio.engine.text_protocol import TextModel
from studio.expansion.asking import (
    Form,
    copies_example,
    form_of,
    is_small,
    request_of,
    world_request_of,
)
from studio.expansion.template import STOP, prefix_of
from studio.world import read_world


@pytest.mark.parametrize(
    ("model", "form"),
    [
        (TextModel("smollm2-135m", adapters=("other", "expansion")), "adapter"),
        (TextModel("smollm2-135m", adapters=("other",)), "examples"),
        (TextModel("Qwen3-0.6B"), "examples"),
        (TextModel("Qwen3-4B-Instruct"), "chat"),
        (TextModel("a-model"), "chat"),  # unknown: taken for a large one
        (TextModel("a-model", chats=False), "examples"),
        (TextModel("smollm2-135m", completes=False), "chat"),
        (TextModel("smollm2-135m", completes=False, adapters=("expansion",)), "chat"),
    ],
)
def test_the_form_follows_from_what_a_model_can(model: TextModel, form: str) -> None:
    assert form_of(model) == form


@pytest.mark.parametrize(
    ("name", "small"),
    [
        ("SmolLM2-360M-Instruct", True),
        ("llama-3.2-1b", False),
        ("Qwen3-30B-A3B", False),
        ("gemma-3-270m-it", True),
        ("org/phi-4-mini", False),
        ("gpt2", False),
    ],
)
def test_the_size_stands_in_the_name(name: str, small: bool) -> None:
    assert is_small(name) is small


def test_completions_end_with_the_idea_as_the_beginning_of_its_prompt() -> None:
    for form in ("adapter", "examples"):
        request = request_of(form, "a cat", id="1", seed=3)
        assert isinstance(request.prompt, str)
        assert request.prompt.endswith(prefix_of("a cat"))
        assert request.stop == (STOP,) and request.seed == 3
        assert request.adapter == ("expansion" if form == "adapter" else None)
        assert (request.prompt == prefix_of("a cat")) == (form == "adapter")


def test_chat_has_an_instruction_examples_and_the_idea() -> None:
    request = request_of("chat", "a cat", id="1", seed=3)
    assert isinstance(request.prompt, tuple) and not request.stop
    assert [turn.role for turn in request.prompt[:3]] == ["system", "user", "assistant"]
    assert request.prompt[-1] == Message("user", "a cat")
    for idea, prompt in zip(request.prompt[1:-1:2], request.prompt[2:-1:2], strict=True):
        assert prompt.text.startswith(idea.text)


def test_a_world_is_asked_for_in_its_own_words() -> None:
    world = read_world(str(EMBEDDED_FOLDER))
    assert world is not None
    chat = world_request_of("chat", "a cat", world, random.Random(0), id="1", seed=3)
    assert "in the snow" in chat.prompt[0].text  # type: ignore[union-attr]
    plain = world_request_of("adapter", "a cat", world, random.Random(0), id="1", seed=3)
    assert plain.adapter is None and str(plain.prompt).endswith(prefix_of("a cat"))
    assert str(plain.prompt).count("Idea:") == 5


def test_an_example_that_leaks_is_seen() -> None:
    assert copies_example("a cat", "a cat, an old lighthouse, stormy sea")
    assert not copies_example("a lighthouse", "a lighthouse, stormy sea")
    assert not copies_example("a cat", "a cat, soft light")


@pytest.mark.parametrize("form", ["examples", "chat"])
def test_a_plain_openai_server_takes_what_is_asked(form: Form) -> None:
    asked = request_of(form, "a cat", id="1", seed=1)
    call = call_of(asked, DIALECTS["openai"], model="tiny-0.1b", context_tokens=None)
    assert call.body["max_tokens"] == asked.max_tokens
