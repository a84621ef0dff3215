"""Pictures that a request names by URL, fetched without opening a way into the machine's network.

`GuardedBackend` is the guard: it resolves a name, refuses unless every address is public, and
connects to the address that it checked. It stands below HTTP, so a redirect or a second DNS answer
cannot pass it, while `Host`, SNI and the certificate check keep the name from the URL. Gradio's
`safehttpx` does less: it follows no redirects, reads the whole answer into memory, drops the port
from `Host`, and lets carrier-grade NAT and IPv6 translations of internal addresses through.

Proxies from the environment are not used, since a proxy would look names up where nobody checks.
"""

import asyncio
import base64
import binascii
import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import httpcore
import httpx
from anyio import CapacityLimiter, to_thread

from studio.errors import BadRequest, TooLarge

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
Allow = Callable[[str], bool]

_RESOLVING: Final = CapacityLimiter(8)
MAX_REDIRECTS: Final = 3
CONNECT_TIMEOUT_S: Final = 5.0
_PARAM: Final = "input"
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HEADERS: Final = ((b"Accept", b"image/*"), (b"Accept-Encoding", b"identity"))
_WAY_OUT: Final = "Or send the picture itself as a data URL (data:image/png;base64,…)."
_NETWORK_ERRORS: Final = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,
    OSError,
)
_WHITE_SPACE: Final = str.maketrans("", "", " \t\r\n")
_PERCENT: Final = (
    ("%20", ""),
    ("%0A", ""),
    ("%0a", ""),
    ("%0D", ""),
    ("%0d", ""),
    ("%2B", "+"),
    ("%2b", "+"),
    ("%2F", "/"),
    ("%2f", "/"),
    ("%3D", "="),
    ("%3d", "="),
)
_DATA_URL: Final = re.compile(r"data:image/[\w.+-]+(?:;[\w.+-]+=[^;,]*)*;base64,", re.IGNORECASE)
# The only IPv6 addresses in use on the internet; this leaves out loopback, link-local, unique
# local, multicast, and IPv4 mapped or translated into IPv6.
_GLOBAL_UNICAST: Final = ipaddress.ip_network("2000::/3")
_NOT_PUBLIC: Final = tuple(
    ipaddress.ip_network(block)
    for block in (
        "2001::/23",  # Teredo and other protocol assignments
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address inside
        "3fff::/20",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.0.0.0/24",  # protocol assignments; a cloud keeps its metadata at .192
        "168.63.129.16/32",  # a public number that a cloud answers from inside
    )
)


async def fetch_picture(
    url: str,
    *,
    max_bytes: int,
    timeout_s: float,
    resolve: Resolve | None = None,
    allow: Allow | None = None,
) -> bytes:
    """The bytes behind an http(s) URL; what they are is for `load_picture` to say.

    `timeout_s` covers everything: names, redirects, the answer. Raises BadRequest that names the
    cause. Tests put their own `resolve` and `allow` in; the guard's are the defaults.
    """
    backend = GuardedBackend(resolve or resolve_host, allow or is_public)
    try:
        async with asyncio.timeout(timeout_s):
            return await _follow(_parsed(url), backend, max_bytes)
    except TimeoutError as error:
        raise _refused(f"The picture did not arrive within {timeout_s:g} s.", "timeout") from error
    except _NETWORK_ERRORS as error:
        cause = str(error) or type(error).__name__
        raise _refused(f"The picture's server could not be read ({cause}).", "failed") from error


