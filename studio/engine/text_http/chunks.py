"""One chunk of a server's stream as plain values. Servers add, leave out and null whatever."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.text.requests import Speculation, TextUsage, TokenLogprob
from studio.engine.text_http.dialects import Counts, Dialect

Json = Mapping[str, object]
NOTHING: Json = {}


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one event adds to the answer."""

    text: str = ""
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: str | None = None  # in the server's words
    usage: TextUsage | None = None
    is_reading: bool = False  # the prompt is still being read


def read_chunk(event: Json, dialect: Dialect, top_logprobs: int | None) -> Chunk:
    """The chunk of `event`; the usage chunk has no choices, a first one may have null content."""
    choice = as_object(_first(event.get("choices")))
    delta = as_object(choice.get("delta"))
    text = choice.get("text") if "delta" not in choice else delta.get("content")
    # What a reasoning model thinks is not the answer, nor are the logprobs of its thoughts.
    is_thought = bool(delta.get("reasoning_content") or delta.get("reasoning"))
    has_logprobs = top_logprobs is not None and (bool(text) or not is_thought)
    finish = choice.get("finish_reason")
    progress = as_object(event.get("prompt_progress"))
    return Chunk(
        text=text if isinstance(text, str) else "",
        logprobs=_logprobs(choice.get("logprobs"), top_logprobs or 0) if has_logprobs else (),
        finish=finish if isinstance(finish, str) and finish else None,
        usage=_usage(event, dialect),
        is_reading=bool(progress) and as_count(progress.get("processed")) < _total(progress),
    )


def as_object(value: object) -> Json:
    """`value` where it is an object, else an empty one."""
    return value if isinstance(value, dict) else NOTHING


def as_count(value: object) -> int:
    """`value` where it is a number of 0 or more, else 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return 0
    return max(0, int(value))


def _first(value: object) -> object:
    return value[0] if isinstance(value, list) and value else None


def _total(progress: Json) -> int:
    return as_count(progress.get("total"))


def _usage(event: Json, dialect: Dialect) -> TextUsage | None:
    usage, progress = as_object(event.get("usage")), as_object(event.get("prompt_progress"))
    if progress:  # llama.cpp, while it reads the prompt
        return TextUsage(_total(progress), 0, as_count(progress.get("cache")))
    if not as_count(usage.get("prompt_tokens")):  # Ollama's chunks hold zeros before the last
        return None
    output = as_count(usage.get("completion_tokens"))
    details = as_object(usage.get("prompt_tokens_details"))
    return TextUsage(
        as_count(usage.get("prompt_tokens")),
        output,
        as_count(details.get("cached_tokens")),
        _speculation(event, dialect.speculation, output),
    )


def _speculation(event: Json, places: tuple[Counts, ...], output: int) -> Speculation | None:
    for place in places:
        counts = event
        for name in place.path:
            counts = as_object(counts.get(name))
        if not isinstance(counts.get(place.drafted), int):
            continue
        drafted, accepted = as_count(counts[place.drafted]), as_count(counts.get(place.accepted))
        steps = output - accepted if place.steps is None else as_count(counts.get(place.steps))
        return Speculation(max(0, steps), drafted, accepted)
    return None


def _logprobs(value: object, top: int) -> tuple[TokenLogprob, ...]:
    """Both forms: `content` of chat, which llama.cpp and Ollama have in completions too, and lists
    side by side. `top`: how many were asked for; some servers send one where none was."""
    entries = as_object(value)
    content = entries.get("content")
    if isinstance(content, list):
        return tuple(_entry(as_object(item), top) for item in content)
    return _side_by_side(entries, top)


def _entry(item: Json, top: int) -> TokenLogprob:
    others = item.get("top_logprobs")
    likeliest = others[:top] if isinstance(others, list) else ()
    token, raw = _text(item.get("token")), item.get("bytes")
    return TokenLogprob(
        token,
        _number(item.get("logprob")),
        bytes(as_count(part) & 255 for part in raw) if isinstance(raw, list) else token.encode(),
        tuple(_entry(as_object(other), 0) for other in likeliest),
    )


def _side_by_side(entries: Json, top: int) -> tuple[TokenLogprob, ...]:
    logprobs, tops = _list(entries.get("token_logprobs")), _list(entries.get("top_logprobs"))
    tokens = _list(entries.get("tokens"))
    found = []
    for index, value in enumerate(logprobs):
        others = as_object(tops[index] if index < len(tops) else None)
        ranked = sorted(others.items(), key=lambda item: -_number(item[1]))
        # MAX names no token: it is the one among the likeliest that has this logprob.
        named = [token for token, other in ranked if other == value]
        token = _text(tokens[index] if index < len(tokens) else named[0] if named else "")
        likeliest = tuple(
            TokenLogprob(text, _number(other), text.encode()) for text, other in ranked[:top]
        )
        found.append(TokenLogprob(token, _number(value), token.encode(), likeliest))
    return tuple(found)


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _number(value: object) -> float:
    # As vLLM says "impossible": JSON has no infinity.
    return float(value) if isinstance(value, int | float) else -9999.0
