"""The studio's two cookies: a signed-in browser's session, and the number of a keyless visitor."""

import hashlib
import re
import secrets
from typing import Final

from starlette.requests import HTTPConnection

SESSION_COOKIE: Final = "studio_session"
VISITOR_COOKIE: Final = "studio_visitor"
VISITOR_S: Final = 365 * 24 * 3600
_VISITOR: Final = re.compile(r"[0-9a-f]{32}")


def new_visitor() -> str:
    """A number that nobody guesses: 128 random bits."""
    return secrets.token_hex(16)


def owner_of_visitor(visitor: str) -> str | None:
    """The owner behind a visitor cookie; None when it is none of ours.

    Owners stand in logs and in the database, so they hold a hash and not the cookie.
    """
    if not _VISITOR.fullmatch(visitor):
        return None
    return f"visitor-{hashlib.sha256(visitor.encode()).hexdigest()[:16]}"


def cookie_header(name: str, value: str, max_age_s: int, *, is_secure: bool) -> str:
    """A `Set-Cookie` value: for the whole site, out of reach of scripts and of other sites."""
    secure = "; Secure" if is_secure else ""
    return f"{name}={value}; Max-Age={max_age_s}; Path=/; HttpOnly; SameSite=Lax{secure}"


def is_https(connection: HTTPConnection) -> bool:
    """Whether the browser speaks TLS, to us or to a proxy in front.

    The header is the client's word; a false one only makes its own cookie stricter.
    """
    forwarded = connection.headers.get("x-forwarded-proto", "").split(",")[0].strip().lower()
    return forwarded == "https" or connection.scope.get("scheme") in ("https", "wss")