def decode_data_url(url: str, *, max_bytes: int) -> bytes:
    """The bytes of `data:image/…;base64,…`. Raises BadRequest when it is none or is too long."""
    head = _DATA_URL.match(url)
    if head is None:
        raise BadRequest(
            "The data URL must begin with data:image/<type>;base64, and hold base64 after it.",
            param=_PARAM,
            code="bad_data_url",
        )
    if (len(url) - head.end()) * 3 // 4 > max_bytes + 2:  # before any copy is made
        raise _too_large(max_bytes)
    payload = url[head.end() :].translate(_WHITE_SPACE)
    for escaped, character in _PERCENT:  # all that base64 needs; unquoting megabytes takes seconds
        payload = payload.replace(escaped, character)
    payload = payload.rstrip("=")
    try:
        data = base64.b64decode(payload + "=" * (-len(payload) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(
            "The data URL holds something that is not base64. Encode the whole file as base64.",
            param=_PARAM,
            code="bad_data_url",
        ) from error
    if len(data) > max_bytes:
        raise _too_large(max_bytes)
    return data


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the internet, and to no network of this machine's own."""
    ip = ipaddress.ip_address(address)
    if ip.version == 6 and ip not in _GLOBAL_UNICAST:
        return False
    return ip.is_global and not ip.is_multicast and not any(ip in block for block in _NOT_PUBLIC)


async def resolve_host(host: str, port: int) -> Sequence[str]:
    """All addresses of a name, by the system's resolver. Raises OSError when there is none."""
    # Threads of its own: slow names must not hold up what else waits for one.
    found = await to_thread.run_sync(
        lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM),
        abandon_on_cancel=True,
        limiter=_RESOLVING,
    )
    return list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects to checked addresses only."""

    def __init__(self, resolve: Resolve, allow: Allow) -> None:
        self._resolve = resolve
        self._allow = allow
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 (the library's signature)
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        failure: Exception | None = None
        for address in await self._checked_addresses(host, port):
            try:
                return await self._network.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise httpcore.ConnectError(f"no connection to {host}") from failure

    async def _checked_addresses(self, host: str, port: int) -> Sequence[str]:
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise _refused(f"The host {host} could not be found.", "unknown_host") from error
        # One internal address is enough: a mixed answer is how DNS rebinding begins.
        if not addresses or not all(self._allow(address) for address in addresses):
            raise _refused(
                f"The host {host} is on a private or internal network, which the studio "
                "does not read from.",
                "not_public",
            )
        return addresses


async def _follow(url: httpx.URL, backend: GuardedBackend, max_bytes: int) -> bytes:
    for _ in range(MAX_REDIRECTS + 1):
        answer = await _get(url, backend, max_bytes)
        if isinstance(answer, bytes):
            return answer
        url = answer
    raise _refused(f"The URL redirects more than {MAX_REDIRECTS} times.", "too_many_redirects")


async def _get(url: httpx.URL, backend: GuardedBackend, max_bytes: int) -> bytes | httpx.URL:
    """One request: the body, or where it redirects to."""
    context = httpx.create_ssl_context() if url.scheme == "https" else None
    target = httpcore.URL(
        scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
    )
    headers = ((b"Host", url.netloc), *_HEADERS)
    extensions = {"timeout": {"connect": CONNECT_TIMEOUT_S}}
    async with (
        httpcore.AsyncConnectionPool(ssl_context=context, network_backend=backend) as pool,
        pool.stream("GET", target, headers=headers, extensions=extensions) as response,
    ):
        fields = httpx.Headers(response.headers)
        if response.status in _REDIRECTS and "location" in fields:
            return _parsed(fields["location"], base=url)
        if response.status != 200:
            raise _refused(f"The picture's server answered {response.status}.", "bad_status")
        return await _body(response, fields, max_bytes)


async def _body(response: httpcore.Response, fields: httpx.Headers, max_bytes: int) -> bytes:
    if fields.get("content-encoding", "identity").lower() != "identity":
        # Unpacked, it could be any size; pictures are compressed already.
        raise _refused("The picture's server sent a compressed answer.", "compressed")
    length = fields.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise _too_large(max_bytes)
    data = bytearray()
    async for chunk in response.aiter_stream():
        data += chunk
        if len(data) > max_bytes:
            raise _too_large(max_bytes)
    return bytes(data)


def _parsed(url: str, base: httpx.URL | None = None) -> httpx.URL:
    try:
        parsed = base.join(url) if base else httpx.URL(url)
        is_web = parsed.scheme in ("http", "https") and bool(parsed.host)
    except (httpx.InvalidURL, ValueError) as error:  # a host that is no IDNA is a ValueError
        raise _refused("The picture's URL cannot be read.", "bad_url") from error
    if not is_web:
        raise _refused("Pictures are read from http and https URLs only.", "bad_url")
    return parsed


def _refused(cause: str, code: str) -> BadRequest:
    return BadRequest(
        f"{cause} Check the URL. {_WAY_OUT}", param=_PARAM, code=f"picture_url_{code}"
    )


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(
        f"The picture is larger than {max_bytes:,} bytes. Send a smaller file, such as a JPEG.",
        param=_PARAM,
        code="picture_too_large",
    )
