"""A running studio over a fake engine, and a real Chromium that looks at it."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize, sync_playwright

from studio.engine.protocol import EngineStatus
from studio.texts import Texts
from tests.browser.expanding import by_seed
from tests.fake_engine import FakeEngine
from tests.fake_text_engine import FakeTextEngine
from tests.running import RunningStudio
from tests.studio.conftest import SPEC
from tests.worlds import small_world, write_world

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--no-sandbox",  # as root in a container there is no sandbox to be had
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
TIMEOUT_MS = 10_000
DESKTOP: ViewportSize = {"width": 1440, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
STEP_S = 0.02

OpenPage = Callable[..., Page]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The machine's Chromium, else the one that Playwright installed."""
    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="package")
def shared_studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudio]:
    with RunningStudio(tmp_path_factory.mktemp("data"), FakeEngine()) as studio:
        yield studio


@pytest.fixture
def studio(shared_studio: RunningStudio) -> Iterator[RunningStudio]:
    """The shared studio at its usual pace, with nothing left to do before and after."""
    engine = shared_studio.engine
    engine.step_s = STEP_S
    yield shared_studio
    for view in shared_studio.jobs.active("local"):
        shared_studio.jobs.cancel(view.id, "local")
    engine.release()


@pytest.fixture(scope="package")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One browser context for all tests, so that Gradio's two megabytes are fetched once."""
    with browser.new_context() as context:
        context.set_default_timeout(TIMEOUT_MS)
        yield context


@pytest.fixture
def open_page(context: BrowserContext) -> Iterator[OpenPage]:
    """`open_page(url)` opens a tab. The first of a test begins with empty browser storage; script
    errors fail the test."""
    pages: list[Page] = []
    errors: list[str] = []

    def opened(url: str, viewport: ViewportSize = DESKTOP) -> Page:
        page = context.new_page()
        page.set_viewport_size(viewport)
        page.on("pageerror", lambda error: errors.append(str(error)))
        if not pages:
            forget = {"origin": url, "storageTypes": "local_storage"}
            context.new_cdp_session(page).send("Storage.clearDataForOrigin", forget)
        pages.append(page)
        show(page, url)
        return page

    yield opened
    for page in pages:
        page.close()
    assert not errors


@pytest.fixture
def page(studio: RunningStudio, open_page: OpenPage) -> Page:
    return open_page(studio.url)


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A plain 400 × 300 photo without settings."""
    from PIL import Image

    path = tmp_path / "photo.png"
    Image.new("RGB", (400, 300), (180, 60, 40)).save(path)
    return path


def show(page: Page, url: str) -> None:
    """Open or reload, until the page shows the studio's state and planned its first picture."""
    page.goto(url)
    page.wait_for_selector(".topbar")
    page.wait_for_selector("#plan b")


def generate(page: Page, prompt: str) -> None:
    """Write a prompt and press the button."""
    page.fill("#prompt textarea", prompt)
    page.click("#generate")


def wait_for_pictures(page: Page, prompt: str, count: int = 1) -> None:
    """Until the stage shows this prompt's finished pictures, loaded."""
    page.wait_for_selector(f".caption-prompt:text-is('{prompt}')")
    page.wait_for_function(
        "count => { const all = [...document.querySelectorAll('#stage .shot img')];"
        "return all.length === count && all.every(img => img.complete && img.naturalWidth > 0); }",
        arg=count,
    )


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
