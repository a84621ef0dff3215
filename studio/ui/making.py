"""Handlers that start and stop a job and that show what it does. None of them makes a picture.

Closing a page kills a running Gradio generator, so `follow` only watches. It is started by the
page's opening, by a submit and by a slow timer, and finds the owner's jobs by itself. That is how a
reload, a second tab, a phone that slept and a restarted server all show the same job again.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import gradio as gr
from gradio.blocks import Block

from studio.errors import NotFound, StudioError
from studio.expansion.expand import Expander
from studio.job import JobView, Picture
from studio.jobs import Jobs
from studio.ui.expansion import expand_button
from studio.ui.form import FormValues, Offer, draft_of, received
from studio.ui.history import read_history
from studio.ui.layout import Page
from studio.ui.notes import problem, seed_note
from studio.ui.owner import owner_of
from studio.ui.paths import Place
from studio.ui.shots import strip
from studio.ui.source import Upload, UploadLimits, read_uploads
from studio.ui.stage import idle_stage, is_opening, job_stage
from studio.ui.topbar import topbar

Updates = dict[Block, Any]

OPENING_POLL_S = 0.4  # how often the loading percent is looked at
FOLLOW_S = 10.0  # a follower's longest life: a tab that was hidden meanwhile lets go
AWAY_S = 0.5  # enough for one look
IDLE = "idle"


class Making:
    """Submit, stop and follow, for the components of one page."""

    def __init__(
        self,
        jobs: Jobs,
        page: Page,
        offer: Offer,
        *,
        limits: UploadLimits,
        examples: tuple[str, ...],
        place: Place,
        expander: Expander | None = None,
    ) -> None:
        self._jobs = jobs
        self._page = page
        self._offer = offer
        self._place = place
        self._limits = limits
        self._examples = examples
        self._expander = expander

    def submit(self, request: gr.Request, *inputs: Any) -> Updates:
        """Hand the form in; `inputs` are its values, the upload's path and whether it counts."""
        *values, path, is_present = inputs
        upload = path if is_present else None
        page = self._page
        try:
            view = self._submit(received(values, self._offer), upload, owner_of(request))
        except StudioError as error:
            return {page.problem: problem(error)}
        return {
            page.problem: "",
            page.submitted: view.id,
            page.stop: gr.update(visible=True),
            **self._seed(view),
        }

    def stop(self, seen: str, request: gr.Request) -> Updates:
        """Cancel the job that the stage shows; the page can hand in the next at once."""
        owner = owner_of(request)
        page = self._page
        active = [view.id for view in self._active(owner)]
        if not active:
            return {page.stop: gr.update(visible=False)}
        # Right after a submit the stage may still show what came before.
        view = self._jobs.cancel(seen if seen in active else active[0], owner)
        if len(active) > 1:
            return {page.stop: gr.update(visible=True)}
        return {page.stop: gr.update(visible=False), page.stage: self._stage(view, 0)}

    async def follow(
        self,
        seen: str,
        submitted: str,
        reported: str,
        shown: int,
        is_away: bool,
        request: gr.Request,
    ) -> AsyncGenerator[Updates]:
        """Show this owner's jobs, oldest first, until none is left, or the model while it loads.

        `submitted` is shown even when it ended before anybody looked, as a refused job does.
        """
        owner = owner_of(request)
        until = time.monotonic() + (AWAY_S if is_away else FOLLOW_S)
        while True:
            active = self._active(owner)
            job_id = active[0].id if active else submitted if submitted != reported else ""
            if job_id:
                reported = submitted if job_id == submitted else reported
                async with aclosing(self._watch(job_id, owner, until)) as views:
                    async for view in views:
                        updates = await self._frame(view, owner, shown)
                        yield updates | {self._page.reported: reported}
                seen = job_id
            else:
                status = self._jobs.engine_status
                key = f"{IDLE}:{status.state}:{status.fraction}:{status.detail}"
                # Always something: Gradio empties the outputs of a generator that yields nothing.
                yield await self._idle(seen, key, owner, shown)
                seen = key if seen.startswith(IDLE) or not seen else seen
                if not is_opening(status):
                    return
                await asyncio.sleep(OPENING_POLL_S)
            if time.monotonic() >= until:
                return

    async def _watch(self, job_id: str, owner: str, until: float) -> AsyncGenerator[JobView]:
        watch = self._jobs.watch(job_id, owner)
        async with aclosing(watch):
            # NotFound: a job that another owner submitted from this browser.
            with suppress(NotFound, TimeoutError):
                while view := await asyncio.wait_for(anext(watch, None), until - time.monotonic()):
                    yield view

    def _submit(self, values: FormValues, upload: Upload, owner: str) -> JobView:
        pictures = read_uploads(upload, self._limits)
        sizes = tuple(picture.size for picture in pictures)
        draft = draft_of(values, self._offer.spec, sizes)
        pixels = [picture.pixels for picture in pictures]
        return self._jobs.submit(draft, owner=owner, origin="page", pictures=pixels)

    def _active(self, owner: str) -> list[JobView]:
        """Only the page's own: a program's thousand jobs do not belong on the stage."""
        return [view for view in self._jobs.active(owner) if view.origin == "page"]

    async def _frame(self, view: JobView, owner: str, shown: int) -> Updates:
        page = self._page
        waiting = sum(other.id != view.id for other in self._active(owner))
        updates: Updates = {
            page.stage: self._stage(view, waiting),
            page.stop: gr.update(visible=not view.is_final or waiting > 0),
            page.seen: view.id,
            **self._engines(),
            **self._seed(view),
        }
        if view.status == "done":
            updates[page.strip] = await self._strip(owner, shown)
        return updates

    async def _idle(self, seen: str, key: str, owner: str, shown: int) -> Updates:
        """The first look at the page shows everything; later ones leave a finished job standing."""
        page = self._page
        updates: Updates = {page.stop: gr.update(visible=False), **self._engines()}
        if seen == key or (seen and not seen.startswith(IDLE)):
            return updates
        latest = await asyncio.to_thread(self._latest, owner)
        status, model = self._jobs.engine_status, self._offer.spec.name
        updates[page.stage] = idle_stage(status, latest, self._examples, model, self._place.base)
        updates[page.seen] = key
        if not seen:
            updates[page.strip] = await self._strip(owner, shown)
        return updates

    def _latest(self, owner: str) -> list[Picture]:
        """The pictures of the newest job, in its order."""
        newest = self._jobs.history(owner, limit=4).pictures
        mine = [picture for picture in newest if picture.job_id == newest[0].job_id]
        return sorted(mine, key=lambda picture: picture.index)

    async def _strip(self, owner: str, shown: int) -> str:
        pictures, has_more = await asyncio.to_thread(read_history, self._jobs, owner, shown)
        return strip(pictures, has_more=has_more, base=self._place.base)

    def _stage(self, view: JobView, waiting: int) -> str:
        return job_stage(view, self._jobs.engine_status, waiting, self._place.base)

    def _engines(self) -> Updates:
        """What the picture engine does, and the text engine where there is one."""
        bar = topbar(self._jobs.engine_status, self._offer.spec, self._place.models)
        text = self._expander.status if self._expander is not None else None
        if self._page.expand is None or text is None:
            return {self._page.topbar: bar}
        return {self._page.topbar: bar, self._page.expand: expand_button(text)}

    def _seed(self, view: JobView) -> Updates:
        controls = self._page.seed
        seed = str(view.request.seed)
        return {
            controls.note: seed_note(seed),
            controls.last: seed,
            controls.reuse: gr.update(visible=True),
        }
