"""Text beside pictures on the other routes: models, readiness, unknown names."""

from pathlib import Path

import httpx
import pytest

from pipelines.text.requests import Speculation
from studio.engine.protocol import EngineStatus
from studio.engine.text_protocol import TextModel
from studio.jobs import Jobs
from studio.library import Library
from studio.texts import Texts
from tests.fake_engine import FakeEngine
from tests.fake_text_engine import FakeTextEngine
from tests.studio.api.conftest import TextStudio

OFF = {"status": "off", "detail": "", "model": None, "speculation": None}


def test_models_that_write_are_listed_last(text_http: httpx.Client) -> None:
    listed = text_http.get("/v1/models").json()["data"]
    assert [entry["id"] for entry in listed] == ["tiny", "tiny-writer"]
    entry = text_http.get("/v1/models/tiny-writer").json()
    assert entry == listed[1]
    assert entry == {
        "id": "tiny-writer",
        "object": "model",
        "created": 0,
        "owned_by": "tiny-writer",
        "text": {
            "context_tokens": 512,
            "chats": True,
            "completes": True,
            "adapters": ["pirate"],
        },
    }
    assert "image" in text_http.get("/v1/models/tiny").json()
    answer = text_http.get("/v1/models/tiny-writer/world")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_world")


def test_an_unknown_model_is_told_both_kinds(text_http: httpx.Client) -> None:
    answers = [
        text_http.get("/v1/models/other"),
        text_http.get("/v1/models/other/world"),
        text_http.post("/v1/responses", json={"model": "other", "input": "x"}),
        text_http.post("/v1/responses", json={"model": "other", "input": "x", "stream": True}),
    ]
    for answer in answers:
        assert answer.status_code == 404
        error = answer.json()["error"]
        assert (error["param"], error["code"]) == ("model", "model_not_found")
        assert "pictures with 'tiny' and writes text with 'tiny-writer'" in error["message"]


def test_a_model_that_is_not_known_yet_is_neither_listed_nor_missing(
    text_http: httpx.Client, text_studio: TextStudio
) -> None:
    """An engine that looks for its server has no name for what that serves."""
    text_studio.engine.model = TextModel("")
    text_studio.engine.status = EngineStatus("starting", "looking for it")
    assert [entry["id"] for entry in text_http.get("/v1/models").json()["data"]] == ["tiny"]
    for name in ("", "some-model"):
        answer = text_http.post("/v1/responses", json={"model": name, "input": "x"})
        assert answer.status_code == 503
        assert "looking for it" in answer.json()["error"]["message"]
    assert text_http.get("/health/ready").json()["text"] == OFF | {
        "status": "starting",
        "detail": "looking for it",
    }


def test_a_studio_without_text_lists_pictures_only(http: httpx.Client) -> None:
    assert [entry["id"] for entry in http.get("/v1/models").json()["data"]] == ["tiny"]
    answer = http.post("/v1/responses", json={"model": "tiny-writer", "input": "x"})
    assert answer.status_code == 404
    assert "text" not in answer.json()["error"]["message"]
    assert http.get("/health/ready").json()["text"] == OFF


def test_ready_tells_of_text(text_http: httpx.Client, text_studio: TextStudio) -> None:
    text_studio.engine.speculation = Speculation(10, 30, 15)
    assert text_http.get("/health/ready").json()["text"] == {
        "status": "ready",
        "detail": "",
        "model": "tiny-writer",
        "speculation": {
            "steps": 10,
            "drafted_tokens": 30,
            "accepted_tokens": 15,
            "acceptance_rate": 0.5,
            "tokens_per_step": 2.5,
        },
    }


@pytest.mark.parametrize("state", ["starting", "loading", "failed"])
def test_text_does_not_decide_whether_pictures_can_be_made(
    text_http: httpx.Client, text_studio: TextStudio, state: str
) -> None:
    text_studio.engine.status = EngineStatus(state, "weights", 0.5)  # type: ignore[arg-type]
    answer = text_http.get("/health/ready")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")
    told = answer.json()["text"]
    assert (told["status"], told["detail"], told["fraction"]) == (state, "weights", 0.5)
    text_studio.pictures.become("loading", "transformer")
    text_studio.engine.status = EngineStatus("ready")
    assert text_http.get("/health/ready").status_code == 503


@pytest.mark.parametrize(("state", "code"), [("ready", 200), ("loading", 503)])
def test_text_decides_where_it_is_all_there_is(tmp_path: Path, state: str, code: int) -> None:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from studio.api.health import health_router

    status = EngineStatus(state)  # type: ignore[arg-type]
    jobs = Jobs([], Library(tmp_path), FakeEngine())
    jobs.start()
    app = FastAPI()
    app.include_router(health_router(jobs, Texts(FakeTextEngine(status=status))))
    answer = TestClient(app).get("/health/ready")
    assert (answer.status_code, answer.json()["model"]) == (code, None)
    jobs.close()
