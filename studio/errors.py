"""Every failure that a person or a program can meet, as one tree.

StudioError
├── BadRequest          400  the request names something impossible
│   └── ExpansionFailed      the prompt could not be expanded, and stays as it is
├── Unauthorized        401  no key, or a wrong one
├── Forbidden           403  a foreign host or origin
├── NotFound            404  no such job, picture or model
├── Conflict            409  the job ended in another way than was waited for
├── TooLarge            413  more bytes than the studio takes
├── TooManyRequests     429  come back later (`Retry-After`)
│   └── QueueFull
├── Unavailable         503  the model is loading, or could not be loaded
└── CannotStart         at start only: the port, the folder or the database cannot be used

A message names the cause and the way out; `code` is stable, `param` is the field at fault.
"""

from collections.abc import Mapping
from typing import ClassVar


class StudioError(Exception):
    """A failure with an HTTP status, a stable code and a sentence that names the way out."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str] = "internal_error"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or self.default_code
        self.headers = dict(headers or {})


class BadRequest(StudioError):
    status = 400
    type = "invalid_request_error"
    default_code = "invalid_value"


class ExpansionFailed(BadRequest):
    default_code = "prompt_not_expanded"


class Unauthorized(StudioError):
    status = 401
    type = "authentication_error"
    default_code = "invalid_api_key"


class Forbidden(StudioError):
    status = 403
    type = "permission_error"
    default_code = "forbidden"


class NotFound(StudioError):
    status = 404
    type = "not_found_error"
    default_code = "not_found"


class Conflict(StudioError):
    status = 409
    type = "conflict_error"
    default_code = "conflict"


class TooLarge(StudioError):
    status = 413
    type = "invalid_request_error"
    default_code = "too_large"


class TooManyRequests(StudioError):
    status = 429
    type = "rate_limit_error"
    default_code = "rate_limited"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int = 5,
    ) -> None:
        headers = {"Retry-After": str(max(1, retry_after_s))}
        super().__init__(message, param=param, code=code, headers=headers)


class QueueFull(TooManyRequests):
    default_code = "queue_full"


class Unavailable(StudioError):
    status = 503
    type = "server_error"
    default_code = "unavailable"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        """`retry_after_s` for what comes by itself, like a model that is being loaded."""
        after = {"Retry-After": str(retry_after_s)} if retry_after_s is not None else {}
        super().__init__(message, param=param, code=code, headers={**(headers or {}), **after})


def unknown_model(message: str) -> NotFound:
    """For a request whose `model` nobody serves; the message says who is asked and what it has."""
    return NotFound(message, param="model", code="model_not_found")


class CannotStart(StudioError):
    default_code = "cannot_start"


def error_body(error: StudioError) -> dict[str, dict[str, str | None]]:
    """The body of a failed answer: `{"error": {"message", "type", "param", "code"}}`."""
    return {
        "error": {
            "message": _unicode(error.message),
            "type": error.type,
            "param": _unicode(error.param) if error.param is not None else None,
            "code": error.code,
        }
    }


def _unicode(text: str) -> str:
    """What a client sent may come back in an error, even what cannot be encoded."""
    return text.encode("utf-8", "replace").decode()
