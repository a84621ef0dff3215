"""The real thing: `python app.py` with the embedded model, killed and started again."""

import base64
import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.running_app import ROOT, Studio, start_app, wait_until

Start = Callable[..., Studio]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[Studio] = []

    def begin(*flags: str) -> Studio:
        running.append(start_app(tmp_path, "--text-engine", "off", *flags))
        return running[-1]

    yield begin
    for studio in running:
        if studio.process.poll() is None:
            studio.end()


def is_ready(studio: Studio) -> bool:
    return studio.get("/health/ready")["status"] == "ready"


def body(**options: Any) -> dict[str, Any]:
    values = {"model": "flux-emoji", "input": "a red apple on a blue background", "seed": 3}
    return values | {"provider_options": {"image": {"output_format": "png"} | options}}


def first_picture(answer: dict[str, Any]) -> Image.Image:
    data = base64.b64decode(answer["output"][0]["content"][0]["image_data"])
    return Image.open(io.BytesIO(data))


def test_a_red_apple_on_a_blue_background(start: Start) -> None:
    """By what a person sees first: a blue border round something red, the same at every run."""
    studio = start()
    first, second = studio.post("/v1/responses", body()), studio.post("/v1/responses", body())
    parts = [answer["output"][0]["content"][0]["image_data"] for answer in (first, second)]
    assert parts[0] == parts[1]
    pixels = np.asarray(first_picture(first).convert("RGB")).astype(int)
    border = np.concatenate([pixels[:8].reshape(-1, 3), pixels[-8:].reshape(-1, 3)])
    red, green, blue = np.median(border, axis=0)
    assert blue > red + 60, "the border is blue"
    reds = (pixels[..., 0] > pixels[..., 2] + 60) & (pixels[..., 0] > pixels[..., 1] + 60)
    assert reds.mean() > 0.05, "something on it is red"
    assert 0 <= green <= 255


def test_kill_9_of_the_worker_in_mid_picture(start: Start) -> None:
    studio = start()
    wait_until(lambda: is_ready(studio), "the model is loaded")
    long = studio.post("/v1/responses", body(steps=50, num_images=4) | {"background": True})
    studio.wait_for(long["id"], "in_progress")
    os.kill(studio.worker(), signal.SIGKILL)
    studio.wait_for(long["id"], "completed")
    answer = studio.get(f"/v1/responses/{long['id']}")
    assert [part["seed"] for part in answer["output"][0]["content"]] == [3, 4, 5, 6]
    assert studio.get("/health/ready")["restarts"] == 1


def test_kill_9_of_the_server_with_five_jobs_pending(start: Start) -> None:
    killed = start()
    jobs = [
        killed.post("/v1/responses", body(steps=20) | {"background": True, "seed": seed})
        for seed in range(5)
    ]
    worker = killed.worker()
    killed.end(signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{worker}").exists(), "the worker ended with its server")
    studio = start()
    for seed, job in enumerate(jobs):
        studio.wait_for(job["id"], "completed")
        answer = studio.get(f"/v1/responses/{job['id']}")
        assert answer["output"][0]["content"][0]["seed"] == seed


def test_cancel_at_the_first_and_at_the_last_step(start: Start) -> None:
    studio = start()
    wait_until(lambda: is_ready(studio), "the model is loaded")
    for step in (1, 49):
        job = studio.post("/v1/responses", body(steps=50, num_images=4) | {"background": True})
        studio.wait_for_step(job["id"], step)
        answer = studio.post(f"/v1/responses/{job['id']}/cancel")
        assert answer["status"] in ("cancelled", "completed")
        assert bool(answer["output"]) == (answer["status"] == "completed")
    assert studio.post("/v1/responses", body())["status"] == "completed"


def test_a_broken_model_folder_is_named_and_hangs_nothing(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "broken"
    for name in ("transformer", "vae"):
        (folder / name).mkdir(parents=True)
    (folder / "model_index.json").write_text('{"_class_name": "FluxPipeline"}')
    (folder / "transformer" / "config.json").write_text("{}")
    (folder / "vae" / "config.json").write_text('{"block_out_channels": [8, 8, 8, 8]}')
    studio = start("--model", str(folder))
    wait_until(lambda: studio.get("/health/ready")["status"] == "failed", "the failure is known")
    assert "config.json" in studio.get("/health/ready")["detail"]
    assert httpx.get(studio.url, trust_env=False).status_code == 200


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--model", "no-such-model"], "no-such-model"),
        (["--share"], "--api-key"),
        (["--host", "0.0.0.0"], "--api-key"),
        (["--port", "99999"], "--port"),
    ],
)
def test_a_start_that_cannot_work_is_one_sentence(flags: list[str], sentence: str) -> None:
    answer = subprocess.run(
        [sys.executable, "app.py", *flags], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert answer.returncode == 2
    assert sentence in answer.stderr
    assert "Traceback" not in answer.stderr
