"""From a prompt to pictures: submit, watch, stop, reload."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import STEP_S, OpenPage, generate, show, wait_for_pictures
from tests.running import RunningStudio

pytestmark = pytest.mark.browser


def test_a_prompt_becomes_pictures(page: Page) -> None:
    page.locator("#count label").nth(3).click()
    generate(page, "a red apple on a blue background")
    wait_for_pictures(page, "a red apple on a blue background", count=4)
    expect(page.locator("#strip .shot").nth(3)).to_be_visible()
    expect(page.locator("#seed-note code")).to_have_text(page.input_value("#last-seed textarea"))
    expect(page).to_have_title("Flux Studio")


def test_progress_is_shown_with_a_preview(studio: RunningStudio, page: Page) -> None:
    studio.engine.step_s = 1.0
    generate(page, "slow")
    expect(page.locator(".progress p")).to_contain_text(re.compile(r"Step [1-6] of 6"))
    expect(page.locator(".preview img")).to_have_attribute("src", re.compile("data:image/jpeg"))
    expect(page.locator(".progress p")).to_contain_text("s left")
    expect(page).to_have_title(re.compile("%"))
    studio.engine.step_s = STEP_S


def test_ctrl_enter_submits_but_not_while_composing(studio: RunningStudio, page: Page) -> None:
    before = len(studio.engine.received)
    page.fill("#prompt textarea", "りんご")
    for event in ("{isComposing: true}", "{keyCode: 229}"):
        page.locator("#prompt textarea").evaluate(
            "(field, init) => field.dispatchEvent(new KeyboardEvent('keydown', "
            f"{{key: 'Enter', ctrlKey: true, bubbles: true, ...{event}}}))",
            None,
        )
    page.press("#prompt textarea", "Enter")
    page.wait_for_timeout(400)
    assert len(studio.engine.received) == before
    assert page.input_value("#prompt textarea") == "りんご\n"
    page.press("#prompt textarea", "Control+Enter")
    expect(page.locator("#strip .shot[aria-label*='りんご']").first).to_be_visible()
    assert len(studio.engine.received) == before + 1


def test_a_reload_and_a_second_tab_find_the_running_job(
    studio: RunningStudio, page: Page, open_page: OpenPage
) -> None:
    studio.engine.hold()
    generate(page, "kept over a reload")
    expect(page.locator(".progress")).to_be_visible()
    show(page, studio.url)
    expect(page.locator(".progress")).to_be_visible()
    second = open_page(studio.url)
    expect(second.locator(".progress")).to_be_visible()
    studio.engine.release()
    wait_for_pictures(page, "kept over a reload")
    wait_for_pictures(second, "kept over a reload")


def test_stop_works_at_once_and_generate_works_again(studio: RunningStudio, page: Page) -> None:
    studio.engine.hold()
    generate(page, "stopped")
    expect(page.locator(".progress")).to_be_visible()
    page.click("#stop")
    expect(page.locator("#stage h2")).to_have_text("Stopped")
    expect(page.locator("#stop")).to_have_count(0)
    studio.engine.release()
    generate(page, "made after a stop")
    wait_for_pictures(page, "made after a stop")
    assert page.locator("#strip .shot[aria-label*='stopped']").count() == 0


def test_two_jobs_follow_each_other(studio: RunningStudio, page: Page) -> None:
    studio.engine.step_s = 0.3
    generate(page, "first of two")
    expect(page.locator(".progress")).to_be_visible()
    generate(page, "second of two")
    expect(page.locator(".progress")).to_contain_text("1 more waiting")
    studio.engine.step_s = STEP_S
    wait_for_pictures(page, "second of two")
    expect(page.locator("#strip .shot[aria-label*='first of two']").first).to_be_visible()


def test_a_failure_names_its_cause(page: Page) -> None:
    generate(page, "fail at once")
    expect(page.locator("#stage [role=alert]")).to_contain_text("Out of memory.")
    generate(page, "made after a failure")
    wait_for_pictures(page, "made after a failure")


def test_an_empty_prompt_is_refused_in_words_at_the_field(page: Page) -> None:
    page.fill("#prompt textarea", "  ")
    page.click("#generate")
    expect(page.locator("#problem")).to_contain_text("The prompt is empty")
    page.wait_for_selector("#prompt.refused")


def test_a_prompt_is_text_wherever_it_stands(page: Page) -> None:
    prompt = "<script>window.broken = 1</script><img src=x onerror='window.broken = 2'>"
    prompt += """ ' " ` ${1+1} {{value}} &lt;"""
    generate(page, prompt)
    expect(page.locator(".caption-prompt")).to_have_text(prompt)
    page.locator("#stage .shot").click()
    expect(page.locator("#view p")).to_have_text(prompt)
    assert page.evaluate("window.broken") is None


def test_the_page_says_what_the_engine_does(studio: RunningStudio, open_page: OpenPage) -> None:
    studio.engine.become("loading", "transformer")
    page = open_page(studio.url)
    expect(page.locator(".engine-state")).to_have_text("Loading the model: transformer")
    generate(page, "made after the loading")
    expect(page.locator(".progress")).to_contain_text("Waiting for the model")
    studio.engine.become("ready")
    wait_for_pictures(page, "made after the loading")
    expect(page.locator(".engine-state")).to_have_text("Ready")
    studio.engine.become("failed", "The weights are missing: run the training.")
    show(page, studio.url)
    expect(page.locator("#stage [role=alert]")).to_contain_text("The weights are missing")
    studio.engine.become("ready")
