"""Models, health, version, unknown routes; and no handler that blocks the loop."""

import ast
from pathlib import Path

import httpx

from tests.running import RunningStudio

API = Path(__file__).resolve().parents[3] / "studio" / "api"


def test_models(http: httpx.Client) -> None:
    models = http.get("/v1/models").json()
    assert [model["id"] for model in models["data"]] == ["tiny"]
    assert http.get("/v1/models/tiny").json()["image"]["size_multiple"] == 16
    assert http.get("/v1/models/black-forest-labs/FLUX.1-dev").status_code == 404


def test_health_and_version(http: httpx.Client) -> None:
    assert http.get("/health/live").status_code == 200
    assert http.get("/health/ready").json()["status"] == "ready"
    assert http.get("/version").json()["version"]


def test_ready_is_about_the_worker(http: httpx.Client, studio: RunningStudio) -> None:
    studio.engine.become("loading", "transformer")
    answer = http.get("/health/ready")
    assert answer.status_code == 503
    assert answer.json()["detail"] == "transformer"
    assert http.get("/health/live").status_code == 200
    studio.engine.become("ready")


def test_unknown_routes_are_errors_of_the_same_shape(http: httpx.Client) -> None:
    answer = http.get("/v1/nothing")
    assert answer.status_code == 404
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    answer = http.delete("/v1/models")
    assert answer.status_code == 404
    assert "DELETE /v1/models" in answer.json()["error"]["message"]
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


def test_a_handler_that_awaits_nothing_is_a_plain_function() -> None:
    """Health answers from memory and is `async` on purpose; so are the model's constants."""
    for path in API.glob("*.py"):
        if path.stem in ("health", "models", "failures", "access"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.AsyncFunctionDef):
                awaits = any(
                    isinstance(inner, ast.Await | ast.AsyncFor) for inner in ast.walk(node)
                )
                assert awaits, f"{path.name}: {node.name} awaits nothing"
