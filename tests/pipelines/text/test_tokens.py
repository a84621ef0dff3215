"""Text to tokens and back: characters of several tokens, stop strings over token borders."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pipelines.text.requests import Message
from pipelines.text.stops import StopGuard
from pipelines.text.tokens import Detokeniser, Tokens

TEXTS = [
    "a red fox",
    " naïve café — “quoted”",
    "日本語 と emoji 🦊🔥 end",
    "tabs\tand\n\nnewlines ",
    "🏳️‍🌈 flags",
]


@pytest.fixture(scope="module")
def tokens() -> Tokens:
    """A token for each byte: every character beyond ASCII comes in pieces."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: place for place, letter in enumerate(letters)} | {"<end>": 256}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    fast.chat_template = (
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
        "{% endif %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"
    )
    return Tokens(fast, (256,))


def flow(tokens: Tokens, before: str, text: str, size: int) -> list[str]:
    """`text` told in steps of `size` tokens behind `before`."""
    detokeniser = Detokeniser(tokens.encode(before))
    ids, pieces = tokens.encode(text), []
    for start in range(0, len(ids), size):
        detokeniser.push(ids[start : start + size])
        windows = tokens.decode(detokeniser.windows)
        pieces.append(detokeniser.text(*windows, is_last=start + size >= len(ids)))
    return pieces


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pieces_are_whole_characters_and_lose_nothing(tokens: Tokens, text: str, size: int) -> None:
    pieces = flow(tokens, "before: é", text, size)
    assert "".join(pieces) == text
    assert all("�" not in piece for piece in pieces)


def test_bytes_that_are_no_text_do_not_hold_up_what_follows(tokens: Tokens) -> None:
    detokeniser, told = Detokeniser([]), ""
    for token in [*[tokens.encode("é")[0]] * 40, *tokens.encode("abc")]:
        detokeniser.push([token])
        told += detokeniser.text(*tokens.decode(detokeniser.windows))
    assert told.endswith("abc")


def test_a_tokens_bytes_are_those_it_stands_for(tokens: Tokens) -> None:
    for text in TEXTS:
        assert b"".join(map(tokens.bytes_of, tokens.encode(text))) == text.encode()


def test_turns_go_through_the_template(tokens: Tokens) -> None:
    ids = tokens.encode((Message("user", "hi"), Message("assistant", "oh")))
    assert tokens.decode([ids]) == ["[user]hi[assistant]oh[assistant]"]
    with pytest.raises(ValueError, match="no system"):
        tokens.encode((Message("system", "be brief"),))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_no_part_of_a_stop_string_is_told(size: int) -> None:
    text, stop = "one, two, three\nfour", "three\n"
    guard, told = StopGuard((stop, "zzz")), ""
    for start in range(0, len(text), size):
        told += guard.push(text[start : start + size])[0]
        assert "one, two, ".startswith(told)
        if guard.is_hit:
            break
    assert guard.is_hit and told == "one, two, "


def test_what_only_looked_like_a_stop_string_is_told_in_the_end() -> None:
    guard = StopGuard(("abc",))
    assert guard.push("xxab")[0] == "xx"
    assert guard.push("d")[0] == "abd"
    assert guard.push("ab")[0] == ""
    assert guard.flush()[0] == "ab"
