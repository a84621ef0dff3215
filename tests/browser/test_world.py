"""What the model draws: found, clicked into the prompt, by mouse, keyboard and thumb."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PHONE, OpenPage, generate, wait_for_pictures
from tests.fake_engine import FakeEngine
from tests.running import RunningStudio
from tests.studio.conftest import SPEC
from tests.worlds import small_world, write_world

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def world_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudio]:
    folder: Path = tmp_path_factory.mktemp("world")
    spec = replace(SPEC, source=str(write_world(folder / "model", small_world())))
    with RunningStudio(folder / "data", FakeEngine(), specs=[spec]) as studio:
        yield studio


@pytest.fixture
def worded(world_studio: RunningStudio, open_page: OpenPage) -> Page:
    page = open_page(world_studio.url)
    page.click(".world-toggle")
    return page


def write(page: Page, prompt: str) -> None:
    """Type a prompt with `|` where the cursor shall be left, else behind it."""
    text = prompt.replace("|", "")
    page.fill("#prompt textarea", text)
    at = prompt.index("|") if "|" in prompt else len(text)
    page.locator("#prompt textarea").evaluate("(field, at) => field.setSelectionRange(at, at)", at)


def click(page: Page, *words: str) -> None:
    """Click words as `kind:text`, whichever group is shown."""
    for word in words:
        kind, text = word.split(":")
        selector = f".word[data-kind='{kind}'][data-text='{text}']"
        page.locator(selector).dispatch_event("click")


def prompt_of(page: Page) -> str:
    return page.input_value("#prompt textarea")


SENTENCES = [
    ("", "thing:car", "a car"),
    ("", "thing:apple", "an apple"),
    ("", "thing:unicorn", "a unicorn"),
    ("", "thing:cherries", "cherries"),
    # Words for a thing go before it, each kind once, whatever comes first.
    ("", "thing:apple colour:red", "a red apple"),
    ("", "colour:red thing:apple", "a red apple"),
    ("", "thing:car colour:orange", "an orange car"),
    ("", "thing:apple colour:red size:small", "a small red apple"),
    ("", "size:large colour:orange thing:ice cream", "a large orange ice cream"),
    ("a red car", "colour:orange", "an orange car"),
    ("A tiny scarlet Car.", "colour:orange size:large", "A large orange Car."),
    ("a cute car", "colour:red", "a cute red car"),
    ("the car", "colour:red", "the red car"),
    ("a car in the snow", "colour:red", "a red car in the snow"),
    ("a| car and an apple", "colour:red", "a red car and an apple"),
    ("a car| and an apple", "colour:red", "a red car and an apple"),
    ("a car and an apple", "colour:red", "a car and a red apple"),
    ("", "colour:red thing:cherries", "red cherries"),
    # Numbers
    ("", "count:two thing:mouse", "two mice"),
    ("", "thing:mouse count:two", "two mice"),
    ("", "thing:car colour:red count:three", "three red cars"),
    ("", "count:two colour:red thing:apple", "two red apples"),
    ("two mice", "count:three", "three mice"),
    ("cherries", "count:two", "two cherries"),
    # Backgrounds and places, one of each
    ("", "thing:car background:in the snow", "a car in the snow"),
    ("a car in the snow", "background:at night", "a car at night"),
    ("a car on a scarlet background.", "background:in the snow", "a car in the snow."),
    ("a car, red background", "background:in the snow", "a car, in the snow"),
    ("a car.", "background:at night", "a car at night"),
    ("", "background:at night thing:car", "a car at night"),
    ("a car at night", "place:on the left", "a car on the left at night"),
    ("a car on the left at night", "place:in the top left", "a car in the top left at night"),
    ("a car in the top left corner", "place:on the left", "a car on the left"),
    # Two things
    ("", "thing:car thing:apple", "a car and an apple"),
    ("a car at night", "thing:apple", "a car and an apple at night"),
    ("", "thing:car relation:above thing:apple", "a car above an apple"),
    ("a car at night", "relation:next to thing:apple", "a car next to an apple at night"),
    ("a car next to an apple", "relation:under", "a car under an apple"),
    ("a car next to", "relation:above", "a car above"),
    ("car to the left of apple", "place:on the left", "car to the left of apple on the left"),
    ("a car,", "thing:apple", "a car, an apple"),
    # Words that the tray does not hold stay as they are.
    ("draw", "thing:apple", "draw an apple"),
    ("a zorblat", "background:at night", "a zorblat at night"),
    ("carpet", "colour:red", "carpet a red"),
]


def test_words_go_where_they_belong_in_the_prompt(worded: Page) -> None:
    got = []
    for before, words, _ in SENTENCES:
        write(worded, before)
        click(worded, *parted(words))
        got.append((before, words, prompt_of(worded)))
    assert got == SENTENCES


def parted(words: str) -> list[str]:
    """`thing:ice cream size:small` -> both, in spite of the space within the first."""
    parts: list[str] = []
    for part in words.split(" "):
        if ":" in part:
            parts.append(part)
        else:
            parts[-1] += f" {part}"
    return parts


def test_what_is_clicked_is_what_is_made(world_studio: RunningStudio, worded: Page) -> None:
    worded.locator(".word", has_text="apple").click()
    worded.get_by_role("radio", name="Backgrounds").check()
    worded.locator(".word", has_text="in the snow").click()
    worded.click("#generate")
    wait_for_pictures(worded, "an apple in the snow")
    assert world_studio.engine.received[-1].prompt == "an apple in the snow"


def test_one_group_is_shown_and_a_search_looks_through_all(worded: Page) -> None:
    shown = worded.locator(".word:visible")
    expect(shown).to_have_count(7)
    worded.get_by_role("radio", name="Places").check()
    expect(shown).to_have_text(["on the left", "in the top left"])
    worded.fill("#world-tray input[type=search]", "scarlet")
    expect(shown).to_have_text(["red", "red"])  # of things and of backgrounds
    worded.fill("#world-tray input[type=search]", "xylophone")
    expect(shown).to_have_count(0)
    expect(worded.locator(".world-none")).to_be_visible()
    worded.fill("#world-tray input[type=search]", "")
    expect(shown).to_have_text(["on the left", "in the top left"])


def test_the_keyboard_does_it_all(world_studio: RunningStudio, open_page: OpenPage) -> None:
    page = open_page(world_studio.url)
    toggle = page.locator(".world-toggle")
    toggle.focus()
    page.keyboard.press("Enter")
    expect(toggle).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Tab")  # the groups
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("radio", name="Colours")).to_be_checked()
    page.keyboard.press("Tab")  # the search
    page.keyboard.type("car")
    page.keyboard.press("Enter")  # exactly that, though "carrot" stands before it
    expect(page.locator("#prompt textarea")).to_have_value("a car")
    expect(page.locator(".world-said")).to_have_text("a car")
    page.keyboard.press("Escape")  # empties the search
    expect(toggle).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(page.locator("#prompt textarea")).to_have_value("an orange car")
    page.keyboard.press("Escape")
    expect(page.locator("#world-tray")).to_be_hidden()
    expect(toggle).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#world-tray")).to_be_visible()
    page.keyboard.press("Escape")  # from the button that opened it, too
    expect(page.locator("#world-tray")).to_be_hidden()


def test_on_a_phone_the_tray_leaves_prompt_and_button_in_place(
    world_studio: RunningStudio, open_page: OpenPage
) -> None:
    page = open_page(world_studio.url, PHONE)
    closed = page.locator("#generate").bounding_box()
    page.click(".world-toggle")
    assert page.locator("#generate").bounding_box() == closed
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    box = page.locator("#world-tray").bounding_box()
    assert box is not None and box["y"] > 0
    page.locator(".word", has_text="mouse").click()
    # The keyboard of a phone must not come up over what is being chosen.
    assert not page.locator("#prompt textarea").evaluate("f => f === document.activeElement")
    generate(page, prompt_of(page))
    wait_for_pictures(page, "a mouse")
    expect(page.locator("#world-tray")).to_be_hidden()  # it would lie over the picture


def test_without_a_world_nothing_is_shown(page: Page) -> None:
    expect(page.locator("#prompt")).to_be_visible()
    expect(page.locator("#world")).to_have_count(0)
    expect(page.locator(".world-toggle")).to_have_count(0)
