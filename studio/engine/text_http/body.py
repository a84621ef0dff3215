"""A `TextRequest` as the body of a server's own request.

Everything is said, neutral values too: llama.cpp samples at 0.8 with top-k 40 unless told, and
vLLM as the model's author wished. What a server cannot do is refused by name, never left out.
"""

from dataclasses import dataclass

from pipelines.text.requests import Sampling, TextRequest
from studio.engine.text_http.dialects import Dialect
from studio.errors import BadRequest

NEUTRAL = Sampling()
_OWN_NAMES = ("top_k", "min_p", "repetition_penalty")  # each server's own, or none


@dataclass(frozen=True, slots=True)
class Call:
    """One POST below the server's base URL."""

    path: str
    body: dict[str, object]


def call_of(
    request: TextRequest, dialect: Dialect, *, model: str, context_tokens: int | None
) -> Call:
    """What to send. Raises BadRequest that names the field which the server cannot honour."""
    _check(request, dialect)
    is_chat = not isinstance(request.prompt, str)
    body: dict[str, object] = {"model": model, "stream": True}
    body["stream_options"] = {"include_usage": True}
    if dialect.has_early_usage:
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    body |= _prompt(request) | _limits(request, dialect, is_chat) | dict(dialect.extras)
    body |= _sampling(request.sampling, dialect, context_tokens)
    if request.top_logprobs is not None:
        top = max(request.top_logprobs, dialect.least_logprobs)
        body |= {"logprobs": True, "top_logprobs": top} if is_chat else {"logprobs": top}
    return Call("chat/completions" if is_chat else "completions", body)


def _check(request: TextRequest, dialect: Dialect) -> None:
    if request.adapter is not None:
        raise BadRequest(
            "A text server chooses no LoRA for a request: leave adapter out, and name a model "
            "that has it with --text-model.",
            param="adapter",
        )
    if not isinstance(request.prompt, str) and any(turn.pictures for turn in request.prompt):
        raise BadRequest(
            "The studio sends no pictures to a text server: describe them in words, or serve the "
            "model that looks at them with --text-engine local.",
            param="prompt",
        )
    if isinstance(request.prompt, str) and not dialect.completes:
        raise BadRequest(
            f"{dialect.title} cannot go on with plain text: send turns of a conversation, or use "
            "a server with raw completions, like vLLM, SGLang or llama.cpp.",
            param="prompt",
        )
    if request.truncation == "auto" and not dialect.truncates:
        raise BadRequest(
            f"{dialect.title} refuses a prompt that is too long and cuts none: leave truncation "
            "at disabled, and shorten the prompt where it is refused.",
            param="truncation",
        )
    for name in _OWN_NAMES:
        value, neutral = getattr(request.sampling, name), getattr(NEUTRAL, name)
        if getattr(dialect, name) is None and value != neutral:
            raise BadRequest(
                f"{dialect.title} takes no {name}: leave it at {neutral:g}, or use a server that "
                "takes it, like vLLM, SGLang, MAX or llama.cpp.",
                param=name,
            )
    if (request.top_logprobs or 0) > dialect.max_logprobs:
        raise BadRequest(
            f"{dialect.title} tells {dialect.max_logprobs} logprobs a token at most.",
            param="top_logprobs",
        )
    is_open_ended = isinstance(request.prompt, str) and request.max_tokens is None
    if is_open_ended and dialect.unlimited == "never":
        raise BadRequest(
            f"{dialect.title} ends plain text after a few tokens unless told: say how many it may "
            "write with max_output_tokens.",
            param="max_tokens",
        )


def _prompt(request: TextRequest) -> dict[str, object]:
    if isinstance(request.prompt, str):
        return {"prompt": request.prompt}
    return {"messages": [{"role": turn.role, "content": turn.text} for turn in request.prompt]}


def _limits(request: TextRequest, dialect: Dialect, is_chat: bool) -> dict[str, object]:
    values: dict[str, object] = {}
    if request.max_tokens is not None:
        values["max_tokens"] = request.max_tokens
    elif not is_chat and dialect.unlimited == "null":
        values["max_tokens"] = None
    if request.stop:
        values["stop"] = list(request.stop[: dialect.max_stops])
    span = dialect.last_seed - dialect.first_seed + 1
    values["seed"] = dialect.first_seed + (request.seed - dialect.first_seed) % span
    return values


def _sampling(
    sampling: Sampling, dialect: Dialect, context_tokens: int | None
) -> dict[str, object]:
    values: dict[str, object] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
    }
    if dialect.top_k is not None:
        values[dialect.top_k] = sampling.top_k or dialect.top_k_off
    if dialect.min_p is not None:
        values[dialect.min_p] = sampling.min_p
    if dialect.repetition_penalty is not None:
        values[dialect.repetition_penalty] = sampling.repetition_penalty
    if dialect.penalty_window is not None and context_tokens is not None:
        values[dialect.penalty_window] = context_tokens
    return values
