"""The access rules before a real Starlette application, a mounted Gradio page and a real server."""

import asyncio
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message
from starlette.websockets import WebSocket

from studio.api.access import AccessMiddleware, AccessPolicy
from studio.api.keys import FAILURES, ApiKeys, FailureLimit
from studio.api.sign_in import local_path

KEY, OTHER_KEY = "correct-horse-battery", "staple-0123456789"
OWNER = f"key-{__import__('hashlib').sha256(KEY.encode()).hexdigest()[:12]}"
BEARER = {"Authorization": f"Bearer {KEY}"}
BROWSER = {"Accept": "text/html,application/xhtml+xml"}
LIMIT = 1000


async def show(request: Request) -> Response:
    return JSONResponse({"owner": request.state.owner, "bytes": len(await request.body())})


async def page(request: Request) -> Response:
    return HTMLResponse(f"<p>{request.state.owner}</p>")


async def stream_and_catch(request: Request) -> Response:
    """A handler that turns every failure into its own 200: the 413 must win."""
    try:
        async for _ in request.stream():
            pass
    except Exception:
        return JSONResponse({"caught": True})
    return JSONResponse({"caught": False})


async def socket_owner(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text(websocket.state.owner)
    await websocket.close()


def site() -> Starlette:
    routes: list[Route | WebSocketRoute] = [
        Route("/", page),
        Route("/show", show, methods=["GET", "POST", "DELETE", "OPTIONS"]),
        Route("/catch", stream_and_catch, methods=["POST"]),
        Route("/health/live", show),
        Route("/health/ready", show),
        WebSocketRoute("/ws", socket_owner),
    ]
    return Starlette(routes=routes)


def policy(*keys: str, open: bool = False, hosts: tuple[str, ...] = ("127.0.0.1",)) -> AccessPolicy:
    return AccessPolicy(api_keys=keys, open=open, allowed_hosts=hosts, max_body_bytes=LIMIT)


class Client:
    """Requests without a network; keeps cookies like a browser."""

    def __init__(
        self,
        rules: AccessPolicy,
        *,
        app: ASGIApp | None = None,
        base: str = "http://127.0.0.1:7860",
    ) -> None:
        self.app = AccessMiddleware(app or site(), rules)
        self.base = base
        self.cookies = httpx.Cookies()

    def __call__(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=True)
            async with httpx.AsyncClient(
                transport=transport, base_url=self.base, cookies=self.cookies
            ) as client:
                response = await client.request(method, path, **options)
                self.cookies = client.cookies
                return response

        return asyncio.run(send())


def code_of(response: httpx.Response) -> Any:
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error["code"]


# --- keys ------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/show", "/docs", "/openapi.json", "/nothing", "/health"])
def test_without_a_key_nothing_is_reached(path: str) -> None:
    response = Client(policy(KEY))("GET", path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert code_of(response) == "invalid_api_key"


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_health_alone_is_open(path: str) -> None:
    assert Client(policy(KEY))("GET", path).json()["owner"] == "anonymous"
    for near in (f"{path}/", f"/x/..{path}", f"{path}/../../show", path.upper(), f"/{path}"):
        assert Client(policy(KEY))("GET", f"http://127.0.0.1:7860{near}").status_code == 401, near


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


# --- sign-in ---------------------------------------------------------------------------------


def test_a_browser_is_sent_to_the_sign_in_page_and_comes_back() -> None:
    client = Client(policy(KEY))
    response = client("GET", "/show?tab=2&x=%20", headers=BROWSER)
    assert response.status_code == 303
    location = response.headers["location"]
    assert location == "/sign-in?next=" + quote("/show?tab=2&x=%20", safe="")
    form = client("GET", location, headers=BROWSER)
    assert form.status_code == 200
    assert 'type="password"' in form.text
    assert form.headers["cache-control"] == "no-store"
    target = re.search(r'name="next" value="([^"]*)"', form.text)
    assert target is not None
    target_path = target[1].replace("&amp;", "&")
    response = client("POST", "/sign-in", data={"key": f" {KEY} ", "next": target_path})
    assert response.status_code == 303
    assert response.headers["location"] == "/show?tab=2&x=%20"
    cookie = response.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Lax" in cookie and "Secure" not in cookie
    assert KEY not in cookie
    assert client("GET", "/show").json()["owner"] == OWNER
    # A restarted studio knows the cookie; one with another key does not.
    again = Client(policy(OTHER_KEY, KEY))
    again.cookies = client.cookies
    assert again("GET", "/show").json()["owner"] == OWNER
    changed = Client(policy(OTHER_KEY))
    changed.cookies = client.cookies
    assert changed("GET", "/show").status_code == 401


def test_programs_get_json_and_not_a_redirect() -> None:
    client = Client(policy(KEY))
    assert client("GET", "/show", headers={"Accept": "*/*"}).status_code == 401
    assert client("POST", "/show", headers=BROWSER).status_code == 401
    wrong = {**BROWSER, "Authorization": "Bearer x"}
    assert client("GET", "/show", headers=wrong).status_code == 401
    # A proxy in front with a password of its own does not stand in the way.
    assert client("GET", "/show", headers={**BROWSER, "Authorization": "Basic eDp5"}).is_redirect


def test_a_wrong_key_shows_the_form_again() -> None:
    response = Client(policy(KEY))("POST", "/sign-in", data={"key": "<b>", "next": '/"><script>'})
    assert response.status_code == 401
    assert "not a key" in response.text
    assert "<script>" not in response.text
    assert "set-cookie" not in response.headers


def test_sign_out() -> None:
    client = Client(policy(KEY))
    client("POST", "/sign-in", data={"key": KEY})
    assert client("GET", "/show").status_code == 200
    assert "Sign out" in client("GET", "/sign-out").text
    assert client("GET", "/show").status_code == 200  # a link alone signs nobody out
    assert client("POST", "/sign-out").headers["location"] == "/sign-in"
    assert client("GET", "/show").status_code == 401


def test_the_cookie_is_secure_behind_tls() -> None:
    for options in ({"headers": {"X-Forwarded-Proto": "https, http"}}, {}):
        base = "http://127.0.0.1:7860" if options else "https://127.0.0.1:7860"
        response = Client(policy(KEY), base=base)("POST", "/sign-in", data={"key": KEY}, **options)
        assert response.headers["set-cookie"].endswith("; Secure")


def test_the_form_has_a_limit_and_odd_methods_are_refused() -> None:
    client = Client(policy(KEY))
    assert client("POST", "/sign-in", content=b"key=" + b"x" * 10_000).status_code == 413
    assert client("PUT", "/sign-in").status_code == 405
    assert client("POST", "/sign-in", content=b"\xff\x00&&==").status_code == 401


def test_without_keys_there_is_no_sign_in_page() -> None:
    assert Client(policy())("GET", "/sign-in").status_code == 404


@pytest.mark.parametrize(
    "target",
    [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "https://evil.example",
        "javascript:alert(1)",
        "/\t/evil.example",
        "/a\r\nSet-Cookie: x=1",
        "evil.example",
        "",
        " /x",
    ],
)
def test_next_never_leads_elsewhere(target: str) -> None:
    assert local_path(target) == "/"
    response = Client(policy(KEY))("POST", "/sign-in", data={"key": KEY, "next": target})
    assert response.headers["location"] == "/"


def test_next_keeps_local_paths() -> None:
    for target in ("/", "/show?a=b&c=d", "/a/b#c", "/?q=https://x/"):
        assert local_path(target) == target


def test_session_tokens_expire_and_cannot_be_changed() -> None:
    now = 1000.0
    keys = ApiKeys((KEY, OTHER_KEY), clock=lambda: now)
    owner = keys.owner_of_key(KEY)
    assert owner == OWNER
    token = keys.session_token(owner)
    other = keys.owner_of_key(OTHER_KEY)
    assert other is not None
    assert keys.owner_of_session(token) == owner
    _, expiry, signature = token.split(".")
    for forged in (
        f"{other}.{expiry}.{signature}",
        f"{owner}.{int(expiry) + 1}.{signature}",
        f"{owner}.{expiry}.{signature[:-1]}",
        f"{owner}.{expiry}.",
        f"{owner}..",
        token + "0",
        "é." + token,
        "",
        "...",
    ):
        assert keys.owner_of_session(forged) is None, forged
    now = int(expiry) + 1.0
    assert keys.owner_of_session(token) is None


def test_keys_stay_out_of_the_policys_repr() -> None:
    assert KEY not in repr(policy(KEY))


# --- hosts and origins -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:7860",
        "LOCALHOST.",
        "app.localhost:7860",
        "127.0.0.1",
        "127.9.9.9:1",
        "[::1]:7860",
        "studio.example",
        "Studio.Example:8443",
    ],
)
def test_own_hosts_are_answered(host: str) -> None:
    rules = policy(hosts=("127.0.0.1", "studio.example:7860"))
    assert Client(rules)("GET", "/show", headers={"Host": host}).json()["owner"] == "local"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "evil.example@localhost",
        "localhost@evil.example",
        "localhost/evil.example",
        "localhost:7860:1",
        "localhost, evil.example",
        "192.168.1.5",
        "[::ffff:10.0.0.1]",
        "",
        ":7860",
        "[::1",
        "löcalhost",
    ],
)
def test_foreign_hosts_are_refused(host: str) -> None:
    response = Client(policy())("GET", "/show", headers={"Host": host.encode()})
    assert response.status_code == 403
    assert code_of(response) == "host_not_allowed"


