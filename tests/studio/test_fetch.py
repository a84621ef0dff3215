"""The guard with its own resolver, and a real loopback server with the guard's rule replaced."""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from studio.errors import BadRequest, StudioError, TooLarge
from studio.fetch import MAX_REDIRECTS, decode_data_url, fetch_picture, is_public, resolve_host

PICTURE = bytes(range(256)) * 8
OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"

Write = Callable[[bytes], Awaitable[None]]
Answer = Callable[[str, Write], Awaitable[None]]


class Server:
    """A loopback HTTP server; `answer(head of the request, write)` writes the raw response."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.heads: list[str] = []

    def url(self, path: str = "/a.png", host: str = "pictures.example") -> str:
        return f"http://{host}:{self.port}{path}"


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Server]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(data: bytes) -> None:
            writer.write(data)
            await writer.drain()

        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            server.heads.append(head)
            await answer(head, write)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(handle, "127.0.0.1", 0)
    server = Server(listener.sockets[0].getsockname()[1])
    try:
        yield server
    finally:
        listener.close()


def answering(data: bytes) -> Answer:
    async def answer(head: str, write: Write) -> None:
        await write(data)

    return answer


async def to_loopback(host: str, port: int) -> Sequence[str]:
    """`pictures.example` stands for a public host; other names resolve as they really do."""
    return ["127.0.0.1"] if host.endswith(".example") else await resolve_host(host, port)


async def fetch(
    url: str, *, only: str = "127.0.0.1", max_bytes: int = 10_000, timeout_s: float = 5
) -> bytes:
    return await fetch_picture(
        url,
        max_bytes=max_bytes,
        timeout_s=timeout_s,
        resolve=to_loopback,
        allow=lambda address: address == only,
    )


def refusal(url: str, answer: Answer | None = None, **limits: float) -> StudioError:
    async def attempt() -> None:
        async with serving(answer or answering(b"")) as server:
            await fetch(url.replace("PORT", str(server.port)), **limits)  # type: ignore[arg-type]

    with pytest.raises((BadRequest, TooLarge)) as caught:
        asyncio.run(attempt())
    assert caught.value.param == "input"
    assert caught.value.code is not None
    return caught.value


# --- which addresses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "100.100.100.200",
        "192.0.0.192",
        "168.63.129.16",
        "192.0.2.1",
        "192.88.99.1",
        "198.18.0.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:8.8.8.8",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "2001::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "3fff::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
    ],
)
def test_internal_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.215.14", "172.32.0.1", "2606:4700::1111"])
def test_public_addresses_are(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "017700000001",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "169.254.169.254",
        "10.0.0.8",
        "0",
    ],
)
def test_the_real_guard_refuses_every_spelling_of_an_internal_host(host: str) -> None:
    async def attempt() -> Server:
        async with serving(answering(OK + b"\r\n")) as server:
            with pytest.raises(BadRequest) as caught:
                await fetch_picture(server.url(host=host), max_bytes=100, timeout_s=5)
            assert caught.value.code in ("picture_url_not_public", "picture_url_bad_url")
            return server

    assert asyncio.run(attempt()).heads == []  # nothing was ever sent


@pytest.mark.parametrize(
    "answers", [["10.1.2.3"], ["93.184.215.14", "127.0.0.1"], ["::ffff:10.0.0.1"], []]
)
def test_dns_that_answers_with_an_internal_address(answers: list[str]) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        return answers

    with pytest.raises(BadRequest, match="is on a private") as caught:
        asyncio.run(
            fetch_picture("http://rebound.example/", max_bytes=9, timeout_s=5, resolve=resolve)
        )
    assert caught.value.code == "picture_url_not_public"


def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    """A resolver that changes its answer is asked once for a connection."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["10.0.0.1"]

    async def attempt() -> bytes:
        async with serving(answering(OK + b"\r\n" + PICTURE)) as server:
            return await fetch_picture(
                server.url(), max_bytes=10_000, timeout_s=5, resolve=resolve, allow=lambda _: True
            )

    assert asyncio.run(attempt()) == PICTURE
    assert asked == ["pictures.example"]


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://a.example/b", "gopher://a/", "http://", "a.png", "http://a:b:c/"],
)
def test_other_schemes_and_broken_urls(url: str) -> None:
    assert refusal(url).code == "picture_url_bad_url"


