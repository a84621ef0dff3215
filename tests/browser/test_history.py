"""What stays: the strip, the large view, and a studio that starts again."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from studio.request import Draft
from tests.browser.conftest import OpenPage, generate, show, wait_for_pictures
from tests.fake_engine import FakeEngine
from tests.running import RunningStudio

pytestmark = pytest.mark.browser


def test_the_history_survives_reload_and_restart(tmp_path: Path, open_page: OpenPage) -> None:
    with RunningStudio(tmp_path, FakeEngine()) as first:
        page = open_page(first.url)
        expect(page.locator("#stage .chip").first).to_be_visible()
        page.locator("#stage .chip").first.click()
        prompt = page.input_value("#prompt textarea")
        page.click("#generate")
        wait_for_pictures(page, prompt)
        show(page, first.url)
        expect(page.locator("#strip .shot")).to_have_count(1)
    with RunningStudio(tmp_path, FakeEngine()) as second:
        show(page, second.url)
        wait_for_pictures(page, prompt)
        expect(page.locator("#strip .shot")).to_have_count(1)


def test_use_these_settings_fills_the_form(studio: RunningStudio, page: Page) -> None:
    page.get_by_label("9:16", exact=True).check()
    page.locator("#count label").nth(1).click()
    expect(page.locator("#plan")).to_contain_text("2 pictures")
    generate(page, "to be used again")
    wait_for_pictures(page, "to be used again", count=2)
    request = studio.engine.received[-1]
    page.get_by_label("1:1", exact=True).check()
    page.fill("#prompt textarea", "something else")
    page.locator("#stage .shot").nth(1).click()
    page.get_by_role("button", name="Use these settings").click()
    expect(page.locator("#prompt textarea")).to_have_value("to be used again")
    expect(page.locator("#seed input")).to_have_value(str(request.seeds[1]))
    expect(page.locator("#plan")).to_contain_text(f"{request.width} × {request.height} px")


def test_arrows_turn_pictures_and_escape_closes(page: Page) -> None:
    page.locator("#count label").nth(2).click()
    generate(page, "three in a row")
    wait_for_pictures(page, "three in a row", count=3)
    page.locator("#stage .shot").first.click()
    seeds = []
    for _ in range(3):
        seeds.append(page.locator("#view dd").nth(1).inner_text())
        page.keyboard.press("ArrowRight")
    assert len(set(seeds)) == 3
    page.keyboard.press("ArrowLeft")
    assert page.locator("#view dd").nth(1).inner_text() == seeds[1]
    page.keyboard.press("Escape")
    expect(page.locator("#view")).not_to_be_visible()


def test_a_picture_becomes_the_source(page: Page) -> None:
    generate(page, "to start from")
    wait_for_pictures(page, "to start from")
    page.locator("#stage .shot").click()
    page.get_by_role("button", name="Use as source").click()
    expect(page.locator(".source figcaption")).to_have_text("256 × 192 px")


def test_delete_asks_and_then_deletes_for_good(studio: RunningStudio, page: Page) -> None:
    generate(page, "to be deleted")
    wait_for_pictures(page, "to be deleted")
    mine = page.locator("#strip .shot[aria-label*='to be deleted']")
    expect(mine).to_have_count(1)
    page.locator("#stage .shot").click()
    page.locator("#view .danger").click()
    expect(page.locator("#view .danger")).to_have_text("Delete for good?")
    page.locator("#view .danger").click()
    expect(mine).to_have_count(0)
    show(page, studio.url)
    expect(mine).to_have_count(0)


def test_older_pictures_come_on_demand(tmp_path: Path, open_page: OpenPage) -> None:
    with RunningStudio(tmp_path, FakeEngine()) as studio:
        for number in range(7):
            studio.jobs.submit(
                Draft(f"picture {number}", count=4), owner="local", origin="background"
            )
        page = open_page(studio.url)
        page.wait_for_timeout(300)
        show(page, studio.url)
        expect(page.locator("#strip .shot")).to_have_count(24)
        page.get_by_role("button", name="Load more").click()
        expect(page.locator("#strip .shot")).to_have_count(28)
        expect(page.locator("#strip .more")).to_have_count(0)


def test_the_keyboard_sheet_opens_outside_of_fields_only(page: Page) -> None:
    page.press("#prompt textarea", "?")
    expect(page.locator("#help")).to_have_count(0)
    page.locator("#prompt textarea").blur()
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).not_to_be_visible()
