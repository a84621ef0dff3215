"""FLUX.2's prompts: what the chat model reads, and what is said of a prompt that is too long."""

import pytest
import torch

from pipelines.chat_prompts import MISTRAL, QWEN


def test_the_conversation_is_as_diffusers_formats_it(tiny_flux2):
    from diffusers.pipelines.flux2.pipeline_flux2 import SYSTEM_MESSAGE, format_input

    (messages,) = format_input(["a red [IMG] apple"], SYSTEM_MESSAGE)
    tokenizer = tiny_flux2.prompts.tokenizer
    theirs = tokenizer.apply_chat_template(messages, tokenize=False)
    assert MISTRAL.text(tokenizer, "a red [IMG] apple") == theirs
    assert "a red  apple" in theirs


def test_klein_opens_an_answer_without_thinking(tiny_klein):
    text = QWEN.text(tiny_klein.prompts.tokenizer, "an apple")
    assert text.startswith("<|im_start|>user\nan apple<|im_end|>\n<|im_start|>assistant\n")
    assert text.endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize("name, layers", [("tiny_flux2", 31), ("tiny_klein", 28)])
def test_layers_behind_the_last_one_read_are_dropped(name, layers, request):
    assert len(request.getfixturevalue(name).prompts.decoder.layers) == layers


@torch.inference_mode()
def test_a_prompt_is_encoded_alike_alone_and_beside_others(tiny_flux2):
    alone = tiny_flux2.prompts.encode([("", "a frog")])[0].text
    beside = tiny_flux2.prompts.encode([("", "two red apples"), ("", "a frog")])[1].text
    assert torch.allclose(alone, beside, atol=1e-5)
    assert alone.shape == (tiny_flux2.spec.max_sequence_length, 48)


def test_a_short_prompt_is_read_whole(tiny_flux2, tiny_klein):
    for model in (tiny_flux2, tiny_klein):
        length = model.prompts.measure("a red apple")
        assert length.cut == "" and 11 < length.tokens <= length.limit
        longer = model.prompts.measure("a red apple!")
        assert longer.tokens == length.tokens + 1  # a byte is a token


@pytest.mark.parametrize("name", ["tiny_flux2", "tiny_klein"])
@pytest.mark.parametrize("prompt", ["apple " * 60, "  apple\n" * 60])
def test_the_words_beyond_the_limit_are_named(name, prompt, request):
    """What is left of the prompt fits; one word more does not."""
    prompts = request.getfixturevalue(name).prompts
    length = prompts.measure(prompt)
    assert length.tokens > length.limit and length.cut.startswith("apple")
    words, lost = prompt.split(), length.cut.split()
    text = prompts.chat.text(prompts.tokenizer, prompt)
    read = prompts.tokenizer.decode(
        prompts.tokenizer(text, add_special_tokens=False).input_ids[: length.limit]
    )
    assert read.count("apple") == len(words) - len(lost)


def test_bytes_are_never_unknown(tiny_klein):
    assert tiny_klein.prompts.unknown_words("猫 xyzzy") == ()