def test_an_unknown_host_is_named() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    with pytest.raises(BadRequest, match=r"nowhere\.example could not be found"):
        asyncio.run(
            fetch_picture("http://nowhere.example/", max_bytes=9, timeout_s=5, resolve=resolve)
        )


# --- the answer ------------------------------------------------------------------------------


def test_a_picture_arrives_with_the_right_host_header() -> None:
    async def attempt() -> Server:
        length = f"Content-Length: {len(PICTURE)}\r\n\r\n".encode()
        async with serving(answering(OK + length + PICTURE)) as server:
            assert await fetch(server.url("/a%20b.png?size=2")) == PICTURE
            return server

    server = asyncio.run(attempt())
    assert server.heads[0].startswith("GET /a%20b.png?size=2 HTTP/1.1\r\n")
    assert f"Host: pictures.example:{server.port}\r\n" in server.heads[0]


def test_redirects_are_followed_and_checked_each_time() -> None:
    async def answer(head: str, write: Write) -> None:
        if head.startswith("GET /start"):
            await write(b"HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n")
        else:
            await write(OK + b"\r\n" + PICTURE)

    async def attempt() -> bytes:
        async with serving(answer) as server:
            return await fetch(server.url("/start"))

    assert asyncio.run(attempt()) == PICTURE


@pytest.mark.parametrize(
    "target", ["http://127.0.0.2:PORT/", "http://[::1]:PORT/", "http://169.254.169.254/latest/"]
)
def test_a_redirect_to_an_internal_address_is_refused(target: str) -> None:
    """127.0.0.1 plays the public address here, so each target is what the guard must catch."""

    async def answer(head: str, write: Write) -> None:
        host_line = next(line for line in head.splitlines() if line.startswith("Host:"))
        where = target.replace("PORT", host_line.rpartition(":")[2])
        await write(f"HTTP/1.1 302 Found\r\nLocation: {where}\r\n\r\n".encode())

    assert refusal("http://pictures.example:PORT/", answer).code == "picture_url_not_public"


def test_a_redirect_to_a_file_is_refused() -> None:
    answer = answering(b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n")
    assert refusal("http://pictures.example:PORT/", answer).code == "picture_url_bad_url"


def test_redirects_end() -> None:
    answer = answering(b"HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n")
    error = refusal("http://pictures.example:PORT/", answer)
    assert error.code == "picture_url_too_many_redirects"
    assert str(MAX_REDIRECTS) in error.message


@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 2000000000\r\n",  # announced
        b"",  # endless, no length
        b"Transfer-Encoding: chunked\r\n",
    ],
)
def test_too_large_an_answer_is_cut_off(headers: bytes) -> None:
    sent = 0

    async def answer(head: str, write: Write) -> None:
        nonlocal sent
        await write(OK + headers + b"\r\n")
        block = b"x" * 4096
        while sent < 64_000_000:
            await write(b"1000\r\n" + block + b"\r\n" if b"chunked" in headers else block)
            sent += len(block)

    error = refusal("http://pictures.example:PORT/", answer, max_bytes=10_000)
    assert error.code == "picture_too_large"
    assert "10,000 bytes" in error.message
    assert sent < 32_000_000


def test_a_length_that_lies_low_adds_nothing() -> None:
    async def attempt() -> bytes:
        async with serving(answering(OK + b"Content-Length: 4\r\n\r\n" + PICTURE)) as server:
            return await fetch(server.url())

    assert asyncio.run(attempt()) == PICTURE[:4]


def test_a_cut_off_answer_is_an_error() -> None:
    answer = answering(OK + b"Content-Length: 9000\r\n\r\n" + PICTURE)
    assert refusal("http://pictures.example:PORT/", answer).code == "picture_url_failed"