def test_forwarded_hosts_count_for_nothing() -> None:
    headers = {
        "Host": "evil.example",
        "X-Forwarded-Host": "localhost",
        "Forwarded": "host=localhost",
    }
    assert Client(policy())("GET", "/show", headers=headers).status_code == 403


def test_with_a_key_the_machines_address_will_do() -> None:
    for host in ("192.168.1.5:7860", "[2001:db8::5]:7860"):
        headers = {**BEARER, "Host": host}
        assert Client(policy(KEY))("GET", "/show", headers=headers).status_code == 200
    assert Client(policy(KEY))("GET", "/show", headers={**BEARER, "Host": "evil.example"}).is_error


def test_open_answers_for_every_host() -> None:
    client = Client(policy(open=True))
    assert client("GET", "/show", headers={"Host": "anything.example"}).status_code == 200
    assert client("GET", "/show", headers={"Host": "a@b"}).status_code == 403


def test_a_tunnel_host_is_admitted_at_run_time_and_needs_the_key() -> None:
    rules = policy(KEY)
    client = Client(rules)
    headers = {"Host": "0123abcd.gradio.live", "Origin": "https://0123abcd.gradio.live"}
    assert client("POST", "/show", headers={**headers, **BEARER}).status_code == 403
    rules.admit_host("https://0123abcd.gradio.live")
    assert client("POST", "/show", headers={**headers, **BEARER}).status_code == 200
    assert client("POST", "/show", headers=headers).status_code == 401
    assert client("GET", "/show", headers={**BEARER, "Host": "x.gradio.live"}).status_code == 403


