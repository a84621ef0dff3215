"""`/v1/responses` by the OpenAI SDK and by plain HTTP, against a real server."""

import base64
import io
import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from openai import OpenAI
from PIL import Image

from pipelines.cache_rules import OFF, PRESETS, resolve
from studio.pictures import read_settings
from tests.fake_engine import predicted_steps
from tests.running import RunningStudio
from tests.studio.conftest import wait_until


def body(**options: Any) -> dict[str, Any]:
    values = {"model": "tiny", "input": "an apple", "seed": 42}
    return values | {"provider_options": {"image": {"output_format": "png"} | options}}


def post(http: httpx.Client, values: dict[str, Any]) -> dict[str, Any]:
    answer = http.post("/v1/responses", json=values)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def picture_of(part: dict[str, Any]) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(part["image_data"])))


def data_url(colour: tuple[int, int, int], size: tuple[int, int] = (256, 256)) -> str:
    buffer = io.BytesIO()
    Image.new("RGB", size, colour).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def with_source(url: str, **options: Any) -> dict[str, Any]:
    content = [
        {"type": "input_image", "image_url": url},
        {"type": "input_text", "text": "warmer"},
    ]
    return body(**options) | {"input": [{"role": "user", "content": content}]}


def test_the_openai_sdk_gets_pictures(openai: OpenAI) -> None:
    image = {"height": 256, "width": 256, "steps": 12, "num_images": 2, "output_format": "png"}
    response = openai.responses.create(
        model="tiny",
        input="a prompt",
        extra_body={"seed": 42, "provider_options": {"image": image}},
    )
    answer = response.to_dict(warnings=False)
    message: Any = answer["output"][0]  # type: ignore[index]
    assert message["type"] == "message"
    assert [part["type"] for part in message["content"]] == ["output_image"] * 2
    assert [part["seed"] for part in message["content"]] == [42, 43]
    assert picture_of(message["content"][0]).size == (256, 256)
    usage: Any = answer["usage"]
    assert usage["image_generation_details"] == {
        "width": 256,
        "height": 256,
        "megapixels": 0.065536,
        "steps": 12,
        "image_count": 2,
    }


@pytest.mark.parametrize("name", ["png", "jpeg", "webp"])
def test_formats_carry_their_settings(http: httpx.Client, name: str) -> None:
    part = post(http, body(output_format=name))["output"][0]["content"][0]
    data = base64.b64decode(part["image_data"])
    assert part["format"] == name
    assert Image.open(io.BytesIO(data)).format == name.upper()
    settings = read_settings(data)
    assert settings is not None
    assert (settings["prompt"], settings["seed"]) == ("an apple", 42)
    assert (settings["cache"], settings["steps_computed"], settings["steps_predicted"]) == (
        "off",
        6,
        0,
    )


@pytest.mark.parametrize("name", ["png", "jpeg", "webp"])
def test_a_step_cache_is_told_by_answer_file_and_history(
    http: httpx.Client, studio: RunningStudio, name: str
) -> None:
    asked = {"cache": "balanced", "residual_threshold": 0.3, "taylor_order": 2, "warmup_steps": 3}
    answer = post(http, body(output_format=name, steps=12, **asked))
    part = answer["output"][0]["content"][0]
    rule = resolve("balanced", residual_threshold=0.3, taylor_order=2, warmup_steps=3)
    assert studio.engine.received[-1].cache == rule
    predicted = predicted_steps(rule, 12)
    expected = asked | {
        "max_skips": PRESETS["balanced"].max_skips,
        "steps_computed": 12 - predicted,
        "steps_predicted": predicted,
    }
    assert 0 < predicted < 12
    newest = http.get("/v1/images", params={"limit": 1}).json()["data"][0]
    file = read_settings(base64.b64decode(part["image_data"]))
    assert file is not None
    for told in (part, file, newest | newest["settings"]):
        assert {key: told.get(key) for key in expected} == expected
    assert newest["id"] == part["id"]


def test_a_request_that_names_no_cache_is_exact(http: httpx.Client, studio: RunningStudio) -> None:
    part = post(http, body())["output"][0]["content"][0]
    assert studio.engine.received[-1].cache == OFF
    assert (part["cache"], part["steps_computed"], part["steps_predicted"]) == ("off", 6, 0)
    assert "residual_threshold" not in part


def test_a_cache_that_spares_nothing_is_said(http: httpx.Client) -> None:
    answer = post(http, body(cache="taylorseer", warmup_steps=6))
    said = [(warning["code"], warning["param"]) for warning in answer["warnings"]]
    assert said == [("cache_idle", "provider_options.image.warmup_steps")]
    assert answer["output"][0]["content"][0]["steps_predicted"] == 0


