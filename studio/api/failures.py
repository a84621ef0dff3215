"""Every failure as one envelope: `{"error": {"message", "type", "param", "code"}}`."""

import json
import logging
import re
from collections.abc import Iterator

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from studio.api.kinds import PICTURE, TEXT
from studio.errors import BadRequest, StudioError, error_body

JSON_WAY_OUT = "Send a JSON object in UTF-8, uncompressed, with Content-Type: application/json."
# What unions of schemas call their branches.
BRANCHES = frozenset(
    (PICTURE, TEXT, "<string>", "<list>", "input_text", "input_image", "output_text")
)
ESCAPED_BYTE = re.compile("[\udc80-\udcff]")  # as "surrogateescape" (PEP 383) has it

log = logging.getLogger(__name__)


def add_failure_handlers(app: FastAPI) -> None:
    """Answer the studio's errors, failed validation, unknown routes and our own mistakes."""
    app.add_exception_handler(StudioError, _studio_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _mistake)


def answer(error: StudioError) -> JSONResponse:
    """The HTTP answer of a studio error."""
    return JSONResponse(error_body(error), status_code=error.status, headers=error.headers)


async def _studio_error(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StudioError)
    return answer(error)


async def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return answer(validation_failure(error))


async def _http_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    failure = StudioError(str(error.detail), code="http_error", headers=error.headers)
    if error.status_code == 400:  # FastAPI's own, before validation
        param = undecodable_field(await request.body()) if _is_undecodable(error) else None
        failure = BadRequest(f"{error.detail}. {JSON_WAY_OUT}", param=param, code="invalid_json")
    if error.status_code == 404:
        failure = StudioError(f"There is no {request.url.path}; see /docs.", code="not_found")
    body = error_body(failure)
    if error.status_code < 500:
        body["error"]["type"] = "not_found_error" if error.status_code == 404 else BadRequest.type
    return JSONResponse(body, status_code=error.status_code, headers=failure.headers)


def _is_undecodable(error: HTTPException) -> bool:
    return isinstance(error.__cause__, UnicodeDecodeError)  # FastAPI has read the whole body


def undecodable_field(body: bytes) -> str | None:
    """The first field whose string is no UTF-8; None where nothing can be read at all."""
    try:
        values = json.loads(body.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None
    found = next(_escaped(values, ()), None)
    return ".".join(found) if found else None


def _escaped(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Paths of the strings in which bytes stand that could not be decoded."""
    if isinstance(value, str) and ESCAPED_BYTE.search(value):
        yield path
    if isinstance(value, dict | list):
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _escaped(inner, (*path, str(key)))


async def _mistake(_request: Request, error: Exception) -> JSONResponse:
    return answer(mistake(error))


def failure_of(error: Exception, what: str) -> StudioError:
    """What a stream that has begun tells of `error`: its status is sent already."""
    if isinstance(error, StudioError):
        return error
    log.error("%s failed in mid-stream", what, exc_info=error)
    return mistake(error)


def mistake(error: Exception) -> StudioError:
    """Our own mistake as a client may see it: the log has the trace."""
    message = "The studio made a mistake; its log says more. The next request is served."
    return StudioError(f"{message} ({type(error).__name__})")


def validation_failure(error: RequestValidationError) -> BadRequest:
    """The first fault that pydantic found, as a sentence that names the field."""
    fault = error.errors()[0]
    path = _fields([str(part) for part in fault["loc"] if part != "body"], fault["type"])
    if fault["type"] == "json_invalid":
        return BadRequest(
            f"The body is not valid JSON: {fault.get('ctx', {}).get('error', 'cannot be read')}. "
            f"{JSON_WAY_OUT}",
            code="invalid_json",
        )
    if not path:
        return BadRequest(f"The body is not a JSON object. {JSON_WAY_OUT}", code="invalid_json")
    field = ".".join(path)
    if fault["type"] == "extra_forbidden":
        return BadRequest(
            f"{field} is not known here. Remove it, or look at /docs for the fields.",
            param=field,
            code="unknown_field",
        )
    message = fault["msg"].removeprefix("Value error, ").removesuffix(".")
    return BadRequest(f"{field}: {message}.", param=field)


def _fields(path: list[str], fault: str) -> list[str]:
    """Pydantic names the branch of a union in the path; a person does not."""
    last = path[-1:] if fault == "extra_forbidden" else []  # whatever it is called
    way = path[: len(path) - len(last)]
    return [part for part in way if part not in BRANCHES] + last
