"""Several models: a page for each, and what is made on one page is seen on the other."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.conftest import PHONE, OpenPage, generate, wait_for_pictures
from tests.fake_engine import FakeEngine
from tests.running import RunningStudio
from tests.studio.conftest import SPEC

pytestmark = pytest.mark.browser

QUICK = replace(SPEC, name="a/quick one", default_steps=4, guidance="none")
LOOKING = replace(SPEC, name="looking", takes_start=False, max_references=1)
SEEING = replace(SPEC, name="seeing", max_references=2)


@pytest.fixture(scope="module")
def models_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudio]:
    folder = tmp_path_factory.mktemp("models")
    with RunningStudio(folder, FakeEngine(), specs=[SPEC, QUICK, LOOKING, SEEING]) as studio:
        yield studio


def test_the_bar_leads_to_a_page_that_draws_with_that_model(
    models_studio: RunningStudio, open_page: OpenPage
) -> None:
    page = open_page(models_studio.url)
    generate(page, "on the first page")
    wait_for_pictures(page, "on the first page")
    page.get_by_role("link", name="a/quick one").click()
    expect(page.locator("[aria-current='page']")).to_have_text("a/quick one")
    expect(page.locator("#steps input[type=number]")).to_have_value("4")
    page.get_by_role("button", name="Advanced").click()
    expect(page.locator("#guidance input[type=number]")).to_be_disabled()
    assert page.url.endswith("/models/quick-one/")
    generate(page, "on the second page")
    wait_for_pictures(page, "on the second page")
    assert [request.model for request in models_studio.engine.received[-2:]] == [
        SPEC.name,
        QUICK.name,
    ]
    # Both pictures stand in the history, and are really there.
    expect(page.locator("#strip img")).to_have_count(2)
    page.wait_for_function(
        "() => [...document.querySelectorAll('#strip img, #stage img')]"
        ".every(each => each.complete && each.naturalWidth > 0)"
    )


def test_each_model_keeps_its_own_form(models_studio: RunningStudio, open_page: OpenPage) -> None:
    page = open_page(models_studio.url)
    page.fill("#steps input[type=number]", "9")
    page.fill("#prompt textarea", "kept here")
    expect(page.locator("#plan")).to_contain_text("9 steps")
    page.wait_for_function("() => JSON.stringify(localStorage).includes('tiny')")
    other = open_page(f"{models_studio.url}/models/quick-one")  # led to the slash
    expect(other.locator("#steps input[type=number]")).to_have_value("4")
    expect(other.locator("#prompt textarea")).to_have_value("")


def test_a_model_that_looks_says_so_at_the_picture(
    models_studio: RunningStudio, open_page: OpenPage
) -> None:
    page = open_page(f"{models_studio.url}/models/looking/", PHONE)
    expect(page.get_by_role("button", name="Show it a picture")).to_be_visible()
    expect(page.locator(".engine a.engine-model")).to_have_count(3)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def picture(path: Path, width: int, height: int) -> str:
    Image.new("RGB", (width, height), (200, 30, 30)).save(path)
    return str(path)


def test_a_model_that_looks_at_several_pictures_gets_all_of_them(
    models_studio: RunningStudio, open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page(f"{models_studio.url}/models/seeing/")
    files = [picture(tmp_path / "a.png", 245, 160), picture(tmp_path / "b.png", 128, 128)]
    page.set_input_files("#source input[type=file]", files)
    expect(page.locator("#source-card figure")).to_have_count(2)
    expect(page.locator("#strength input[type=number]")).to_be_disabled()
    expect(page.locator("#plan")).not_to_contain_text("cropped")
    generate(page, "both of them")
    wait_for_pictures(page, "both of them")
    asked = models_studio.engine.received[-1]
    assert asked.source is None
    assert [pixels.shape for pixels in asked.references] == [(160, 240, 3), (128, 128, 3)]
    page.click("#source-remove")
    expect(page.get_by_role("button", name="Show it pictures")).to_be_visible()


def test_one_picture_too_many_is_refused_at_once(
    models_studio: RunningStudio, open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page(f"{models_studio.url}/models/seeing/")
    files = [picture(tmp_path / f"{index}.png", 200, 200) for index in range(3)]
    page.set_input_files("#source input[type=file]", files)
    expect(page.locator("#problem")).to_contain_text("seeing looks at 2 at most")
    expect(page.locator("#source-card figure")).to_have_count(0)


def test_a_page_s_handlers_know_no_stranger_s_pictures(models_studio: RunningStudio) -> None:
    """Below the page of a model as at the root: a request without a cookie is nobody's."""
    url = f"{models_studio.url}/models/looking/gradio_api/info"
    answer = httpx.get(url, trust_env=False)
    assert answer.status_code == 200 and answer.json()["named_endpoints"] == {}


def test_programs_name_their_model(models_studio: RunningStudio) -> None:
    api = f"{models_studio.url}/v1"
    listed = httpx.get(f"{api}/models", trust_env=False).json()["data"]
    assert [model["id"] for model in listed] == ["tiny", "a/quick one", "looking", "seeing"]
    body = {"model": "a/quick one", "input": "x"}
    answer = httpx.post(f"{api}/responses", json=body, trust_env=False).json()
    assert answer["model"] == "a/quick one"
    assert answer["output"][0]["content"][0]["steps"] == 4
    assert models_studio.engine.received[-1].model == "a/quick one"
    refused = httpx.post(f"{api}/responses", json=body | {"model": "x"}, trust_env=False)
    assert refused.status_code == 404
    assert refused.json()["error"]["param"] == "model"
    for name in ("'tiny'", "'a/quick one'", "'looking'"):
        assert name in refused.json()["error"]["message"]
