"""Handlers of the history strip: more of it, and a picture less."""

from typing import Any

import gradio as gr
from gradio.blocks import Block

from studio.errors import StudioError
from studio.job import Picture
from studio.jobs import Jobs
from studio.ui.form import Offer, from_settings
from studio.ui.layout import Page
from studio.ui.notes import problem, told
from studio.ui.owner import owner_of
from studio.ui.paths import Place
from studio.ui.shots import strip

Updates = dict[Block, Any]

PAGE_SIZE = 24


def read_history(jobs: Jobs, owner: str, shown: int) -> tuple[tuple[Picture, ...], bool]:
    """At least the newest `shown` pictures where there are as many, and whether there are more.

    Read anew each time: the strip then also shows what another tab or a program made or deleted.
    """
    pictures: tuple[Picture, ...] = ()
    cursor: str | None = None
    while True:
        page = jobs.history(owner, before=cursor, limit=PAGE_SIZE)
        pictures += page.pictures
        cursor = page.next
        if cursor is None or len(pictures) >= shown:
            return pictures, cursor is not None


class History:
    """What a click in the strip or in the large view asks for."""

    def __init__(self, jobs: Jobs, page: Page, offer: Offer, place: Place) -> None:
        self._jobs = jobs
        self._offer = offer
        self._place = place
        self._page = page

    def more(self, shown: int, request: gr.Request) -> Updates:
        """One page more of the strip."""
        return self._strip(shown + PAGE_SIZE, owner_of(request))

    def delete(self, event: gr.EventData, shown: int, request: gr.Request) -> Updates:
        """Delete one picture for good; the page asked before."""
        owner = owner_of(request)
        try:
            self._jobs.delete_picture(_picture_id(event), owner)
        except StudioError as error:
            return {self._page.problem: problem(error)} | self._strip(shown, owner)
        return self._strip(shown, owner)

    def use(self, event: gr.EventData, request: gr.Request) -> Updates:
        """Fill the form with a picture's settings, its own seed among them."""
        page = self._page
        try:
            picture = self._jobs.picture(_picture_id(event), owner_of(request))
        except StudioError as error:
            return {page.problem: problem(error)}
        settings = picture.request.to_dict() | {"seed": picture.seed, "count": 1}
        values = from_settings(settings, self._offer)
        said = "The settings of that picture are in the form now."
        if picture.request.has_source:
            said += " It started from a source picture: add it again to repeat it."
        elif picture.request.references:
            said += " It looked at a picture: add it again to repeat it."
        return form_updates(page, values) | {page.problem: told(said)}

    def _strip(self, shown: int, owner: str) -> Updates:
        pictures, has_more = read_history(self._jobs, owner, shown)
        return {
            self._page.shown: shown,
            self._page.strip: strip(pictures, has_more=has_more, base=self._place.base),
        }


def form_updates(page: Page, values: Any) -> Updates:
    """Each control's new value."""
    fields = (getattr(values, name) for name in values.__slots__)
    return dict(zip(page.form(), fields, strict=True))


def _picture_id(event: gr.EventData) -> str:
    """What the script sent; anything may come over the wire."""
    value = event._data.get("id") if isinstance(event._data, dict) else None
    return value if isinstance(value, str) else ""
