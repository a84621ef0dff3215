"""Expand: both prompts side by side, used only when accepted, taken back with one click."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from playwright.sync_api import Page, expect

from pipelines.text.requests import TextRequest
from studio.engine.protocol import EngineStatus
from studio.texts import Texts
from tests.browser.conftest import PHONE, OpenPage, generate, show, wait_for_pictures
from tests.fake_engine import FakeEngine
from tests.fake_text_engine import FakeTextEngine
from tests.running import RunningStudio
from tests.studio.conftest import SPEC, wait_until
from tests.worlds import small_world, write_world

pytestmark = pytest.mark.browser

ROOM = " on a red sofa, soft warm light, open old book, dark green wall, oil paint\n"
FIELD = " in tall dry grass, low sun behind, long blue shadows, distant farm, film photograph\n"
IN_ROOM, IN_FIELD = f"a cat,{ROOM.rstrip()}", f"a cat,{FIELD.rstrip()}"
TOUCH_PX = 44


def by_seed(request: TextRequest) -> str:
    if "snow" in str(request.prompt):  # the examples of the small world
        return " small, red, on the left, in the snow\n"
    return FIELD if request.seed % 2 else ROOM


@pytest.fixture(scope="module")
def text_engine() -> FakeTextEngine:
    return FakeTextEngine()


@pytest.fixture(scope="module")
def expanding(
    tmp_path_factory: pytest.TempPathFactory, text_engine: FakeTextEngine
) -> Iterator[RunningStudio]:
    folder = tmp_path_factory.mktemp("expand")
    model = str(write_world(folder / "model", small_world()))
    specs = [
        replace(SPEC, max_sequence_length=512),
        replace(SPEC, name="worldly", source=model),
    ]
    texts = Texts(text_engine)
    with RunningStudio(folder / "data", FakeEngine(), specs=specs, texts=texts) as studio:
        yield studio


@pytest.fixture
def ready(expanding: RunningStudio, text_engine: FakeTextEngine, open_page: OpenPage) -> Page:
    text_engine.answer, text_engine.hold = by_seed, None
    text_engine.status = EngineStatus("ready")
    text_engine.requests.clear()
    page = open_page(expanding.url)
    page.wait_for_selector(".expand[data-state=ready]")
    return page


def expand(page: Page, prompt: str = "a cat", state: str = "done") -> None:
    page.fill("#prompt textarea", prompt)
    page.click(".expand")
    page.wait_for_selector(f"#expansion-panel[data-state={state}]")


def press(page: Page, name: str) -> None:
    page.click(f"#expansion [data-expand={name}]")


def prompt_of(page: Page) -> str:
    return page.input_value("#prompt textarea")


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
