"""Gradio's own routes, mounted, are behind the access middleware too."""

from collections.abc import AsyncIterator

import pytest
from starlette.types import ASGIApp

from tests.studio.access_site import BEARER, KEY, LIMIT, OWNER, Client, chunks, policy


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
