"""A request's prompt as tokens that fit the model's context, or a sentence that says why not."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.errors import PipelineError
from pipelines.text.requests import Message, TextRequest

if TYPE_CHECKING:
    from pipelines.text.language_model import LanguageModel


CHARS_A_TOKEN = 16  # no language has texts with longer tokens on average


class CannotServe(PipelineError):
    """This model cannot serve the request; `param` names the field at fault."""

    def __init__(self, message: str, *, code: str, param: str) -> None:
        super().__init__(message)
        self.code = code
        self.param = param


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids to read, and how many tokens may be written behind them."""

    ids: list[int]
    max_tokens: int
    dropped_tokens: int = 0


def fit_prompt(request: TextRequest, model: "LanguageModel") -> Prompt:
    """Raises `CannotServe` for turns without a template, an unknown adapter, and what is too long.

    With truncation `auto` the oldest turns go first, the system's last, then the beginning of the
    text; what is left leaves room for `max_tokens`.
    """
    _check(request, model)
    if request.truncation == "disabled":
        _check_length(request, model)
    ids = _encode(_tail(request.prompt, model), model)
    limit = model.context_tokens - (request.max_tokens or 1)
    if limit < 1:
        raise CannotServe(
            f"max_output_tokens {request.max_tokens} leaves no room for an input: the context of "
            f"{model.name} is {model.context_tokens} tokens in all.",
            code="context_length_exceeded",
            param="max_output_tokens",
        )
    kept = ids
    if len(ids) > limit:
        if request.truncation == "disabled":
            raise CannotServe(_too_long(len(ids), request, model), **_OVERFLOW)
        kept = _shortened(_tail(request.prompt, model), len(ids), limit, model)
    room = model.context_tokens - len(kept)
    return Prompt(kept, min(request.max_tokens or room, room), len(ids) - len(kept))


_OVERFLOW = {"code": "context_length_exceeded", "param": "input"}


def prompt_letters(request: TextRequest) -> int:
    """Letters of the prompt, all turns together."""
    prompt = request.prompt
    return len(prompt) if isinstance(prompt, str) else sum(len(turn.text) for turn in prompt)


def _check(request: TextRequest, model: "LanguageModel") -> None:
    if request.adapter is not None and request.adapter not in model.adapters:
        raise CannotServe(
            f"{model.name} has no adapter {request.adapter!r}; leave it out.",
            code="adapter_not_found",
            param="adapter",
        )
    if not isinstance(request.prompt, str) and not model.tokens.chats:
        raise CannotServe(
            f"{model.name} has no chat template; send a plain text with raw: true.",
            code="no_chat_template",
            param="input",
        )


def _check_length(request: TextRequest, model: "LanguageModel") -> None:
    """Refuse what cannot fit before it is tokenised: that takes seconds for millions of letters."""
    length = prompt_letters(request)
    if length > CHARS_A_TOKEN * model.context_tokens:
        raise CannotServe(
            f"The input has {length:,} characters, which the context of {model.name}, "
            f"{model.context_tokens} tokens, does not hold. Shorten it, or send truncation: auto.",
            **_OVERFLOW,
        )


def _tail(prompt: str | Sequence[Message], model: "LanguageModel") -> str | Sequence[Message]:
    """The end of a text that is far too long; turns as they are."""
    return prompt[-CHARS_A_TOKEN * model.context_tokens :] if isinstance(prompt, str) else prompt


def _encode(prompt: str | Sequence[Message], model: "LanguageModel") -> list[int]:
    try:
        ids = model.encode(prompt)
    except ValueError as error:
        raise CannotServe(f"input: {error}.", code="invalid_value", param="input") from error
    if not ids:
        raise CannotServe("input is empty: write something.", code="invalid_value", param="input")
    return ids


def _too_long(tokens: int, request: TextRequest, model: "LanguageModel") -> str:
    asked = f" and max_output_tokens {request.max_tokens}" if request.max_tokens else ""
    return (
        f"The input has {tokens} tokens; with it{asked} the context of {model.name}, "
        f"{model.context_tokens} tokens, is exceeded. Shorten it, or send truncation: auto."
    )


def _shortened(
    prompt: str | Sequence[Message], tokens: int, limit: int, model: "LanguageModel"
) -> list[int]:
    """`tokens` is what all of it takes."""
    if isinstance(prompt, str):
        return _encode(prompt, model)[-limit:]
    system = [turn for turn in prompt[:-1] if turn.role == "system"]
    others = [turn for turn in prompt[:-1] if turn.role != "system"]
    over = tokens - limit
    while others and over > 0:
        # Each turn is counted by itself and not all anew for each that goes; a conversation that
        # begins with an answer is refused by many templates.
        while others and (over > 0 or others[0].role != "user"):
            over -= len(model.tokens.encode(others.pop(0).text))
        ids = _encode([*system, *others, prompt[-1]], model)
        over = len(ids) - limit
    return _encode([*system, *others, prompt[-1]], model)[-limit:]