def test_a_bound_address_of_any_form_is_a_rule() -> None:
    for host in ("::1", "0.0.0.0", "localhost", "Studio.example"):
        policy(hosts=(host,))
    with pytest.raises(ValueError, match="no host name"):
        policy(hosts=("http://a/b",))


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.example",
        "null",
        "",
        "http://127.0.0.1:3000",
        "http://localhost:7860",
        "http://127.0.0.1",
        "http://127.0.0.1:7860.evil.example",
        "http://127.0.0.1:7860@evil.example",
        "chrome-extension://abcdef",
        "file://",
    ],
)
def test_pages_of_other_sites_are_refused(method: str, origin: str) -> None:
    for rules, headers in ((policy(), {}), (policy(KEY), BEARER), (policy(open=True), {})):
        response = Client(rules)(method, "/show", headers={**headers, "Origin": origin})
        assert response.status_code == 403
        assert code_of(response) == "origin_not_allowed"


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://127.0.0.1:7860", "127.0.0.1:7860"),
        ("http://[::1]:7860", "[::1]:7860"),
        ("http://localhost", "localhost:80"),
        ("https://studio.example", "studio.example"),
        ("https://studio.example", "studio.example:443"),
        ("https://studio.example", "127.0.0.1:7860"),  # a proxy that rewrites Host
        (None, "127.0.0.1:7860"),  # a program
    ],
)
def test_the_own_page_may_post(origin: str | None, host: str) -> None:
    rules = policy(hosts=("127.0.0.1", "studio.example"))
    headers = {"Host": host} | ({"Origin": origin} if origin else {})
    assert Client(rules)("POST", "/show", headers=headers).status_code == 200