@pytest.mark.parametrize("drip", [b"HTTP/1.1 200", OK + b"\r\nx"])
def test_a_slow_server_runs_into_the_total_time(drip: bytes) -> None:
    async def answer(head: str, write: Write) -> None:
        await write(drip)
        for _ in range(100):  # each read succeeds quickly: only a total limit ends this
            await asyncio.sleep(0.02)
            await write(b"x")

    error = refusal("http://pictures.example:PORT/", answer, timeout_s=0.2)
    assert error.code == "picture_url_timeout"
    assert "0.2 s" in error.message


def test_a_compressed_answer_is_refused() -> None:
    answer = answering(OK + b"Content-Encoding: gzip\r\n\r\n" + PICTURE)
    assert refusal("http://pictures.example:PORT/", answer).code == "picture_url_compressed"


@pytest.mark.parametrize("status", [b"404 Not Found", b"500 Oops", b"204 Nothing", b"302 Found"])
def test_other_statuses_are_named(status: bytes) -> None:
    error = refusal("http://pictures.example:PORT/", answering(b"HTTP/1.1 " + status + b"\r\n\r\n"))
    assert error.code == "picture_url_bad_status"
    assert status[:3].decode() in error.message


def test_garbage_and_a_closed_port() -> None:
    assert refusal("http://pictures.example:PORT/", answering(b"hi\r\n\r\n")).code is not None
    assert refusal("http://pictures.example:1/").code == "picture_url_failed"


# --- data URLs -------------------------------------------------------------------------------


def data_url(data: bytes, head: str = "data:image/png;base64,") -> str:
    return head + base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "head",
    [
        "data:image/png;base64,",
        "DATA:IMAGE/PNG;BASE64,",
        "data:image/svg+xml;charset=utf-8;base64,",
        "data:image/x-icon;base64,",
    ],
)
def test_data_urls(head: str) -> None:
    assert decode_data_url(data_url(PICTURE, head), max_bytes=len(PICTURE)) == PICTURE


@pytest.mark.parametrize("size", range(5))
def test_data_urls_with_line_breaks_escapes_and_no_padding(size: int) -> None:
    data = b"\xfb\xff\xfe\x00\x01"[:size]
    url = data_url(data)
    assert decode_data_url(url.rstrip("="), max_bytes=9) == data
    assert decode_data_url(url.replace("+", "%2B").replace("/", "/"), max_bytes=9) == data
    assert decode_data_url(url + "\r\n ", max_bytes=9) == data


@pytest.mark.parametrize(
    "url",
    [
        "",
        "data:,hello",
        "data:text/html;base64,aGk=",
        "data:image/png,raw",
        "data:image/png;base64",
        "data:image/png;base64,a",
        "data:image/png;base64,no-base64!",
        "data:image/png;base64,äöü",
    ],
)
def test_bad_data_urls(url: str) -> None:
    with pytest.raises(BadRequest, match="base64") as caught:
        decode_data_url(url, max_bytes=100)
    assert caught.value.code == "bad_data_url"
    assert caught.value.param == "input"


def test_a_data_url_over_the_limit() -> None:
    assert decode_data_url(data_url(b"x" * 100), max_bytes=100) == b"x" * 100
    for size in (101, 103, 10_000):
        with pytest.raises(TooLarge, match="larger than 100 bytes"):
            decode_data_url(data_url(b"x" * size), max_bytes=100)


def test_a_long_percent_encoded_data_url_is_refused_quickly() -> None:
    """Unquoting 28 MB of it took the server 14 s."""
    began = time.monotonic()
    with pytest.raises(BadRequest, match="not base64"):
        decode_data_url("data:image/png;base64," + "%41" * 2_000_000, max_bytes=20_000_000)
    assert time.monotonic() - began < 1.0


def test_a_data_url_may_escape_the_signs_of_base64_and_break_lines() -> None:
    data = bytes(range(256))
    text = base64.b64encode(data).decode().replace("+", "%2B").replace("/", "%2f")
    url = "data:image/png;base64," + "\r\n".join([text[:80], text[80:]]).replace("=", "%3D")
    assert decode_data_url(url, max_bytes=300) == data


def test_a_host_that_is_no_idna_is_a_bad_url() -> None:
    with pytest.raises(BadRequest) as caught:
        asyncio.run(fetch_picture("http://xn--/", max_bytes=10, timeout_s=1))
    assert caught.value.code == "picture_url_bad_url"
