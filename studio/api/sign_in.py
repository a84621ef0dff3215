"""The sign-in page: a browser shows an API key once and gets a session cookie for it."""

import base64
import hashlib
from html import escape
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from studio.api.cookies import SESSION_COOKIE, cookie_header, is_https
from studio.api.keys import SESSION_S, ApiKeys, FailureLimit
from studio.errors import BadRequest, TooLarge, TooManyRequests

SIGN_IN: Final = "/sign-in"
SIGN_OUT: Final = "/sign-out"
_LONGEST_FORM_BYTES: Final = 8192

_STYLE: Final = """
:root { color-scheme: dark; font: 16px/1.5 system-ui, sans-serif; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: #0e0f12;
  color: #e6e8ec; }
form { box-sizing: border-box; width: min(22rem, 100vw - 2rem); padding: 2rem; background: #16181d;
  border: 1px solid #2a2f38; border-radius: 12px; }
h1 { margin: 0 0 1rem; font-size: 1.25rem; }
label { display: block; margin-bottom: .5rem; color: #a9b0bc; }
input { box-sizing: border-box; width: 100%; padding: .7rem; font: inherit; color: inherit;
  background: #0e0f12; border: 1px solid #3a404b; border-radius: 8px; }
button { width: 100%; margin-top: 1rem; padding: .7rem; font: inherit; font-weight: 600;
  color: #1d1307; background: #f2a65a; border: 0; border-radius: 8px; cursor: pointer; }
button:hover { background: #f6b876; }
:focus-visible { outline: 2px solid #f2a65a; outline-offset: 2px; }
[role=alert] { margin: .75rem 0 0; color: #fca5a5; }
"""
_STYLE_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: with that, browsers post the form with `Origin: null`.
    "Referrer-Policy": "same-origin",
}
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Flux Studio</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>
<body><form method="post" action="{action}"><h1>Flux Studio</h1>{fields}</form></body></html>
"""
_KEY_FIELDS: Final = """<input type="hidden" name="next" value="{next}">
<label for="key">API key</label>
<input id="key" name="key" type="password" autocomplete="current-password" required autofocus>
{alert}<button>Sign in</button>"""


class SignIn:
    """Answers `/sign-in` and `/sign-out`; reached before any key is checked."""

    def __init__(self, keys: ApiKeys, limit: FailureLimit) -> None:
        self._keys = keys
        self._limit = limit

    async def answer(self, request: Request, path: str, client: str) -> Response:
        """GET shows the form, POST acts. `client` is whom wrong keys are counted against."""
        if request.method not in ("GET", "HEAD", "POST"):
            return Response(status_code=405, headers={"Allow": "GET, HEAD, POST"})
        if path == SIGN_OUT:
            return self._sign_out(request)
        if request.method != "POST":
            return _key_form(request, request.query_params.get("next", "/"))
        form = await _form(request)
        return self._signed_in(request, form.get("key", ""), form.get("next", "/"), client)

    def _signed_in(self, request: Request, key: str, target: str, client: str) -> Response:
        wait_s = self._limit.wait_s(client)
        if wait_s:
            return _key_form(request, target, too_many_tries(wait_s))
        owner = self._keys.owner_of_key(key.strip())
        if owner is None:
            self._limit.record(client)
            return _key_form(request, target, "That is not a key of this studio.")
        token = self._keys.session_token(owner)
        return _redirect(request, local_path(target), token, SESSION_S)

    def _sign_out(self, request: Request) -> Response:
        if request.method == "POST":
            return _redirect(request, SIGN_IN, "", 0)
        return _page(request, SIGN_OUT, "<button>Sign out</button>", 200)


def sign_in_location(connection: HTTPConnection, path: str) -> str:
    """Where a browser without a key is sent; it comes back to `path` afterwards."""
    query = connection.scope.get("query_string", b"").decode("latin-1")
    target = f"{path}?{query}" if query else path
    suffix = "" if target == "/" else f"?next={quote(target, safe='')}"
    return f"{_root(connection)}{SIGN_IN}{suffix}"


def local_path(target: str) -> str:
    """The target when it is a path on this site, else `/`: a link must not lead elsewhere."""
    if not target.startswith("/") or target.startswith(("//", "/\\")) or not target.isprintable():
        return "/"
    try:
        parts = urlsplit(target)
    except ValueError:
        return "/"
    return "/" if parts.scheme or parts.netloc or "\\" in target else target


def too_many_tries(wait_s: int) -> TooManyRequests:
    """Every try is refused for a while, the right key's too, or it would be no limit."""
    return TooManyRequests(
        f"Too many wrong keys. Wait {wait_s} s and try again.",
        code="too_many_tries",
        retry_after_s=wait_s,
    )


def _key_form(
    request: Request, target: str, problem: str | TooManyRequests | None = None
) -> Response:
    alert = f'<p role="alert">{escape(str(problem))}</p>' if problem else ""
    fields = _KEY_FIELDS.format(next=escape(local_path(target)), alert=alert)
    if isinstance(problem, TooManyRequests):
        return _page(request, SIGN_IN, fields, problem.status, problem.headers)
    return _page(request, SIGN_IN, fields, 401 if problem else 200)


def _page(
    request: Request, path: str, fields: str, status: int, headers: dict[str, str] | None = None
) -> Response:
    page = _PAGE.format(style=_STYLE, action=escape(_root(request) + path), fields=fields)
    return HTMLResponse(page, status, headers={**_HEADERS, **(headers or {})})


def _redirect(request: Request, path: str, token: str, max_age_s: int) -> Response:
    response = RedirectResponse(_root(request) + path, 303, headers={"Cache-Control": "no-store"})
    cookie = cookie_header(SESSION_COOKIE, token, max_age_s, is_secure=is_https(request))
    response.headers.append("Set-Cookie", cookie)
    return response


def _root(connection: HTTPConnection) -> str:
    return str(connection.scope.get("root_path", "")).rstrip("/")


async def _form(request: Request) -> dict[str, str]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LONGEST_FORM_BYTES:
            raise TooLarge("The sign-in form is too long.", code="body_too_large")
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=8)
    except ValueError as error:
        raise BadRequest("The sign-in form has too many fields; send `key` alone.") from error
    return {name: values[0] for name, values in fields.items()}
