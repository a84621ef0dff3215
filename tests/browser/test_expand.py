"""Expand: both prompts side by side, used only when accepted, taken back with one click."""

import asyncio

import pytest
from playwright.sync_api import Page, expect

from studio.engine.protocol import EngineStatus
from tests.browser.conftest import PHONE, OpenPage, show, wait_for_pictures
from tests.browser.expanding import IN_FIELD, TOUCH_PX, expand, press, prompt_of
from tests.fake_text_engine import FakeTextEngine
from tests.running import RunningStudio
from tests.studio.conftest import wait_until

pytestmark = pytest.mark.browser


def test_try_again_writes_another_and_dismiss_changes_nothing(
    text_engine: FakeTextEngine, ready: Page
) -> None:
    page = ready
    expand(page, "a cat")
    press(page, "again")
    expect(page.locator(".expansion-new p")).to_have_text(IN_FIELD)
    assert [request.seed for request in text_engine.requests] == [0, 1]
    press(page, "dismiss")
    expect(page.locator("#expansion-panel")).to_be_hidden()
    assert prompt_of(page) == "a cat"


def test_it_streams_and_cancel_ends_the_text_models_work(
    text_engine: FakeTextEngine, ready: Page
) -> None:
    page = ready
    text_engine.hold = asyncio.Event()  # never set: the last word does not come
    expand(page, state="writing")
    expect(page.locator(".expansion-new p")).to_contain_text("a cat, on a red sofa, soft warm")
    expect(page.locator("[data-expand=accept]")).to_be_hidden()
    press(page, "cancel")
    expect(page.locator("#expansion-panel")).to_be_hidden()
    wait_until(lambda: text_engine.requests[0].id in text_engine.cancelled, "it is given up")
    assert prompt_of(page) == "a cat"


def test_a_closed_page_ends_the_text_models_work(
    expanding: RunningStudio, text_engine: FakeTextEngine, ready: Page, open_page: OpenPage
) -> None:
    text_engine.hold = asyncio.Event()
    second = open_page(expanding.url)
    expand(second, state="writing")
    expect(second.locator(".expansion-new p")).to_contain_text("red sofa")
    second.close()
    wait_until(lambda: text_engine.requests[0].id in text_engine.cancelled, "it is given up")


def test_what_cannot_be_expanded_is_said_and_the_prompt_stays(
    text_engine: FakeTextEngine, ready: Page
) -> None:
    page = ready
    text_engine.answer = lambda request: " I love it"
    expand(page, state="failed")
    expect(page.locator(".expansion-problem")).to_contain_text("stays as it is")
    expect(page.locator("[data-expand=accept]")).to_be_hidden()
    expand(page, "  ", state="failed")
    expect(page.locator(".expansion-problem")).to_contain_text("write a few words first")
    press(page, "dismiss")
    assert prompt_of(page) == "  "


def test_a_text_model_on_its_way_is_waited_for(
    expanding: RunningStudio, text_engine: FakeTextEngine, ready: Page
) -> None:
    page = ready
    text_engine.status = EngineStatus("loading", fraction=0.4)
    show(page, expanding.url)
    expect(page.locator(".expand")).to_be_disabled()
    expect(page.locator(".expand")).to_contain_text("text model is coming… · 40 %")
    page.locator(".expand").click(force=True)
    expect(page.locator(".expansion-problem")).to_contain_text("still on its way")
    assert not text_engine.requests
    text_engine.status = EngineStatus("ready")
    expect(page.locator(".expand")).to_be_enabled()  # the page looks again by itself
    expect(page.locator("#expansion-panel")).to_be_hidden()  # that it is coming is true no more


def test_a_text_model_lost_in_mid_text_is_explained_and_asked_no_longer(
    text_engine: FakeTextEngine, ready: Page
) -> None:
    page = ready
    text_engine.hold = asyncio.Event()  # never set
    expand(page, state="writing")
    expect(page.locator(".expansion-new p")).to_contain_text("red sofa")
    text_engine.status = EngineStatus("failed", "No weights.")
    page.wait_for_selector(".expand[data-state=failed]")
    page.locator(".expand").click(force=True)
    expect(page.locator(".expansion-problem")).to_contain_text("No weights.")
    wait_until(lambda: text_engine.requests[0].id in text_engine.cancelled, "it is given up")


def test_a_studio_without_a_text_model_offers_nothing(page: Page) -> None:
    expect(page.locator("#generate")).to_be_visible()
    expect(page.locator(".expand")).to_have_count(0)
    expect(page.locator("#expansion-panel")).to_have_count(0)


def test_all_of_it_works_by_keyboard(ready: Page) -> None:
    page = ready
    page.fill("#prompt textarea", "a cat")
    page.focus(".expand")
    page.keyboard.press("Enter")
    expect(page.locator("[data-expand=accept]")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#expansion-panel")).to_be_hidden()
    expect(page.locator(".expand")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("[data-expand=accept]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("[data-expand=undo]")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#prompt textarea")).to_have_value("a cat")
    expect(page.locator(".expand")).to_be_focused()


def test_writing_on_closes_the_panel(ready: Page) -> None:
    page = ready
    expand(page)
    page.focus("#prompt textarea")
    page.keyboard.press("End")
    page.keyboard.type("s")
    expect(page.locator("#expansion-panel")).to_be_hidden()
    expand(page)
    page.click("#generate")
    expect(page.locator("#expansion-panel")).to_be_hidden()
    wait_for_pictures(page, "a cat")


def test_prompts_are_text_in_the_panel(text_engine: FakeTextEngine, ready: Page) -> None:
    page = ready
    idea = "<img src=x onerror='window.broken = 1'> & a cat"
    expand(page, idea)
    expect(page.locator(".expansion-old p")).to_have_text(idea)
    expect(page.locator(".expansion-new p")).to_contain_text("<img src=x onerror='window.broken")
    press(page, "accept")
    expect(page.locator("#expanded-from q")).to_have_text(idea)
    assert page.evaluate("window.broken") is None


def test_a_model_with_a_world_gets_a_prompt_of_its_world(
    expanding: RunningStudio, ready: Page, open_page: OpenPage
) -> None:
    page = open_page(f"{expanding.url}/models/worldly/")
    page.wait_for_selector(".expand[data-state=ready]")
    expand(page, "an apple")
    expect(page.locator(".expansion-new p")).to_have_text(
        "a small red apple on the left, in the snow"
    )
    expect(page.locator(".expansion-new mark")).to_have_text(
        ["small red", "on the left, in the snow"]
    )
    expand(page, "a shiny apple", state="failed")
    expect(page.locator(".expansion-problem")).to_contain_text("does not know: shiny")


def test_on_a_phone_every_button_is_under_the_thumb(
    expanding: RunningStudio, ready: Page, open_page: OpenPage
) -> None:
    page = open_page(expanding.url, PHONE)
    page.wait_for_selector(".expand[data-state=ready]")
    expand(page)
    old, new = (page.locator(f".expansion-{side}").bounding_box() for side in ("old", "new"))
    assert old is not None and new is not None and new["y"] >= old["y"] + old["height"]
    for name in ("accept", "again", "dismiss"):
        box = page.locator(f"[data-expand={name}]").bounding_box()
        assert box is not None and box["height"] >= TOUCH_PX
        assert box["y"] >= 0 and box["y"] + box["height"] <= PHONE["height"]
    press(page, "accept")
    undo, button = (page.locator(s).bounding_box() for s in ("[data-expand=undo]", ".expand"))
    assert undo is not None and button is not None
    assert min(undo["height"], button["height"]) >= TOUCH_PX
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
