"""Bodies over the limit, announced and streamed, before an application and a real server."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
import uvicorn
from starlette.types import ASGIApp

from studio.api.access import AccessMiddleware
from tests.studio.access_site import (
    LIMIT,
    Client,
    chunks,
    code_of,
    policy,
    raw_scope,
    run_raw,
    site,
)


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


@pytest.mark.parametrize("path", ["/show", "/catch"])
def test_bodies_up_to_the_limit_pass_and_larger_ones_do_not(path: str) -> None:
    client = Client(policy())
    assert client("POST", path, content=b"x" * LIMIT).status_code == 200
    assert client("POST", path, content=chunks(LIMIT // 100)).status_code == 200
    for body in (b"x" * (LIMIT + 1), chunks(LIMIT // 100 + 1)):
        response = client("POST", path, content=body)
        assert response.status_code == 413
        assert code_of(response) == "body_too_large"


def test_an_announced_body_is_refused_unread() -> None:
    app = AccessMiddleware(site(), policy())
    length = (b"content-length", str(2 * 1024**3).encode())
    sent = run_raw(app, raw_scope("http", "/show", length, (b"expect", b"100-continue")), [])
    assert sent[0]["status"] == 413


def test_a_client_that_waits_for_100_continue_is_refused_at_once() -> None:
    head = b"POST /show HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2147483648\r\n"
    with (
        serving(AccessMiddleware(site(), policy())) as port,
        socket.create_connection(("127.0.0.1", port), timeout=5) as client,
    ):
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
