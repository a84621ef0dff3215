"""The step cache on the page: chosen, told, kept, and taken over from other pictures."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from pipelines.cache_rules import OFF, PRESETS, resolve
from studio.request import Draft
from studio.step_cache import CacheChoice
from tests.browser.conftest import OpenPage, generate, show, wait_for_pictures
from tests.fake_engine import FakeEngine, predicted_steps
from tests.running import RunningStudio

pytestmark = pytest.mark.browser


def choose(page: Page, label: str) -> None:
    """Open the drop-down and take one of its choices; the advanced settings are open."""
    page.locator("#cache input").click()
    page.get_by_role("option", name=label, exact=True).click()
    expect(page.locator("#cache input")).to_have_value(label)


def use_settings_of(page: Page, prompt: str) -> None:
    page.locator(f"#strip .shot[aria-label*='{prompt}']").first.click()
    page.get_by_role("button", name="Use these settings").click()
    expect(page.locator("#prompt textarea")).to_have_value(prompt)


def test_an_untouched_page_predicts_steps_and_says_so(studio: RunningStudio, page: Page) -> None:
    generate(page, "with the default cache")
    wait_for_pictures(page, "with the default cache")
    assert studio.engine.received[-1].cache == PRESETS["balanced"]
    predicted = predicted_steps(PRESETS["balanced"], 6)
    made = f", {6 - predicted} computed, {predicted} predicted"
    assert predicted > 0
    expect(page.locator(".caption")).to_contain_text(f"6 steps{made}")
    page.locator("#stage .shot").click()
    expect(page.locator("#view dl")).to_contain_text(f"Balanced{made}")


def test_off_is_exact_and_kept_over_a_reload(studio: RunningStudio, page: Page) -> None:
    page.locator("#advanced .label-wrap").click()
    choose(page, "Off (exact)")
    expect(page.locator("#cache-note")).to_contain_text("Every step is computed")
    show(page, studio.url)
    generate(page, "without a cache")
    wait_for_pictures(page, "without a cache")
    assert studio.engine.received[-1].cache == OFF
    expect(page.locator(".caption")).not_to_contain_text("computed")
    page.locator("#stage .shot").click()
    expect(page.locator("#view dl")).to_contain_text("Off (exact)")


def test_settings_of_a_picture_bring_its_cache_and_its_values(
    studio: RunningStudio, page: Page
) -> None:
    tuned = Draft("tuned by a program", cache=CacheChoice("fast", {"warmup_steps": 0}))
    studio.jobs.submit(tuned, owner="local", origin="background")
    generate(page, "to see the strip")
    wait_for_pictures(page, "to see the strip")
    use_settings_of(page, "tuned by a program")
    page.click("#generate")
    wait_for_pictures(page, "tuned by a program")
    assert studio.engine.received[-1].cache == resolve("fast", warmup_steps=0)
    page.locator("#advanced .label-wrap").click()
    expect(page.locator("#cache input")).to_have_value("Fast")
    expect(page.locator("#cache-note")).to_contain_text("warmup_steps 0")
    choose(page, "TaylorSeer")
    choose(page, "Fast")
    expect(page.locator("#cache-note")).not_to_contain_text("warmup_steps")
    generate(page, "with the usual values")
    wait_for_pictures(page, "with the usual values")
    assert studio.engine.received[-1].cache == PRESETS["fast"]


def test_a_file_brings_its_cache(page: Page, tmp_path: Path) -> None:
    page.locator("#advanced .label-wrap").click()
    choose(page, "First-block caching")
    generate(page, "to be dropped again")
    wait_for_pictures(page, "to be dropped again")
    page.locator("#stage .shot").click()
    with page.expect_download() as download:
        page.locator("#view a").click()
    page.keyboard.press("Escape")
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    choose(page, "Off (exact)")
    page.set_input_files("#source input[type=file]", file)
    page.get_by_role("button", name="Use its settings").click()
    expect(page.locator("#cache input")).to_have_value("First-block caching")


def test_a_studio_with_a_cache_of_its_own_begins_with_it(
    tmp_path: Path, open_page: OpenPage
) -> None:
    with RunningStudio(tmp_path, FakeEngine(), cache="fast", max_skips=1) as studio:
        page = open_page(studio.url)
        generate(page, "as the studio says")
        wait_for_pictures(page, "as the studio says")
        assert studio.engine.received[-1].cache == resolve("fast", max_skips=1)
