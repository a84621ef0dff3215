"""What becomes of a person's own words when an expansion takes their place."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage, generate, show, wait_for_pictures
from tests.browser.expanding import FIELD, IN_ROOM, ROOM, expand, press, prompt_of
from tests.fake_text_engine import FakeTextEngine
from tests.running import RunningStudio

pytestmark = pytest.mark.browser


def test_an_accepted_expansion_is_drawn_and_its_origin_is_kept(
    expanding: RunningStudio, ready: Page
) -> None:
    page = ready
    expand(page)
    assert prompt_of(page) == "a cat"  # nothing is used before it is accepted
    expect(page.locator(".expansion-old p")).to_have_text("a cat")
    expect(page.locator(".expansion-new p")).to_have_text(IN_ROOM)
    expect(page.locator(".expansion-new mark")).to_have_text(ROOM.strip())
    expect(page.locator(".expansion-said")).to_have_text(f"Expanded: {IN_ROOM}")
    press(page, "accept")
    expect(page.locator("#expansion-panel")).to_be_hidden()
    expect(page.locator("#prompt textarea")).to_have_value(IN_ROOM)
    expect(page.locator("#expanded-from")).to_contain_text("Expanded from a cat")
    page.click("#generate")
    wait_for_pictures(page, IN_ROOM)
    request = expanding.jobs.history("local").pictures[0].request
    assert (request.prompt, request.original_prompt) == (IN_ROOM, "a cat")
    page.locator("#stage .shot").click()
    expect(page.locator("#view dl")).to_contain_text("Your wordsa cat")
    page.keyboard.press("Escape")


def test_undo_brings_the_old_words_back(expanding: RunningStudio, ready: Page) -> None:
    page = ready
    expand(page, "a cat ")
    press(page, "accept")
    press(page, "undo")
    expect(page.locator("#prompt textarea")).to_have_value("a cat ")
    expect(page.locator("#expanded-from")).to_be_hidden()
    generate(page, prompt_of(page))
    wait_for_pictures(page, "a cat")
    assert expanding.jobs.history("local").pictures[0].request.original_prompt is None


def test_an_edit_of_an_expansion_does_not_lose_the_words_before_it(
    expanding: RunningStudio, ready: Page
) -> None:
    page = ready
    expand(page)
    press(page, "accept")
    expect(page.locator("#expanded-from i")).to_be_hidden()
    expect(page.locator("#expanded-from q")).to_have_text("a cat")
    page.focus("#prompt textarea")
    page.keyboard.press("End")
    page.keyboard.type(", at night")
    expect(page.locator("#expanded-from span")).to_have_text("Expanded from a cat, then edited")
    page.click("#generate")
    wait_for_pictures(page, f"{IN_ROOM}, at night")
    assert expanding.jobs.history("local").pictures[0].request.original_prompt == "a cat"
    page.fill("#prompt textarea", "")
    expect(page.locator("#expanded-from")).to_be_hidden()
    page.fill("#prompt textarea", f"{IN_ROOM}, by day")
    expect(page.locator("#expanded-from i")).to_be_visible()
    press(page, "undo")
    expect(page.locator("#prompt textarea")).to_have_value("a cat")


def test_a_prompt_replaced_is_the_persons_own(expanding: RunningStudio, ready: Page) -> None:
    page = ready
    expand(page)
    press(page, "accept")
    page.fill("#prompt textarea", "a dog on a red sofa")
    expect(page.locator("#expanded-from")).to_be_hidden()
    page.click("#generate")
    wait_for_pictures(page, "a dog on a red sofa")
    assert expanding.jobs.history("local").pictures[0].request.original_prompt is None


def test_expanding_twice_keeps_the_persons_words(
    expanding: RunningStudio, text_engine: FakeTextEngine, ready: Page
) -> None:
    page = ready
    expand(page)
    press(page, "accept")
    text_engine.answer = lambda request: FIELD
    page.click(".expand")
    page.wait_for_selector("#expansion-panel[data-state=done]:not([hidden])")
    press(page, "accept")
    both = f"{IN_ROOM},{FIELD.partition(', film')[0]}"  # no film in oil paint
    expect(page.locator("#prompt textarea")).to_have_value(both)
    expect(page.locator("#expanded-from q")).to_have_text("a cat")
    press(page, "undo")
    expect(page.locator("#prompt textarea")).to_have_value("a cat")


def test_a_prompt_that_changed_under_the_panel_is_not_replaced(
    expanding: RunningStudio, ready: Page, open_page: OpenPage
) -> None:
    page = ready
    generate(page, "an old boat")
    wait_for_pictures(page, "an old boat")
    expand(page)
    page.locator("#strip .shot").first.click()
    page.get_by_role("button", name="Use these settings").click()
    expect(page.locator("#prompt textarea")).to_have_value("an old boat")
    expect(page.locator("#expansion-panel")).to_be_hidden()
    expand(page)
    at_once = """() => {
        const field = document.querySelector("#prompt textarea");
        field.value = "a new prompt";
        field.dispatchEvent(new Event("input", { bubbles: true }));
        document.querySelector("[data-expand=accept]").click();
    }"""
    page.evaluate(at_once)
    expect(page.locator("#expansion-panel")).to_be_hidden()
    assert prompt_of(page) == "a new prompt"
    worldly = open_page(f"{expanding.url}/models/worldly/")
    worldly.wait_for_selector(".expand[data-state=ready]")
    worldly.click(".world-toggle")
    expand(worldly, "an apple")
    worldly.locator(".word[data-text='in the snow']").dispatch_event("click")
    expect(worldly.locator("#expansion-panel")).to_be_hidden()
    assert "in the snow" in prompt_of(worldly)


def test_a_reload_and_the_history_keep_the_words_before(
    expanding: RunningStudio, ready: Page
) -> None:
    page = ready
    expand(page)
    press(page, "accept")
    page.click("#generate")
    wait_for_pictures(page, IN_ROOM)
    show(page, expanding.url)
    expect(page.locator("#expanded-from q")).to_have_text("a cat")
    page.fill("#prompt textarea", "something else")
    expect(page.locator("#expanded-from")).to_be_hidden()
    page.locator("#strip .shot").first.click()
    page.get_by_role("button", name="Use these settings").click()
    expect(page.locator("#prompt textarea")).to_have_value(IN_ROOM)
    press(page, "undo")
    expect(page.locator("#prompt textarea")).to_have_value("a cat")