BAD_CACHES: list[tuple[dict[str, Any], str, str]] = [
    ({"cache": "slow"}, "cache", "'first_block_caching'"),
    ({"cache": 1}, "cache", "'off'"),
    ({"cache": {"name": "fast"}}, "cache", "'off'"),
    ({"cache": "fast", "residual_threshold": -0.1}, "residual_threshold", "from 0 to 1"),
    ({"cache": "fast", "residual_threshold": "0.1"}, "residual_threshold", "from 0 to 1"),
    ({"cache": "fast", "taylor_order": 3}, "taylor_order", "from 0 to 2"),
    ({"cache": "fast", "warmup_steps": -1}, "warmup_steps", "from 0 to 100"),
    ({"cache": "fast", "warmup_steps": 2.5}, "warmup_steps", "whole number from 0 to 100"),
    ({"cache": "fast", "warmup_steps": True}, "warmup_steps", "whole number"),
    ({"cache": "fast", "max_skips": 10**400}, "max_skips", "from 0 to 100"),
    ({"cache": "taylorseer", "cache_interval": 0}, "cache_interval", "from 1 to 100"),
    ({"cache": "fast", "cache_interval": 5}, "cache_interval", "taylorseer, not fast"),
    ({"max_skips": 5}, "max_skips", "not off"),
    ({"cache": "off", "taylor_order": 1}, "taylor_order", "not off"),
    ({"cache": "fast", "taylor": 1}, "taylor", "not known"),
]


@pytest.mark.parametrize(("options", "param", "says"), BAD_CACHES)
def test_bad_caches_are_refused_with_field_and_range(
    http: httpx.Client, options: dict[str, Any], param: str, says: str
) -> None:
    answer = http.post("/v1/responses", json=body(**options))
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == f"provider_options.image.{param}"
    assert says in error["message"]


def test_image_to_image_says_the_steps_that_ran(http: httpx.Client) -> None:
    answer = post(http, with_source(data_url((200, 40, 40)), steps=12, strength=0.5))
    assert answer["usage"]["image_generation_details"]["steps"] == 6
    pixel = picture_of(answer["output"][0]["content"][0]).getpixel((5, 5))
    assert pixel == (200, 40, 40)


def test_url_answers_can_be_fetched(http: httpx.Client) -> None:
    part = post(http, body(response_format="url"))["output"][0]["content"][0]
    assert "image_data" not in part
    answer = http.get(part["image_url"])
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert Image.open(io.BytesIO(answer.content)).size == (256, 192)
    assert http.get("/v1/images/unknown/content").status_code == 404


def test_sixteen_at_once_each_get_their_own_picture(http: httpx.Client) -> None:
    def seed_of(n: int) -> tuple[int, tuple[int, ...]]:
        part = post(http, body() | {"seed": n})["output"][0]["content"][0]
        return part["seed"], picture_of(part).getpixel((0, 0))  # type: ignore[return-value]

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(seed_of, range(16)))
    assert [seed for seed, _ in answers] == list(range(16))
    for seed, pixel in answers:
        expected = np.random.default_rng(seed).integers(40, 220, 3, dtype=np.uint8)
        assert pixel == tuple(expected.tolist())


def test_background_is_polled_and_cancelled(http: httpx.Client, studio: RunningStudio) -> None:
    studio.engine.hold()
    first = post(http, body() | {"background": True})
    second = post(http, body() | {"background": True})
    assert first["status"] in ("queued", "in_progress")
    cancelled = http.post(f"/v1/responses/{second['id']}/cancel").json()
    assert cancelled["status"] == "cancelled"
    studio.engine.release()
    path = f"/v1/responses/{first['id']}"
    wait_until(lambda: http.get(path).json()["status"] == "completed", "it is completed")
    assert http.get(path).json()["output"][0]["content"][0]["seed"] == 42


def test_background_gives_back_what_was_asked(http: httpx.Client) -> None:
    values = body(response_format="url", flow_shift=2.0) | {"metadata": {"k": "v"}}
    first = post(http, values | {"background": True, "temperature": 0.5})
    path = f"/v1/responses/{first['id']}"
    wait_until(lambda: http.get(path).json()["status"] == "completed", "it is completed")
    answer = http.get(path).json()
    assert answer["metadata"] == {"k": "v"}
    assert "image_url" in answer["output"][0]["content"][0]
    params = {warning["param"] for warning in answer["warnings"]}
    assert params == {"temperature", "provider_options.image.flow_shift"}


def test_a_client_that_hangs_up_cancels_its_job(http: httpx.Client, studio: RunningStudio) -> None:
    studio.engine.hold()
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/responses", json=body() | {"seed": 777}, timeout=0.3)
    wait_until(lambda: not studio.jobs.active("local"), "its job is cancelled")
    studio.engine.release()
    assert post(http, body())["status"] == "completed"
    seeds = [picture.seed for picture in studio.jobs.history("local", limit=200).pictures]
    assert 777 not in seeds


def test_warnings_name_what_was_changed_or_ignored(http: httpx.Client) -> None:
    answer = post(http, body(width=264, height=256, strength=0.5, flow_shift=3.0))
    said = {(warning["code"], warning["param"]) for warning in answer["warnings"]}
    assert said == {
        ("size_floored", "provider_options.image.width"),
        ("option_without_effect", "provider_options.image.strength"),
        ("option_without_effect", "provider_options.image.flow_shift"),
    }
    assert all(warning["message"] for warning in answer["warnings"])


