"""What the tests of Expand share: a fake text model's answers, and hands on the panel."""

from playwright.sync_api import Page

from pipelines.text.requests import TextRequest

ROOM = " on a red sofa, soft warm light, open old book, dark green wall, oil paint\n"
FIELD = " in tall dry grass, low sun behind, long blue shadows, distant farm, film photograph\n"
IN_ROOM, IN_FIELD = f"a cat,{ROOM.rstrip()}", f"a cat,{FIELD.rstrip()}"
TOUCH_PX = 44


def by_seed(request: TextRequest) -> str:
    if "snow" in str(request.prompt):  # the examples of the small world
        return " small, red, on the left, in the snow\n"
    return FIELD if request.seed % 2 else ROOM


def expand(page: Page, prompt: str = "a cat", state: str = "done") -> None:
    page.fill("#prompt textarea", prompt)
    page.click(".expand")
    page.wait_for_selector(f"#expansion-panel[data-state={state}]")


def press(page: Page, name: str) -> None:
    page.click(f"#expansion [data-expand={name}]")


def prompt_of(page: Page) -> str:
    return page.input_value("#prompt textarea")
