"""A server's own refusals and failures as the studio's errors.

Their sentences hold neither the key nor the address: they go to clients and to the open
`/health/ready`. The address is for the log.
"""

import json
import logging
import re
from dataclasses import dataclass
from http import HTTPStatus

import httpx

from studio.engine.text_http.chunks import Json, as_count, as_object
from studio.errors import BadRequest, CannotStart, StudioError, TooManyRequests, Unavailable

log = logging.getLogger(__name__)

MAX_SAID = 300  # characters of a server's own words that are handed on
# What each server says of a prompt that does not fit; llama.cpp and OpenAI have a code as well.
_OVERFLOW = re.compile(
    r"context[ _](length|size|window)|maximum (model|prompt|input) length|max_model_len"
    r"|(prompt|input) is too long|exceed_context_size",
    re.IGNORECASE,
)
_REFUSED = frozenset({400, 413, 422})


@dataclass(frozen=True, slots=True)
class Site:
    """Where a text server is."""

    url: str  # below which the API is, mostly ending in /v1; no slash at the end
    key: str | None = None

    @property
    def root(self) -> str:
        """The URL without /v1, where a server's own paths begin."""
        return self.url.removesuffix("/v1")

    def quoted(self, said: str) -> str:
        """A server's words on one line, cut to length, without our key and the server's host."""
        line = " ".join(said.split())
        if self.key:
            line = line.replace(self.key, "***")
        host = re.escape(httpx.URL(self.url).host)
        line = re.sub(rf"(?<![\w.-]){host}(?![\w-])", "***", line, flags=re.IGNORECASE)
        return line if len(line) <= MAX_SAID else line[:MAX_SAID] + "…"

    def sentence(self, said: str) -> str:
        """The same with a full stop."""
        quoted = self.quoted(said)
        return quoted if not quoted or quoted[-1] in ".!?…" else f"{quoted}."


def site_of(url: str, key: str | None) -> Site:
    """The site of --text-url and --text-key. Raises CannotStart where they cannot be meant."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise CannotStart(f"--text-url is no URL ({error}).") from error
    if parsed.userinfo:
        raise CannotStart("--text-url holds a password, which ends in logs: use --text-key.")
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.query or parsed.fragment:
        raise CannotStart(f"--text-url {url} is no server's: give one like http://host:8000/v1.")
    if key is not None and not (key.isascii() and key.isprintable()):
        raise CannotStart("--text-key holds a character that no HTTP header can carry.")
    plain = str(parsed).rstrip("/")
    return Site(plain if parsed.path.strip("/") else f"{plain}/v1", key or None)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An HTTP answer other than 200; `body` may be cut off."""

    status: int
    body: bytes = b""
    retry_after_s: float | None = None
    location: str | None = None


def failure_of_answer(site: Site, answer: Refusal, path: str = "") -> StudioError:
    """What an HTTP answer other than 200 means for the request to `path`."""
    try:
        body = as_object(json.loads(answer.body))
    except ValueError:
        body = {}
    said = _said(body) or answer.body.decode("utf-8", "replace")
    if 300 <= answer.status < 400:
        log.warning("%s redirects to %s", site.url, answer.location or "nowhere")
        return Unavailable(
            "The text server redirects, which is not followed: start the studio with the "
            "--text-url that its log names."
        )
    is_missing = answer.status in (404, 405) and "model" not in said.lower()
    if is_missing and path == "completions":
        return BadRequest(
            "The text server cannot go on with plain text: send turns of a conversation, or use a "
            "server with raw completions, like vLLM, SGLang or llama.cpp.",
            param="prompt",
        )
    return _failure(site, answer.status, said, _param(body), answer.retry_after_s)


def failure_in_stream(site: Site, event: Json) -> StudioError | None:
    """The error that an event of a stream is, or None. Its text, if any, is incomplete."""
    error = event.get("error")
    if not error and event.get("object") != "error":
        return None
    inner = as_object(error) or event
    code = inner.get("code")
    status = int(code) if isinstance(code, str) and code.isdecimal() else as_count(code)
    said = error if isinstance(error, str) else _said(event)
    return _failure(site, status if 400 <= status < 600 else 500, said, _param(event), None)


def lost(site: Site, error: Exception) -> Unavailable:
    """No connection, or one that broke."""
    cause = site.quoted(str(error)) or type(error).__name__
    return Unavailable(
        f"The text server cannot be reached ({cause}). Start it, or give another --text-url; the "
        "studio keeps looking."
    )


def _failure(
    site: Site, status: int, said: str, param: str | None, retry_after_s: float | None
) -> StudioError:
    quoted = site.sentence(said) or _phrase(status)
    if status in _REFUSED and _OVERFLOW.search(said):
        return BadRequest(
            f"The prompt and the tokens to write do not fit: {quoted} Shorten the input, or ask "
            "for fewer tokens.",
            param="input",
            code="context_length_exceeded",
        )
    if status in _REFUSED:
        return BadRequest(f"The text server refused the request: {quoted}", param=param)
    if status in (401, 403):
        return Unavailable(
            f"The text server does not accept the studio's key ({status}): give the right one with "
            "--text-key."
        )
    if status in (404, 405):
        return Unavailable(
            f"The text server does not serve this model or path: {quoted} Look at --text-model and "
            "--text-url."
        )
    if status == 429:
        message = f"The text server has too much to do: {quoted} Try again later."
        return TooManyRequests(message, retry_after_s=round(retry_after_s or 5))
    if status == 503:
        headers = {"Retry-After": str(round(retry_after_s))} if retry_after_s else None
        return Unavailable(
            f"The text server is not ready: {quoted} Try again later.", headers=headers
        )
    return Unavailable(f"The text server failed ({status}): {quoted} Its own log tells more.")


def _phrase(status: int) -> str:
    try:
        return f"{HTTPStatus(status).phrase}."
    except ValueError:
        return f"status {status}."


def _said(body: Json) -> str:
    """The message in any of the forms that servers have, with the type that names an overflow."""
    error = body.get("error")
    inner = as_object(error) or body
    message = error if isinstance(error, str) else inner.get("message") or body.get("detail") or ""
    text = message if isinstance(message, str) else json.dumps(message)
    codes = [str(inner.get(name)) for name in ("type", "code") if inner.get(name)]
    is_coded = any(_OVERFLOW.search(code) for code in codes)
    return f"{text} ({', '.join(codes)})" if is_coded and not _OVERFLOW.search(text) else text


def _param(body: Json) -> str | None:
    inner = as_object(body.get("error")) or body
    param = inner.get("param")
    return param if isinstance(param, str) and param else None
