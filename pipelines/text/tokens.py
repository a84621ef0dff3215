"""Text to tokens and back: chat templates, whole characters only, the bytes of a token."""

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from pipelines.text.requests import Message

REPLACEMENT = "�"  # what decoding gives for a character whose other bytes are still to come
MAX_HELD_TOKENS = 24  # several drafted tokens may end in mid-character each time; longer, and the
# bytes are no text at all


class Tokens:
    """A model's tokenizer, as the engine uses it."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, end_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.end_ids = frozenset(end_ids)
        self._bytes: dict[int, bytes] = {}

    @property
    def chats(self) -> bool:
        """Whether there is a template for turns."""
        return bool(self._tokenizer.chat_template)

    def is_same(self, other: "Tokens") -> bool:
        """Whether both give the same ids to the same text."""
        return self._tokenizer.get_vocab() == other._tokenizer.get_vocab()

    def encode(self, prompt: str | Sequence[Message]) -> list[int]:
        """Token ids of a text to go on with, or of turns with the beginning of an answer.

        Raises `ValueError` for turns that the template does not take.
        """
        if isinstance(prompt, str):
            return list(self._tokenizer(prompt)["input_ids"])
        turns = [{"role": message.role, "content": _content(message)} for message in prompt]
        # jinja's own errors are those of the template's author: a role or an order it refuses.
        from jinja2 import TemplateError

        try:
            ids = self._tokenizer.apply_chat_template(
                turns, add_generation_prompt=True, return_dict=False
            )
        except TemplateError as error:
            raise ValueError(f"the model's chat template refuses these turns: {error}") from error
        return list(ids)

    def decode(self, texts: Sequence[Sequence[int]]) -> list[str]:
        """Several at once, without the tokens that only steer the model."""
        decode: Any = self._tokenizer.batch_decode
        return list(decode(texts, skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def bytes_of(self, token: int) -> bytes:
        """What one token stands for; a part of a character where it is one."""
        if token not in self._bytes:
            self._bytes[token] = self._read_bytes(token)
        return self._bytes[token]

    def _read_bytes(self, token: int) -> bytes:
        piece = self._tokenizer.convert_ids_to_tokens(token)
        if self._is_byte_level and piece is not None and set(piece) <= _BYTE_OF.keys():
            return bytes(_BYTE_OF[letter] for letter in piece)
        return self._tokenizer.decode([token]).encode()

    @property
    def _is_byte_level(self) -> bool:
        backend = getattr(self._tokenizer, "backend_tokenizer", None)
        return "ByteLevel" in type(getattr(backend, "decoder", None)).__name__


def _content(message: Message) -> str | list[dict[str, str]]:
    """A text alone as templates of old take it; beside pictures, in parts."""
    if not message.pictures:
        return message.text
    return [{"type": "image"}] * len(message.pictures) + [{"type": "text", "text": message.text}]


def _byte_letters() -> dict[str, int]:
    """GPT-2's letters for bytes: printable ones stand for themselves, the others follow 255."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1)]
    plain += range(ord("®"), ord("ÿ") + 1)
    letters = {chr(byte): byte for byte in plain}
    others = (byte for byte in range(256) if byte not in set(plain))
    return letters | {chr(256 + place): byte for place, byte in enumerate(others)}


_BYTE_OF = _byte_letters()


class Detokeniser:
    """The text of tokens that come one by one, in whole characters.

    Decoding tokens alone loses the spaces between them, so the ones before are decoded along and
    cut off. `window` is what has to be decoded; the engine decodes those of all requests at once.
    """

    def __init__(self, before: Sequence[int]) -> None:
        self._ids = list(before[-MAX_HELD_TOKENS:])
        self._start = 0  # of the window
        self._read = len(self._ids)  # tokens whose text was told

    def push(self, ids: Sequence[int]) -> None:
        """More tokens."""
        self._ids += ids

    @property
    def windows(self) -> tuple[list[int], list[int]]:
        """Tokens told before, and the same with the new ones."""
        return self._ids[self._start : self._read], self._ids[self._start :]

    def text(self, before: str, now: str, *, is_last: bool = False) -> str:
        """The new text, given both windows decoded; empty while a character is incomplete."""
        is_partial = now.endswith(REPLACEMENT) and len(self._ids) - self._read < MAX_HELD_TOKENS
        if is_partial and not is_last:
            return ""
        self._start = self._read
        self._read = len(self._ids)
        return now[len(before) :]
