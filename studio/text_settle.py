"""A text draft checked against the model that is served: gaps filled, the impossible refused."""

import math
import secrets
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pipelines.text.requests import MAX_TOP_LOGPROBS, Sampling, TextRequest
from studio.engine.text_protocol import TextModel
from studio.errors import BadRequest
from studio.request import SEED_LIMIT, Notice
from studio.text_request import MAX_INPUT_CHARS, MAX_STOP_CHARS, MAX_STOPS, TextDraft
from studio.unicode import check_unicode

MAX_WHOLE: Final = 2**31 - 1  # what engines hold in an int


@dataclass(frozen=True, slots=True)
class Range:
    """Which values of a number are taken."""

    low: float
    high: float
    is_open: bool = False  # `low` itself is not taken

    def __contains__(self, value: float) -> bool:
        is_high_enough = value > self.low if self.is_open else value >= self.low
        return math.isfinite(value) and is_high_enough and value <= self.high

    def __str__(self) -> str:
        if self.is_open:
            return f"above {self.low:g} and at most {self.high:g}"
        if self.high == MAX_WHOLE:
            return f"at least {self.low:g}"
        return f"between {self.low:.10g} and {self.high:.10g}"


SAMPLING_RANGES: Final = {
    "temperature": Range(0.0, 2.0),
    "top_k": Range(0, MAX_WHOLE),
    "top_p": Range(0.0, 1.0, is_open=True),
    "min_p": Range(0.0, 1.0),
    # Far wider than any use; a penalty of 1e-40 would make infinite logits.
    "repetition_penalty": Range(0.01, 100.0),
    "frequency_penalty": Range(-2.0, 2.0),
    "presence_penalty": Range(-2.0, 2.0),
}
PENALTIES: Final = ("repetition_penalty", "frequency_penalty", "presence_penalty")
# Fits any context: a token has a byte or more, and the smallest default of a server is 2,048.
SHORT_BYTES: Final = 1_500
MAX_TOKENS_RANGE: Final = Range(1, MAX_WHOLE)
TOP_LOGPROBS_RANGE: Final = Range(0, MAX_TOP_LOGPROBS)
SEED_RANGE: Final = Range(0, SEED_LIMIT - 1)


def settle_text(draft: TextDraft, model: TextModel) -> tuple[TextRequest, tuple[Notice, ...]]:
    """Check `draft` against the model and fill its gaps.

    Raises `BadRequest` with the field's name in `param` for anything that cannot be written.
    """
    _check_prompt(draft, model)
    _check_stop(draft.stop)
    _check("max_output_tokens", draft.max_output_tokens, MAX_TOKENS_RANGE)
    _check("top_logprobs", draft.top_logprobs, TOP_LOGPROBS_RANGE)
    _check("seed", draft.seed, SEED_RANGE)
    sampling = _settle_sampling(draft)
    request = TextRequest(
        id=uuid.uuid4().hex,
        prompt=draft.prompt,
        seed=draft.seed if draft.seed is not None else secrets.randbelow(SEED_LIMIT),
        sampling=sampling,
        max_tokens=draft.max_output_tokens,
        stop=draft.stop,
        top_logprobs=draft.top_logprobs,
        truncation=draft.truncation or "disabled",
        adapter=draft.adapter,
    )
    return request, (*_notices(sampling), *_warnings(draft, sampling, model))


def check_adapter(adapter: str | None, model: TextModel) -> None:
    """Raises `BadRequest` for a LoRA that the model, which is ready, does not have."""
    if adapter is None or adapter in model.adapters:
        return
    known = ", ".join(map(repr, model.adapters))
    way_out = f"choose one of {known}" if known else "leave it out"
    raise BadRequest(
        f"{model.name} has no adapter {adapter[:100]!r}; {way_out}.",
        param="adapter",
        code="adapter_not_found",
    )


def _check_prompt(draft: TextDraft, model: TextModel) -> None:
    is_raw, texts = isinstance(draft.prompt, str), _texts(draft)
    if not any(text if is_raw else text.strip() for text in texts):
        way_out = "give a text to go on with" if is_raw else "send a message"
        raise BadRequest(f"The input is empty: {way_out}.", param="prompt")
    length = sum(map(len, texts))
    if length > MAX_INPUT_CHARS:
        raise BadRequest(
            f"The input has {length:,} characters; the limit is {MAX_INPUT_CHARS:,}. Send less.",
            param="prompt",
            code="prompt_too_long",
        )
    for text in texts:
        check_unicode("input", text, param="prompt")
    if is_raw and not model.completes:
        raise BadRequest(
            f"{model.name} takes turns of a conversation only; leave raw out.",
            param="raw",
            code="unsupported",
        )
    if not is_raw and not model.chats:
        raise BadRequest(
            f"{model.name} has no chat template; send a string as input with raw: true.",
            param="prompt",
            code="unsupported",
        )


def _texts(draft: TextDraft) -> list[str]:
    prompt = draft.prompt
    return [prompt] if isinstance(prompt, str) else [message.text for message in prompt]


def _check_stop(stop: tuple[str, ...]) -> None:
    if len(stop) > MAX_STOPS:
        raise BadRequest(f"stop has {len(stop)} strings; at most {MAX_STOPS}.", param="stop")
    for text in stop:
        if not 1 <= len(text) <= MAX_STOP_CHARS:
            raise BadRequest(
                f"A string of stop has {len(text):,} characters; it must have between 1 and "
                f"{MAX_STOP_CHARS}.",
                param="stop",
            )
        check_unicode("stop", text, param="stop")


def _settle_sampling(draft: TextDraft) -> Sampling:
    given = {name: getattr(draft, name) for name in SAMPLING_RANGES}
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        _check(name, value, SAMPLING_RANGES[name])
    return Sampling(**given)


def _notices(sampling: Sampling) -> tuple[Notice, ...]:
    """Temperature 0 takes the most likely token: nothing that narrows the choice can act."""
    if sampling.temperature > 0.0:
        return ()
    neutral = Sampling()
    idle = [
        name
        for name in ("top_k", "top_p", "min_p")
        if getattr(sampling, name) != getattr(neutral, name)
    ]
    reason = "temperature 0 takes the most likely token"
    return tuple(
        Notice("option_without_effect", name, f"{name} had no effect: {reason}.") for name in idle
    )


def _warnings(draft: TextDraft, sampling: Sampling, model: TextModel) -> Iterator[Notice]:
    """What the engine may not honour of this text."""
    touched = set(_touched(draft, sampling))
    for caveat in model.caveats:
        if caveat.param in touched:
            yield Notice("option_not_assured", caveat.param, caveat.message)


def _touched(draft: TextDraft, sampling: Sampling) -> Iterator[str]:
    """The fields with caveats that this text depends on."""
    neutral = Sampling()
    yield from (name for name in PENALTIES if getattr(sampling, name) != getattr(neutral, name))
    if sampling.temperature > 0.0:
        yield "top_k"  # where it was left out, too: that promises a choice among all tokens
        if draft.seed is not None:
            yield "seed"
    length_bytes = sum(len(text.encode()) for text in _texts(draft))
    if draft.truncation != "auto" and length_bytes > SHORT_BYTES:
        yield "truncation"


def _check(name: str, value: float | None, taken: Range) -> None:
    if value is None:
        return
    # Integers of any length come from JSON; Python prints and converts only some of them.
    is_huge = isinstance(value, int) and abs(value) >= 10**20
    if is_huge or value not in taken:
        shown = "out of range" if is_huge else f"{value}"
        raise BadRequest(f"{name} is {shown}; it must be {taken}.", param=name)
