"""Keys, owners, WebSockets and path prefixes before a real Starlette application."""

import re
from typing import Any

import pytest
from starlette.types import Message

from studio.api.access import AccessMiddleware, AccessPolicy
from studio.api.keys import FAILURES, ApiKeys, FailureLimit
from tests.studio.access_site import (
    BEARER,
    BROWSER,
    KEY,
    OTHER_KEY,
    OWNER,
    Client,
    code_of,
    policy,
    raw_scope,
    run_raw,
    site,
)


@pytest.mark.parametrize("path", ["/", "/show", "/docs", "/openapi.json", "/nothing", "/health"])
def test_without_a_key_nothing_is_reached(path: str) -> None:
    response = Client(policy(KEY))("GET", path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert code_of(response) == "invalid_api_key"


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_health_alone_is_open(path: str) -> None:
    assert Client(policy(KEY))("GET", path).json()["owner"] == "anonymous"
    app = AccessMiddleware(site(), policy(KEY))
    for near in (f"{path}/", f"/x/..{path}", f"{path}/../../show", path.upper(), f"/{path}"):
        assert run_raw(app, raw_scope("http", near), [])[0]["status"] == 401, near


def test_each_key_is_an_owner() -> None:
    client = Client(policy(KEY, OTHER_KEY))
    first = client("GET", "/show", headers=BEARER).json()["owner"]
    second = client("GET", "/show", headers={"Authorization": f"bearer {OTHER_KEY}"}).json()[
        "owner"
    ]
    assert first == OWNER
    assert re.fullmatch(r"key-[0-9a-f]{12}", second)
    assert first != second


@pytest.mark.parametrize(
    "value",
    ["", "Bearer", "Bearer ", "Bearer x", f"Basic {KEY}", KEY, f"Bearer {KEY}x", "Bearer é"],
)
def test_wrong_keys(value: str) -> None:
    response = Client(policy(KEY))("GET", "/show", headers={"Authorization": value.encode()})
    assert response.status_code == 401


def test_guessing_is_slowed_down_for_the_right_key_too() -> None:
    client = Client(policy(KEY))
    for _ in range(FAILURES):
        assert client("GET", "/show", headers={"Authorization": "Bearer x"}).status_code == 401
    response = client("GET", "/show", headers=BEARER)
    assert response.status_code == 429
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert client("POST", "/sign-in", data={"key": KEY}).status_code == 429
    # Through another host name (a share tunnel's visitors, say) the count is another one.
    assert client("GET", "http://localhost:7860/show", headers=BEARER).status_code == 200


def test_the_limit_ends_after_a_minute_and_forgets_old_clients() -> None:
    now = 0.0
    limit = FailureLimit(clock=lambda: now)
    for _ in range(FAILURES):
        assert limit.wait_s("a") == 0
        limit.record("a")
    assert limit.wait_s("a") == 60
    assert limit.wait_s("b") == 0
    now = 60.0
    assert limit.wait_s("a") == 0
    for number in range(5000):
        limit.record(str(number))
    assert len(limit._failures) <= 1024


def test_open_visitors_are_told_apart_by_a_cookie() -> None:
    rules = policy(open=True)
    first, second = Client(rules), Client(rules)
    opened = first("GET", "/", headers=BROWSER)
    assert "studio_visitor=" in opened.headers["set-cookie"]
    assert "HttpOnly" in opened.headers["set-cookie"]
    owner = first("GET", "/show").json()["owner"]
    assert owner.startswith("visitor-") and owner in opened.text
    assert "set-cookie" not in first("GET", "/", headers=BROWSER).headers
    second("GET", "/", headers=BROWSER)
    assert second("GET", "/show").json()["owner"] != owner
    assert first.cookies["studio_visitor"] not in owner


def test_open_programs_are_anonymous_and_get_no_cookie() -> None:
    client = Client(policy(open=True))
    response = client("GET", "/show")
    assert response.json()["owner"] == "anonymous"
    assert "set-cookie" not in response.headers
    assert "set-cookie" not in client("GET", "/show", headers=BROWSER).headers  # JSON, no page
    client.cookies.set("studio_visitor", "short", domain="127.0.0.1")
    assert client("GET", "/show").json()["owner"] == "anonymous"


def test_open_does_not_lift_a_key() -> None:
    assert Client(policy(KEY, open=True))("GET", "/show").status_code == 401


def test_lifespan_passes() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    run_raw(AccessMiddleware(app, policy(KEY)), {"type": "lifespan"}, [])
    assert seen == ["lifespan"]


CONNECT: Message = {"type": "websocket.connect"}
AUTHORIZED = (b"authorization", f"Bearer {KEY}".encode())


def knock(
    rules: AccessPolicy, *headers: tuple[bytes, bytes], denial: bool = False
) -> list[Message]:
    scope = raw_scope("websocket", "/ws", *headers)
    if denial:
        scope["extensions"] = {"websocket.http.response": {}}
    return run_raw(AccessMiddleware(site(), rules), scope, [] if denial else [CONNECT])


def test_websockets_need_the_key() -> None:
    sent = knock(policy(KEY), AUTHORIZED)
    assert sent[0]["type"] == "websocket.accept"
    assert sent[1]["text"] == OWNER
    assert knock(policy())[1]["text"] == "local"
    (refused,) = knock(policy(KEY))
    assert (refused["type"], refused["code"]) == ("websocket.close", 1008)
    start, body = knock(policy(KEY), denial=True)
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 401)
    assert b"invalid_api_key" in body["body"]


def test_websockets_open_with_the_cookie() -> None:
    token = ApiKeys((KEY,)).session_token(OWNER)
    sent = knock(policy(KEY), (b"cookie", f"studio_session={token}".encode()))
    assert sent[1]["text"] == OWNER


@pytest.mark.parametrize("origin", [b"https://evil.example", b"null", b"http://127.0.0.1:1"])
def test_websockets_from_other_sites_are_refused(origin: bytes) -> None:
    for rules in (policy(), policy(KEY), policy(open=True)):
        start, _ = knock(rules, AUTHORIZED, (b"origin", origin), denial=True)
        assert start["status"] == 403
    assert knock(policy(), (b"origin", b"http://127.0.0.1:7860"))[0]["type"] == "websocket.accept"


def test_websockets_under_a_foreign_host_are_refused() -> None:
    scope = raw_scope("websocket", "/ws")
    scope["headers"] = [(b"host", b"evil.example")]
    (refused,) = run_raw(AccessMiddleware(site(), policy()), scope, [CONNECT])
    assert refused["code"] == 1008


def test_a_root_path_is_kept_in_every_address() -> None:
    def scope(path: str, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
        return raw_scope("http", f"/art{path}", *headers) | {"root_path": "/art", "method": "GET"}

    app = AccessMiddleware(site(), policy(KEY))
    start, _ = run_raw(app, scope("/show", (b"accept", b"text/html")), [])
    assert (b"location", b"/art/sign-in?next=%2Fshow") in start["headers"]
    _, form = run_raw(app, scope("/sign-in"), [])
    assert b'action="/art/sign-in"' in form["body"]
    empty: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]
    assert run_raw(app, scope("/health/live"), empty)[0]["status"] == 200
