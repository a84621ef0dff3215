"""A text response as far as it is written: the OpenResponses object with all its 31 keys."""

import math
import time
from typing import Any, Final

from pipelines.text.requests import (
    Speculation,
    TextDelta,
    TextDone,
    TextRequest,
    TextStarted,
    TokenLogprob,
)
from studio.api.answers import warning
from studio.api.text_neutral import PLAIN_TEXT
from studio.api.text_schemas import TextBody, TextOptions
from studio.engine.text_protocol import Piece
from studio.errors import StudioError, error_body
from studio.request import Notice

OPTION_NAMES: Final = frozenset(TextOptions.model_fields)
FIELDS: Final = {"prompt": "input", "max_tokens": "max_output_tokens"}
LEAST_LOGPROB: Final = -9999.0  # JSON has no infinity


def field_of(param: str | None) -> str | None:
    """Where a value of the draft stands in the body."""
    if param in OPTION_NAMES:
        return f"provider_options.text.{param}"
    return FIELDS.get(param, param) if param is not None else None


class TextAnswer:
    """Takes the engine's pieces one by one; `response` is the object at any time."""

    def __init__(self, body: TextBody, request: TextRequest, notices: tuple[Notice, ...]) -> None:
        self.request = request
        self._body = body
        self._created_at = int(time.time())
        self._warnings = list(notices)
        self._written: list[str] = []
        self._logprobs: list[dict[str, Any]] = []
        self._done: TextDone | None = None
        self._done_at: int | None = None
        self.error: StudioError | None = None

    @property
    def item_id(self) -> str:
        """The id of the one message that is written."""
        return f"msg_{self.request.id}"

    @property
    def text(self) -> str:
        """What is written so far."""
        return "".join(self._written)

    @property
    def logprobs(self) -> list[dict[str, Any]]:
        """Of the tokens so far; empty where none were asked for."""
        return self._logprobs

    @property
    def status(self) -> str:
        """`in_progress`, then `completed`, `incomplete` or `failed`."""
        if self.error is not None:
            return "failed"
        if self._done is None:
            return "in_progress"
        return "completed" if self._done.finish == "stop" else "incomplete"

    def take(self, piece: Piece) -> None:
        """The next piece of the engine."""
        match piece:
            case TextStarted():
                self._take_start(piece)
            case TextDelta():
                self._written.append(piece.text)
                self._logprobs += self.logprobs_of(piece)
            case TextDone():
                self._done = piece
                self._done_at = int(time.time())

    def fail(self, error: StudioError) -> None:
        """Nothing more will be written."""
        self.error = error

    def logprobs_of(self, delta: TextDelta) -> list[dict[str, Any]]:
        """A delta's, as far as they were asked for."""
        if self.request.top_logprobs is None:
            return []
        return [_logprob(token) for token in delta.logprobs]

    def part(self) -> dict[str, Any]:
        """The content part as far as it is written."""
        part = {"type": "output_text", "text": self.text, "annotations": []}
        return part | ({"logprobs": self._logprobs} if self.has_logprobs else {})

    @property
    def has_logprobs(self) -> bool:
        """Whether they were asked for."""
        return self.request.top_logprobs is not None

    def item(self, *, is_empty: bool = False) -> dict[str, Any]:
        """The message; `is_empty` as it is announced."""
        return {
            "type": "message",
            "id": self.item_id,
            "status": self.status if self.error is None else "incomplete",
            "role": "assistant",
            "content": [] if is_empty else [self.part()],
        }

    def response(self) -> dict[str, Any]:
        """The response object; its message is in it once it is over, as far as it was written."""
        done = self._done if self.error is None else None
        is_over = done is not None or self.error is not None
        return {
            "id": f"resp_{self.request.id}",
            "object": "response",
            "created_at": self._created_at,
            "completed_at": self._done_at if self.status == "completed" else None,
            "status": self.status,
            "error": _failure(self.error),
            "incomplete_details": self._incomplete(),
            "output": [self.item()] if is_over else [],
            "usage": usage_of(done) if done is not None else None,
            "warnings": [warning(notice, field_of) for notice in self._warnings],
            **_asked(self._body, self.request),
        }

    def _incomplete(self) -> dict[str, str] | None:
        return {"reason": "max_output_tokens"} if self.status == "incomplete" else None

    def _take_start(self, started: TextStarted) -> None:
        if started.dropped_tokens:
            message = (
                f"{started.dropped_tokens:,} tokens were cut from the beginning of the input, "
                "which is longer than the model's context."
            )
            self._warnings.append(Notice("prompt_truncated", "input", message))


def usage_of(done: TextDone) -> dict[str, Any]:
    """Tokens of a finished text, and what speculative decoding did for it."""
    usage = done.usage
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "speculative_decoding": speculation_to_dict(usage.speculation),
    }


def speculation_to_dict(speculation: Speculation | None) -> dict[str, Any] | None:
    """Counts and their ratios; null as a whole where the engine does not tell."""
    if speculation is None:
        return None
    rate, length = speculation.acceptance_rate, speculation.tokens_per_step
    return {
        "steps": speculation.steps,
        "drafted_tokens": speculation.drafted,
        "accepted_tokens": speculation.accepted,
        "acceptance_rate": round(rate, 4) if rate is not None else None,
        "tokens_per_step": round(length, 4) if length is not None else None,
    }


def _asked(body: TextBody, request: TextRequest) -> dict[str, Any]:
    """What was asked for, with the defaults that were settled."""
    sampling = request.sampling
    return {
        "model": body.model,
        "instructions": body.instructions,
        "max_output_tokens": request.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "top_logprobs": request.top_logprobs or 0,
        "truncation": request.truncation,
        "seed": request.seed,
        "metadata": body.metadata or {},
        "user": body.user,
        "safety_identifier": body.safety_identifier,
        "prompt_cache_key": body.prompt_cache_key,
        "tools": [],
        "tool_choice": body.tool_choice or "auto",
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "max_tool_calls": body.max_tool_calls,
        "text": {"format": PLAIN_TEXT},
        "reasoning": None,
        "previous_response_id": None,
        "store": False,
        "background": False,
        "service_tier": "default",
    }


def _failure(error: StudioError | None) -> dict[str, str | None] | None:
    if error is None:
        return None
    body = error_body(error)["error"]
    return {"code": body["code"], "message": body["message"]}


def _logprob(token: TokenLogprob) -> dict[str, Any]:
    return _token(token) | {"top_logprobs": [_token(other) for other in token.top]}


def _token(token: TokenLogprob) -> dict[str, Any]:
    is_finite = math.isfinite(token.logprob)
    return {
        "token": token.token,
        "logprob": token.logprob if is_finite else LEAST_LOGPROB,
        "bytes": list(token.bytes),
    }
