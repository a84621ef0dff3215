"""Who may come in: one middleware before page, uploads, API, files, docs and WebSockets.

In this order: Host, Origin, key, body size. Dependencies of the application would not do: they do
not cover a mounted page. Loopback is no proof of trust, since the visitors of a share tunnel and of
any proxy on this machine come from 127.0.0.1; only Host and the key tell them apart.
"""

from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from studio.api.body_limit import call_counted, check_announced
from studio.api.cookies import (
    SESSION_COOKIE,
    VISITOR_COOKIE,
    VISITOR_S,
    cookie_header,
    is_https,
    new_visitor,
    owner_of_visitor,
)
from studio.api.hosts import host_name, is_ip, is_loopback, is_same_host, origin_name
from studio.api.keys import ApiKeys, FailureLimit
from studio.api.sign_in import SIGN_IN, SIGN_OUT, SignIn, sign_in_location, too_many_tries
from studio.errors import Forbidden, StudioError, TooLarge, Unauthorized, error_body

HEALTH_PATHS: Final = frozenset({"/health/live", "/health/ready"})
LOCAL: Final = "local"
ANONYMOUS: Final = "anonymous"
_POLICY_VIOLATION: Final = 1008  # RFC 6455, section 7.4.1


@dataclass(frozen=True)
class AccessPolicy:
    """The rules. Without keys and not `open`, only this machine's own names are answered."""

    api_keys: tuple[str, ...] = field(repr=False)
    open: bool  # other hosts and a share link need no key
    allowed_hosts: tuple[str, ...]  # the bound address and `--allowed-host`
    max_body_bytes: int
    _hosts: set[str] = field(init=False, repr=False, default_factory=set)

    def __post_init__(self) -> None:
        for host in self.allowed_hosts:
            self.admit_host(host)

    def admit_host(self, host: str) -> None:
        """Answer for one more host (`name`, `name:port` or `https://name`): a share tunnel's."""
        name = host.lower() if is_ip(host) else origin_name(host) or host_name(host)
        if name is None:
            raise ValueError(f"{host!r} is no host name")
        self._hosts.add(name)

    def admits_host(self, host: str) -> bool:
        """Whether a Host header names this studio.

        With a key, any IP address will do: DNS rebinding needs a name.
        """
        name = host_name(host)
        if name is None:
            return False
        by_address = bool(self.api_keys) and is_ip(name)
        return self.open or by_address or is_loopback(name) or name in self._hosts

    def admits_origin(self, origin: str, host: str) -> bool:
        """Whether a page from `origin` may call: the studio's own, or one under an allowed name.

        Loopback names count only with the same port: other programs of this machine serve pages
        there too.
        """
        name = origin_name(origin)
        if name is None:
            return False
        return is_same_host(origin, host) or (name in self._hosts and not is_loopback(name))


@dataclass(frozen=True, slots=True)
class _Visit:
    owner: str
    new_cookie: str | None = None


