"""What surrounds the page: no other network, no second API, no loss of the application's routes."""

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.running import RunningStudio

pytestmark = pytest.mark.browser


def test_nothing_is_loaded_from_elsewhere(studio: RunningStudio, browser: Browser) -> None:
    seen: list[str] = []
    with browser.new_context() as context:
        page = context.new_page()
        page.on("request", lambda request: seen.append(request.url))
        page.goto(studio.url)
        page.wait_for_selector("#plan b")
        page.wait_for_timeout(3500)  # a tick of the timer, which must leave an idle page as it is
        expect(page.locator(".topbar")).to_be_visible()
    foreign = [url for url in seen if not url.startswith((studio.url, "data:", "blob:"))]
    assert seen and not foreign


def test_the_page_is_dark_whatever_the_system_prefers(
    studio: RunningStudio, browser: Browser
) -> None:
    with browser.new_context(color_scheme="light") as context:
        page = context.new_page()
        page.goto(studio.url)
        page.wait_for_selector(".topbar")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 15, 18)"
        page.get_by_label("Light or dark").click()
        expect(page.locator("html")).to_have_attribute("data-theme", "light")


def test_handlers_are_no_second_api(studio: RunningStudio) -> None:
    info = httpx.get(f"{studio.url}/gradio_api/info", trust_env=False).json()
    assert info == {"named_endpoints": {}, "unnamed_endpoints": {}}


def test_messages_are_not_lost_when_two_events_are_queued(studio: RunningStudio) -> None:
    config = httpx.get(f"{studio.url}/config", trust_env=False).json()
    handlers = [event for event in config["dependencies"] if event["backend_fn"]]
    assert sum(event["queue"] for event in handlers) == 1


def test_a_tab_keeps_no_connection_while_nothing_happens(studio: RunningStudio) -> None:
    config = httpx.get(f"{studio.url}/config", trust_env=False).json()
    assert config["connect_heartbeat"] is False


@pytest.mark.parametrize("path", ["/health/live", "/docs", "/openapi.json", "/v1/models"])
def test_the_routes_before_the_page_are_still_there(studio: RunningStudio, path: str) -> None:
    assert httpx.get(studio.url + path, trust_env=False).status_code == 200
