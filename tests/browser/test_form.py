"""The controls: sizes before the run, source pictures, seeds, what is kept."""

from pathlib import Path

import pytest
from playwright.sync_api import FloatRect, Page, expect

from tests.browser.conftest import PHONE, OpenPage, generate, show, wait_for_pictures
from tests.running import RunningStudio

pytestmark = pytest.mark.browser


def test_the_exact_size_is_shown_before_the_run(page: Page) -> None:
    plan = page.locator("#plan")
    expect(plan).to_contain_text("256 × 192 px")  # the model's own size
    page.get_by_label("16:9", exact=True).check()
    expect(plan).to_contain_text("288 × 160 px")
    page.get_by_label("Custom", exact=True).check()
    page.get_by_label("Width").fill("300")
    page.get_by_label("Height").fill("200")
    expect(plan).to_contain_text("288 × 192 px")
    expect(plan).to_contain_text("multiples of 16 px")
    page.get_by_label("Width").fill("9000")
    expect(plan.locator("[role=alert]")).to_contain_text("at most")


def test_a_source_picture_shows_how_many_steps_run(
    studio: RunningStudio, page: Page, photo: Path
) -> None:
    page.set_input_files("#source input[type=file]", photo)
    expect(page.locator(".source figcaption")).to_have_text("400 × 300 px")
    expect(page.locator("#plan")).to_contain_text("runs 4 of 6 steps")
    expect(page.locator("#strength-note")).to_contain_text("Balanced")
    expect(page.locator("#plan")).to_contain_text("256 × 192 px")  # matches the picture
    page.locator("#strength input[type=number]").fill("1")
    expect(page.locator("#strength-note")).to_contain_text("Only the prompt · 6 steps")
    page.locator("#strength input[type=number]").fill("0.2")
    generate(page, "from a photo")
    wait_for_pictures(page, "from a photo")
    assert studio.engine.received[-1].source is not None
    expect(page.locator(".caption")).to_contain_text("runs 2 of 6 steps")
    page.click("#source-remove")
    expect(page.locator(".source")).to_have_count(0)
    expect(page.locator("#plan")).not_to_contain_text("runs")


def test_a_file_that_is_no_picture_is_refused_in_words(page: Page, tmp_path: Path) -> None:
    fake = tmp_path / "fake.png"
    fake.write_text("not a picture")
    page.set_input_files("#source input[type=file]", fake)
    expect(page.locator("#problem")).to_contain_text("not a picture")
    expect(page.locator(".source")).to_have_count(0)
    # The plan goes on without it: only `#problem` speaks of the file.
    expect(page.locator("#plan")).to_contain_text("256 × 192 px")


def test_a_file_of_the_studio_brings_its_settings(page: Page, tmp_path: Path) -> None:
    generate(page, "to be restored 🍎")
    wait_for_pictures(page, "to be restored 🍎")
    seed = page.input_value("#last-seed textarea")
    page.locator("#stage .shot").click()
    with page.expect_download() as download:
        page.locator("#view a").click()
    page.keyboard.press("Escape")
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    page.fill("#prompt textarea", "something else")
    page.set_input_files("#source input[type=file]", file)
    page.get_by_role("button", name="Use its settings").click()
    expect(page.locator("#prompt textarea")).to_have_value("to be restored 🍎")
    expect(page.locator("#seed input")).to_have_value(seed)
    expect(page.locator(".source")).to_have_count(0)


@pytest.mark.parametrize(
    "event", ["DragEvent('drop', {dataTransfer", "ClipboardEvent('paste', {clipboardData"]
)
def test_a_dropped_or_pasted_picture_becomes_the_source(page: Page, event: str) -> None:
    page.evaluate(
        f"""async () => {{
            const canvas = document.createElement("canvas");
            Object.assign(canvas, {{width: 320, height: 160}});
            canvas.getContext("2d").fillRect(0, 0, 9, 9);
            const blob = await new Promise(done => canvas.toBlob(done, "image/png"));
            const data = new DataTransfer();
            data.items.add(new File([blob], "picture.png", {{type: "image/png"}}));
            const event = new {event}: data, bubbles: true, cancelable: true}});
            document.querySelector("#stage").dispatchEvent(event);
        }}"""
    )
    expect(page.locator(".source figcaption")).to_have_text("320 × 160 px")


def test_a_disabled_control_says_why(page: Page) -> None:
    quality = page.locator("#quality")
    expect(quality.locator("input[type=range]")).to_be_enabled()
    page.get_by_label("PNG", exact=True).check()
    expect(quality.locator("input[type=range]")).to_be_disabled()
    expect(quality).to_contain_text("PNG is lossless")
    page.click("#advanced .label-wrap")
    expect(page.locator("#true-cfg input[type=range]")).to_be_disabled()
    # Gradio gives a control its value a moment after the accordion shows it, faster than a person
    # types, but not than a test.
    page.wait_for_timeout(300)
    page.fill("#negative textarea", "blurry")
    expect(page.locator("#true-cfg input[type=range]")).to_be_enabled()
    expect(page.locator("#true-cfg")).to_contain_text("twice")
    expect(page.locator("#plan")).to_contain_text("twice the time")


def test_a_seed_is_fixed_or_reused(studio: RunningStudio, page: Page) -> None:
    page.get_by_label("Fixed", exact=True).check()
    expect(page.locator("#seed input")).to_be_enabled()
    page.fill("#seed input", "not a number")
    generate(page, "with a seed")
    expect(page.locator("#problem")).to_contain_text("The seed must be a whole number")
    page.fill("#seed input", "4294967295")
    page.click("#generate")
    wait_for_pictures(page, "with a seed")
    assert studio.engine.received[-1].seeds == (4294967295,)
    page.get_by_label("Random", exact=True).check()
    generate(page, "without one")
    wait_for_pictures(page, "without one")
    page.click("#reuse")
    expect(page.locator("#seed input")).to_have_value(str(studio.engine.received[-1].seeds[0]))


def test_the_form_is_kept_over_a_reload(studio: RunningStudio, page: Page) -> None:
    page.fill("#prompt textarea", "kept by the browser")
    page.get_by_label("2:3", exact=True).check()
    page.locator("#count label").nth(1).click()
    expect(page.locator("#plan")).to_contain_text("2 pictures")
    show(page, studio.url)
    expect(page.locator("#prompt textarea")).to_have_value("kept by the browser")
    expect(page.locator("#plan")).to_contain_text("176 × 272 px")
    expect(page.locator("#plan")).to_contain_text("2 pictures")


def test_a_phone_shows_everything_without_scrolling_sideways(
    studio: RunningStudio, open_page: OpenPage
) -> None:
    page = open_page(studio.url, PHONE)
    generate(page, "on a phone")
    wait_for_pictures(page, "on a phone")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    button, picture = _box(page, "#generate"), _box(page, "#stage .shot")
    assert button["y"] + button["height"] <= PHONE["height"]
    assert picture["y"] >= 0 and picture["y"] + picture["height"] < button["y"]
    page.locator("#advanced .label-wrap").click()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator("#strip .shot").first.click()
    assert _box(page, "#view")["width"] <= PHONE["width"]


def _box(page: Page, selector: str) -> FloatRect:
    box = page.locator(selector).first.bounding_box()
    assert box is not None, f"{selector} is not visible"
    return box