def test_sign_in_cannot_be_posted_from_elsewhere() -> None:
    headers = {"Origin": "https://evil.example"}
    response = Client(policy(KEY))("POST", "/sign-in", data={"key": KEY}, headers=headers)
    assert response.status_code == 403


# --- owners without keys ---------------------------------------------------------------------


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


# --- bodies ----------------------------------------------------------------------------------


async def chunks(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * 100


@pytest.mark.parametrize("path", ["/show", "/catch"])
def test_bodies_up_to_the_limit_pass_and_larger_ones_do_not(path: str) -> None:
    client = Client(policy())
    assert client("POST", path, content=b"x" * LIMIT).status_code == 200
    assert client("POST", path, content=chunks(LIMIT // 100)).status_code == 200
    for body in (b"x" * (LIMIT + 1), chunks(LIMIT // 100 + 1)):
        response = client("POST", path, content=body)
        assert response.status_code == 413
        assert code_of(response) == "body_too_large"


def run_raw(app: ASGIApp, scope: dict[str, Any], incoming: list[Message]) -> list[Message]:
    """One ASGI call with the given messages; what was sent. Reading more than given fails."""
    sent: list[Message] = []

    async def receive() -> Message:
        return incoming.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))  # type: ignore[arg-type]
    return sent


def raw_scope(kind: str, path: str, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {
        "type": kind,
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "ws" if kind == "websocket" else "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1:7860"), *headers],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 7860),
    } | ({"subprotocols": []} if kind == "websocket" else {"method": "POST"})


def test_an_announced_body_is_refused_unread() -> None:
    app = AccessMiddleware(site(), policy())
    length = (b"content-length", str(2 * 1024**3).encode())
    sent = run_raw(app, raw_scope("http", "/show", length, (b"expect", b"100-continue")), [])
    assert sent[0]["status"] == 413


def test_two_host_headers_are_refused() -> None:
    app = AccessMiddleware(site(), policy())
    sent = run_raw(app, raw_scope("http", "/show", (b"host", b"evil.example")), [])
    assert sent[0]["status"] == 403


def test_lifespan_passes() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    run_raw(AccessMiddleware(app, policy(KEY)), {"type": "lifespan"}, [])
    assert seen == ["lifespan"]


# --- WebSockets ------------------------------------------------------------------------------

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


# --- a path prefix ---------------------------------------------------------------------------


def test_a_root_path_is_kept_in_every_address() -> None:
    def scope(path: str, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
        return raw_scope("http", f"/art{path}", *headers) | {"root_path": "/art", "method": "GET"}

    app = AccessMiddleware(site(), policy(KEY))
    start, _ = run_raw(app, scope("/show", (b"accept", b"text/html")), [])
    assert (b"location", b"/art/sign-in?next=%2Fshow") in start["headers"]
    _, form = run_raw(app, scope("/sign-in"), [])
    assert b'action="/art/sign-in"' in form["body"]
    empty = [{"type": "http.request", "body": b"", "more_body": False}]
    assert run_raw(app, scope("/health/live"), empty)[0]["status"] == 200


# --- a mounted Gradio page -------------------------------------------------------------------


@pytest.fixture(scope="module")
def gradio_app() -> ASGIApp:
    import gradio as gr
    from fastapi import FastAPI

    def who(request: gr.Request) -> str:
        assert request.request is not None
        return str(request.request.state.owner)

    with gr.Blocks(analytics_enabled=False) as blocks:
        shown = gr.Textbox()
        gr.Button("Who").click(who, None, shown, api_name="who")
    app: ASGIApp = gr.mount_gradio_app(FastAPI(), blocks, path="/")
    return app


GRADIO_ROUTES = [
    ("GET", "/config"),
    ("GET", "/gradio_api/info"),
    ("GET", "/gradio_api/heartbeat/abc"),
    ("GET", "/gradio_api/queue/data?session_hash=a"),
    ("GET", "/gradio_api/file=/etc/hostname"),
    ("GET", "/theme.css"),
    ("GET", "/docs"),
    ("GET", "/openapi.json"),
    ("POST", "/gradio_api/upload"),
    ("POST", "/gradio_api/queue/join"),
    ("POST", "/gradio_api/run/who"),
    ("POST", "/gradio_api/call/who"),
]


@pytest.mark.parametrize(("method", "path"), GRADIO_ROUTES)
def test_gradios_own_routes_are_covered(gradio_app: ASGIApp, method: str, path: str) -> None:
    client = Client(policy(KEY), app=gradio_app)
    assert client(method, path).status_code == 401
    assert client(method, path, headers={**BEARER, "Host": "evil.example"}).status_code == 403
    forged = {**BEARER, "Origin": "https://evil.example"}
    assert client(method, path, headers=forged).status_code == 403
    if method == "POST":
        large = client(method, path, headers=BEARER, content=b"x" * (LIMIT + 1))
        assert large.status_code == 413


def test_gradio_handlers_know_the_owner(gradio_app: ASGIApp) -> None:
    client = Client(policy(KEY), app=gradio_app)
    assert client("GET", "/config", headers=BEARER).json()["version"]
    answer = client("POST", "/gradio_api/run/who", headers=BEARER, json={"data": []})
    assert answer.json()["data"] == [OWNER]


def test_gradio_uploads_are_counted_while_they_stream(gradio_app: ASGIApp) -> None:
    client = Client(policy(KEY), app=gradio_app)
    head = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.png"\r\n\r\n'
    tail = b"\r\n--b--\r\n"
    headers = {**BEARER, "Content-Type": "multipart/form-data; boundary=b"}

    async def body(count: int) -> AsyncIterator[bytes]:
        yield head
        async for chunk in chunks(count):
            yield chunk
        yield tail

    ok = client("POST", "/gradio_api/upload", headers=headers, content=body(2))
    assert ok.status_code == 200
    large = client("POST", "/gradio_api/upload", headers=headers, content=body(50))
    assert large.status_code == 413


# --- a real server ---------------------------------------------------------------------------


@contextmanager
def serving(app: ASGIApp) -> Iterator[int]:
    config = uvicorn.Config(app, port=0, log_level="error", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started:
        assert time.monotonic() < deadline, "uvicorn did not start"
        time.sleep(0.01)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(10)


def test_a_client_that_waits_for_100_continue_is_refused_at_once() -> None:
    head = b"POST /show HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2147483648\r\n"
    with serving(AccessMiddleware(site(), policy())) as port:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
            client.sendall(head + b"Expect: 100-continue\r\n\r\n")
            assert client.recv(4096).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_sends_a_huge_body_reads_the_refusal(streamed: bool) -> None:
    def body() -> Iterator[bytes]:
        for _ in range(512):
            yield b"x" * 65536

    content = body() if streamed else b"".join(body())
    with serving(AccessMiddleware(site(), policy())) as port:
        response = httpx.post(f"http://127.0.0.1:{port}/show", content=content, timeout=10)
        assert response.status_code == 413
        assert httpx.get(f"http://127.0.0.1:{port}/show").status_code == 200