class AccessMiddleware:
    """Lets a request in with `scope["state"]["owner"]` set, or refuses it. Pure ASGI."""

    def __init__(self, app: ASGIApp, policy: AccessPolicy) -> None:
        self._app = app
        self._policy = policy
        self._keys = ApiKeys(policy.api_keys)
        self._limit = FailureLimit()
        self._sign_in = SignIn(self._keys, self._limit)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        path = _route_path(scope)
        try:
            self._check_site(connection)
            if self._keys and scope["type"] == "http" and path in (SIGN_IN, SIGN_OUT):
                request = Request(scope, receive)
                response = await self._sign_in.answer(request, path, _client(connection))
                await response(scope, receive, send)
                return
            visit = self._visit(connection, path)
            check_announced(connection.headers.get("content-length"), self._policy.max_body_bytes)
        except StudioError as error:
            await _answer(_refusal(connection, path, error), scope, receive, send)
            return
        await self._enter(visit, connection, receive, send)

    def _check_site(self, connection: HTTPConnection) -> None:
        hosts = connection.headers.getlist("host")
        if len(hosts) != 1 or not self._policy.admits_host(hosts[0]):
            raise Forbidden(
                "This studio does not answer for the host name in the request. Open it by its "
                "address, or start it with --allowed-host NAME.",
                code="host_not_allowed",
            )
        for origin in connection.headers.getlist("origin"):
            if not self._policy.admits_origin(origin, hosts[0]):
                raise Forbidden(
                    "This request comes from a page of another site, and is refused for safety. "
                    "Behind a proxy, start the studio with --allowed-host NAME.",
                    code="origin_not_allowed",
                )

    def _visit(self, connection: HTTPConnection, path: str) -> _Visit:
        if path in HEALTH_PATHS and connection.scope["type"] == "http":
            return _Visit(ANONYMOUS)
        if self._keys:
            return _Visit(self._key_owner(connection))
        return _open_visit(connection, path) if self._policy.open else _Visit(LOCAL)

    def _key_owner(self, connection: HTTPConnection) -> str:
        """The owner by bearer key or session cookie. Raises Unauthorized, TooManyRequests."""
        key = _bearer(connection)
        if key is None:
            owner = self._keys.owner_of_session(connection.cookies.get(SESSION_COOKIE, ""))
            if owner is None:
                raise _no_key("This studio needs an API key.")
            return owner
        client = _client(connection)
        wait_s = self._limit.wait_s(client)
        if wait_s:
            raise too_many_tries(wait_s)
        owner = self._keys.owner_of_key(key)
        if owner is None:
            self._limit.record(client)
            raise _no_key("The API key is not a key of this studio.")
        return owner

    async def _enter(
        self, visit: _Visit, connection: HTTPConnection, receive: Receive, send: Send
    ) -> None:
        state = {**connection.scope.get("state", {}), "owner": visit.owner}
        scope = {**connection.scope, "state": state}
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        if visit.new_cookie:
            send = _setting_cookie(send, visit.new_cookie)

        async def refuse(error: TooLarge) -> None:
            await _json(error)(scope, receive, send)

        limit = self._policy.max_body_bytes
        await call_counted(self._app, scope, receive, send, limit, refuse)


def _open_visit(connection: HTTPConnection, path: str) -> _Visit:
    owner = owner_of_visitor(connection.cookies.get(VISITOR_COOKIE, ""))
    if owner is not None:
        return _Visit(owner)
    visitor = new_visitor()
    if not _is_page_view(connection):
        # Programs without a cookie share an owner and know their jobs by id. To the page's handlers
        # and to lists each request is a stranger: nobody may look through the others' pictures.
        is_stranger = "/gradio_api/" in path or path == "/v1/images"
        return _Visit(owner_of_visitor(visitor) or ANONYMOUS if is_stranger else ANONYMOUS)
    cookie = cookie_header(VISITOR_COOKIE, visitor, VISITOR_S, is_secure=is_https(connection))
    return _Visit(owner_of_visitor(visitor) or ANONYMOUS, cookie)


def _setting_cookie(send: Send, cookie: str) -> Send:
    async def send_with_cookie(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if headers.get("content-type", "").startswith("text/html"):
                headers.append("Set-Cookie", cookie)
        await send(message)

    return send_with_cookie


def _refusal(connection: HTTPConnection, path: str, error: StudioError) -> Response:
    is_unsigned = isinstance(error, Unauthorized) and _is_page_view(connection)
    if is_unsigned and _bearer(connection) is None:
        location = sign_in_location(connection, path)
        return RedirectResponse(location, 303, headers={"Cache-Control": "no-store"})
    return _json(error)


async def _answer(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "http" or "websocket.http.response" in scope.get("extensions", {}):
        await response(scope, receive, send)
        return
    await receive()  # websocket.connect; a close before the accept becomes HTTP 403
    await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": "refused"})


def _json(error: StudioError) -> Response:
    return JSONResponse(error_body(error), error.status, headers=error.headers)


def _no_key(cause: str) -> Unauthorized:
    return Unauthorized(
        f"{cause} Send the header 'Authorization: Bearer KEY', or open {SIGN_IN} in a browser.",
        headers={"WWW-Authenticate": 'Bearer realm="studio"'},
    )


def _bearer(connection: HTTPConnection) -> str | None:
    """The key of a bearer header; other schemes may be those of a proxy in front."""
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def _is_page_view(connection: HTTPConnection) -> bool:
    is_get = connection.scope.get("method") in ("GET", "HEAD")
    return is_get and "text/html" in connection.headers.get("accept", "")


def _client(connection: HTTPConnection) -> str:
    """Whom wrong keys are counted against: tunnel visitors share an address, but not its Host."""
    address = connection.client.host if connection.client else ""
    return f"{address} {host_name(connection.headers.get('host', ''))}"


def _route_path(scope: Scope) -> str:
    path, root = str(scope["path"]), str(scope.get("root_path", "")).rstrip("/")
    return path[len(root) :] if root and path.startswith(root + "/") else path
