"""Models, health, version, unknown routes; and no handler that blocks the loop."""

import ast
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.fake_engine import FakeEngine
from tests.running import RunningStudio
from tests.studio.conftest import SPEC
from tests.worlds import small_world, write_world

API = Path(__file__).resolve().parents[3] / "studio" / "api"


def test_models(http: httpx.Client) -> None:
    models = http.get("/v1/models").json()
    assert [model["id"] for model in models["data"]] == ["tiny"]
    image = http.get("/v1/models/tiny").json()["image"]
    assert (image["size_multiple"], image["default_cache"]) == (16, "off")
    assert "balanced" in image["caches"]
    assert (image["negative_prompt"], image["takes_mask"]) == ("true_cfg_scale", False)
    assert http.get("/v1/models/tiny").json()["weights_gb"] == 0.02
    assert http.get("/v1/models/black-forest-labs/FLUX.1-dev").status_code == 404


def test_what_a_model_draws_is_told_where_it_is_known(http: httpx.Client, tmp_path: Path) -> None:
    assert http.get("/v1/models/tiny").json()["image"]["has_world"] is False
    answer = http.get("/v1/models/tiny/world")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_world")
    source = write_world(tmp_path / "model", small_world())
    spec = replace(SPEC, name="a/painter", source=str(source))
    with RunningStudio(tmp_path / "data", FakeEngine(), specs=[spec]) as studio:
        models = f"{studio.url}/v1/models"
        assert (
            httpx.get(f"{models}/a/painter", trust_env=False).json()["image"]["has_world"] is True
        )
        assert httpx.get(f"{models}/a/painter/world", trust_env=False).json() == small_world()
        answer = httpx.get(f"{models}/other/world", trust_env=False)
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")


def test_health_and_version(http: httpx.Client) -> None:
    assert http.get("/health/live").status_code == 200
    assert http.get("/health/ready").json()["status"] == "ready"
    assert http.get("/version").json()["version"]


def test_ready_counts_the_steps_of_finished_pictures(http: httpx.Client) -> None:
    def counts() -> tuple[int, int]:
        status = http.get("/health/ready").json()
        return status["steps_computed"], status["steps_predicted"]

    before = counts()
    image = {"cache": "fast", "steps": 10, "num_images": 2}
    body = {"model": "tiny", "input": "x", "provider_options": {"image": image}}
    parts = http.post("/v1/responses", json=body).json()["output"][0]["content"]
    for place, key in enumerate(("steps_computed", "steps_predicted")):
        made = sum(part[key] for part in parts)
        assert made > 0
        assert counts()[place] - before[place] == made


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


def test_head_answers_wherever_get_does(http: httpx.Client) -> None:
    for path in ("/health/live", "/v1/models", "/version"):
        answer = http.head(path)
        assert answer.status_code == 200, path
        assert not answer.content


@pytest.mark.parametrize("path", ["/v1", "/v1/x/y", "/health/x"])
def test_options_of_an_unknown_route_has_the_usual_shape(http: httpx.Client, path: str) -> None:
    assert set(http.options(path).json()["error"]) == {"message", "type", "param", "code"}


def test_pictures_are_listed_and_deleted(http: httpx.Client) -> None:
    body = {"model": "tiny", "input": "to be listed"}
    made = http.post("/v1/responses", json=body).json()["output"][0]["content"][0]["id"]
    newest = http.get("/v1/images", params={"limit": 1}).json()
    assert [entry["id"] for entry in newest["data"]] == [made]
    assert newest["data"][0]["settings"]["prompt"] == "to be listed"
    assert http.delete(f"/v1/images/{made}").json()["deleted"]
    assert http.delete(f"/v1/images/{made}").status_code == 404
    assert http.get(f"/v1/images/{made}/content").status_code == 404


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
