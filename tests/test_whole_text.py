"""`python app.py` with its text model: texts, expansions, pictures meanwhile, a killed worker."""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipelines.text.embedded import NAME
from tests.running_app import DEADLINE_S, Studio, start_app, wait_until

TEXT_WORKER = "studio.engine.text_worker"
LONGEST_GAP_S = 2.0


@pytest.fixture(scope="module")
def studio(smollm2_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    data = tmp_path_factory.mktemp("data")
    (data / "text").symlink_to(smollm2_folder)
    running = start_app(data)
    wait_until(lambda: text_status(running) == "ready", "the text model is there")
    wait_until(lambda: running.get("/health/ready")["status"] == "ready", "pictures can be made")
    yield running
    running.end()


def text_status(studio: Studio) -> str:
    return str(studio.get("/health/ready")["text"]["status"])


def ask(**values: Any) -> dict[str, Any]:
    return {"model": NAME, "input": "What is the capital of France?", "temperature": 0} | values


def deltas(studio: Studio, body: dict[str, Any]) -> Iterator[tuple[float, str]]:
    """When each piece of a stream came, and the piece."""
    with httpx.stream(
        "POST",
        studio.url + "/v1/responses",
        json=body | {"stream": True},
        timeout=DEADLINE_S,
        trust_env=False,
    ) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                event = json.loads(line.removeprefix("data: "))
                if event["type"] == "response.output_text.delta":
                    yield time.monotonic(), event["delta"]


def test_it_answers(studio: Studio) -> None:
    answer = studio.post("/v1/responses", ask())
    assert "Paris" in answer["output"][0]["content"][0]["text"]
    assert answer["status"] == "completed"
    again = studio.post("/v1/responses", ask())
    assert again["usage"]["input_tokens_details"]["cached_tokens"] > 30
    assert again["output"][0]["content"] == answer["output"][0]["content"]


def test_a_stream_is_the_same_text(studio: Studio) -> None:
    body = ask(input="Name three colours.", max_output_tokens=30)
    whole = studio.post("/v1/responses", body)["output"][0]["content"][0]["text"]
    assert "".join(piece for _, piece in deltas(studio, body)) == whole


def test_what_is_too_long_is_refused_by_the_field(studio: Studio) -> None:
    body = ask(input="word " * 100_000)
    answer = httpx.post(studio.url + "/v1/responses", json=body, timeout=60, trust_env=False)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input"
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert studio.post("/v1/responses", ask())["status"] == "completed"


def test_a_picture_of_an_expanded_prompt(studio: Studio) -> None:
    body = {
        "model": "flux-emoji",
        "input": "a cat",
        "seed": 5,
        "provider_options": {
            "image": {"prompt_upsampling": True, "steps": 4, "output_format": "png"}
        },
    }
    part = studio.post("/v1/responses", body)["output"][0]["content"][0]
    assert part["original_prompt"] == "a cat"
    assert "cat" in part["expanded_prompt"] and part["expanded_prompt"] != "a cat"


def test_texts_and_pictures_do_not_starve_each_other(studio: Studio) -> None:
    """Steps of a picture while a text is written: no gap above two seconds in either."""
    steps: list[tuple[float, int]] = []
    picture = studio.post(
        "/v1/responses",
        {
            "model": "flux-emoji",
            "input": "a red apple on a blue background",
            "background": True,
            "provider_options": {"image": {"steps": 50, "num_images": 4}},
        },
    )

    def watch() -> None:
        while True:
            answer = studio.get(f"/v1/responses/{picture['id']}")
            steps.append((time.monotonic(), answer["progress"]["step"]))
            if answer["status"] in ("completed", "failed"):
                return
            time.sleep(0.05)

    watching = threading.Thread(target=watch)
    watching.start()
    body = ask(input="Tell a long story about a fox.", max_output_tokens=150)
    times = [moment for moment, _ in deltas(studio, body)]
    watching.join()
    changes = [steps[0]] + [after for before, after in pairwise(steps) if after[1] != before[1]]
    assert len(times) > 20 and len(changes) > 5
    for moments in (times, [moment for moment, _ in changes]):
        assert max(after - before for before, after in pairwise(moments)) < LONGEST_GAP_S


def test_a_killed_text_worker_costs_no_picture_and_comes_back(studio: Studio) -> None:
    picture = studio.post(
        "/v1/responses",
        {
            "model": "flux-emoji",
            "input": "a red apple on a blue background",
            "background": True,
            "provider_options": {"image": {"steps": 20}},
        },
    )
    os.kill(studio.worker(TEXT_WORKER), signal.SIGKILL)
    studio.wait_for(picture["id"], "completed")
    wait_until(lambda: text_status(studio) == "ready", "the text model is back")
    assert studio.post("/v1/responses", ask())["status"] == "completed"