BAD_OPTIONS = [
    {"width": 0},
    {"width": -1},
    {"width": 7},
    {"width": 10**9},
    {"height": 120},
    {"width": "256"},
    {"width": True},
    {"width": 256.5},
    {"steps": 0},
    {"num_images": 0},
    {"num_images": 5},
    {"guidance_scale": -1},
    {"true_cfg_scale": 0},
    {"output_format": "tiff"},
    {"output_quality": 0},
    {"response_format": "path"},
    {"colour": "red"},
    {"flow_shift": 0},
]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=str)
def test_bad_options_are_refused_and_named(http: httpx.Client, options: dict[str, Any]) -> None:
    answer = http.post("/v1/responses", json=body(**options))
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == f"provider_options.image.{next(iter(options))}"


@pytest.mark.parametrize("strength", [0, 2, -0.1])
def test_bad_strength_is_refused(http: httpx.Client, strength: float) -> None:
    answer = http.post("/v1/responses", json=with_source(data_url((1, 2, 3)), strength=strength))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "provider_options.image.strength"


@pytest.mark.parametrize(
    ("change", "status", "param"),
    [
        ({"model": "other"}, 404, "model"),
        ({"model": None}, 400, "model"),
        ({"input": ""}, 400, "input"),
        ({"input": "x" * 100_000}, 400, "input"),
        ({"input": []}, 400, "input"),
        ({"input": [{"role": "assistant", "content": "x"}]}, 400, None),
        ({"seed": -1}, 400, "seed"),
        ({"seed": 2**32}, 400, "seed"),
        ({"stream": True}, 400, "stream"),
        ({"colour": "red"}, 400, "colour"),
        ({"metadata": {"k": "\ud800"}}, 400, "metadata.k"),
        ({"metadata": {"k": "v" * 513}}, 400, "metadata.k"),
        ({"input": [{"content": "x", "colour": 1}]}, 400, "input.0.colour"),
        ({"input": [{"content": [{"type": "input_file"}]}]}, 400, "input.0.content.0"),
        ({"input": [{"content": [{"type": "input_text", "txt": "x"}]}]}, 400, None),
        ({"input": [{"role": "system", "content": "x"}]}, 400, "input.0.role"),
        ({"input": 7}, 400, "input"),
        ({"\ud800": 7}, 400, None),
        ({"provider_options": {"video": {}}}, 400, "provider_options.video"),
    ],
)
def test_bad_bodies_are_refused(
    http: httpx.Client, change: dict[str, Any], status: int, param: str | None
) -> None:
    content = json.dumps(body() | change)  # httpx's own refuses half of a surrogate pair
    headers = {"content-type": "application/json"}
    answer = http.post("/v1/responses", content=content, headers=headers)
    assert answer.status_code == status, answer.text
    if param:
        assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b'{"model": "tiny", "input": ', "invalid_json"),
        (b"\xff\xfe", None),
        (b"[1, 2]", None),
        (b"", None),
        (b'{"model":"tiny","input":"x","provider_options":{"image":{"width":NaN}}}', None),
        (b'{"model":"tiny","input":"x","seed":' + b"[" * 50_000 + b"}", None),
    ],
    ids=["cut", "binary", "list", "empty", "nan", "deep"],
)
def test_broken_json_is_a_400(http: httpx.Client, content: bytes, code: str | None) -> None:
    answer = http.post(
        "/v1/responses", content=content, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 400, answer.text
    assert "JSON" in answer.json()["error"]["message"] or b"NaN" in content or b"[[" in content
    if code:
        assert answer.json()["error"]["code"] == code


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64," + base64.b64encode(b"only text").decode(),
        data_url((1, 2, 3))[:300],
        "data:image/png;base64,!!!",
        "http://127.0.0.1:1/x.png",
        "http://169.254.169.254/latest/meta-data",
        "file:///etc/passwd",
        "ftp://example.com/x.png",
        "not a url",
    ],
)
def test_bad_source_pictures_are_refused(http: httpx.Client, url: str) -> None:
    answer = http.post("/v1/responses", json=with_source(url))
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == "input"


def test_a_decompression_bomb_is_refused_before_it_is_decoded(http: httpx.Client) -> None:
    answer = http.post("/v1/responses", json=with_source(data_url((0, 0, 0), (6000, 6000))))
    assert answer.status_code in (400, 413)
    assert "pixel" in answer.json()["error"]["message"]


def test_a_huge_body_is_refused_and_the_server_goes_on(
    http: httpx.Client, studio: RunningStudio
) -> None:
    """The announced length is enough to refuse: nothing of it is sent, nothing waited for."""
    host, port = studio.url.removeprefix("http://").split(":")
    head = (
        f"POST /v1/responses HTTP/1.1\r\nHost: {host}:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {2 * 1024**3}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(head.encode())
        assert b" 413 " in connection.recv(4096).splitlines()[0]
    assert post(http, body())["status"] == "completed"


def test_a_failure_of_the_engine_names_its_cause(http: httpx.Client) -> None:
    answer = http.post("/v1/responses", json=body() | {"input": "fail please"})
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "out_of_memory"
    assert post(http, body())["status"] == "completed"
