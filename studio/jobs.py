"""What an owner can do: submit, watch, cancel, look back. Page and API both speak to this alone."""

import threading
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import numpy as np
from anyio import to_thread
from numpy.typing import NDArray
from sqlalchemy.exc import SQLAlchemyError

from pipelines.specs import ModelSpec
from studio.dispatch import Dispatcher
from studio.encoding import encode_source
from studio.engine.protocol import Engine, EngineStatus
from studio.errors import StudioError, Unavailable, unknown_model
from studio.job import JobView, Origin, Picture
from studio.library import HistoryPage, JobRecord, Library
from studio.live import LiveJob, kept_view
from studio.pictures import fit_picture
from studio.request import Draft, Notice, PictureRequest
from studio.roles import Roles, fitted_sizes
from studio.settle import settle
from studio.step_cache import UNSET, CacheSetting
from studio.watch import Bell, Bells
from studio.world import World

Pixels = NDArray[np.uint8]


class Jobs:
    """All jobs of one studio. Methods may be called from any thread; `watch` from any loop."""

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        library: Library,
        engine: Engine,
        *,
        queue_capacity: int = 64,
        max_images: int = 4,
        cache: CacheSetting = UNSET,
        worlds: Mapping[str, World] | None = None,
    ) -> None:
        self.specs = {spec.name: spec for spec in specs}  # the first is the default
        self.worlds = dict(worlds or {})  # what a model can draw, where that is told
        self.max_images = max_images
        self.cache = cache
        self.library = library  # where the API finds the files that it serves
        self._engine = engine
        self._bells = Bells()
        self._lock = threading.RLock()
        self._dispatcher = Dispatcher(library, engine, self._bells, self._lock, queue_capacity)

    def start(self) -> None:
        """Take up what an earlier run left, and start the engine. Returns at once."""
        self.library.sweep(time.time())
        self._dispatcher.recover()
        self._dispatcher.start()

    def close(self) -> None:
        """End the engine; unfinished jobs of page and `background` wait for the next start."""
        self._dispatcher.close()
        self.library.close()

    @property
    def engine_status(self) -> EngineStatus:
        """What the engine is doing; never blocks."""
        return self._engine.status

    @property
    def steps_computed(self) -> int:
        """Of all pictures finished since the start, whole steps of the model."""
        return self._dispatcher.steps_computed

    @property
    def steps_predicted(self) -> int:
        """Of all pictures finished since the start, steps that the step cache spared."""
        return self._dispatcher.steps_predicted

    def plan(self, draft: Draft) -> tuple[PictureRequest, tuple[Notice, ...]]:
        """What `submit` would run. Raises `BadRequest`, and `NotFound` for another model."""
        spec = self.spec_of(draft.model)
        return settle(draft, spec, max_images=self.max_images, cache=self.cache)

    def spec_of(self, name: str | None) -> ModelSpec:
        """A served model; None is the default. Raises `NotFound`."""
        if name is None:
            return next(iter(self.specs.values()))
        if name not in self.specs:
            served = ", ".join(map(repr, self.specs))
            raise unknown_model(
                f"There is no model {name[:100]!r} here; this studio serves {served}."
            )
        return self.specs[name]

    def submit(
        self,
        draft: Draft,
        *,
        owner: str,
        origin: Origin,
        pictures: Sequence[Pixels] = (),
        notices: tuple[Notice, ...] = (),
        client: dict[str, Any] | None = None,
    ) -> JobView:
        """Queue a request with its pictures, each of any size, `[h, w, 3]`.

        `notices` are the caller's own, shown with ours; `client` comes back in every view.
        Raises `BadRequest`, `QueueFull`, and `Unavailable` when no engine could be started or the
        job cannot be kept.
        """
        request, own = self.plan(draft)
        record = JobRecord(
            id=uuid.uuid4().hex,
            owner=owner,
            origin=origin,
            request=request,
            created_at=time.time(),
            warnings=own + notices,
            client=client or {},
        )
        self._check_door(owner)
        try:
            self._keep_pictures(record, pictures)  # slow, so without the lock
            with self._lock:
                self._check_door(owner)
                self.library.add_job(record)
                self._dispatcher.enqueue(LiveJob(record, warnings=list(record.warnings)))
                return self._dispatcher.view(record.id)
        except StudioError:
            self.library.files.drop_sources(record.id)
            raise
        except (OSError, SQLAlchemyError) as error:
            self.library.files.drop_sources(record.id)
            message = f"The job could not be kept: {error}. Is there room in the data folder?"
            raise Unavailable(message, code="save_failed") from error

    def _keep_pictures(self, record: JobRecord, pictures: Sequence[Pixels]) -> None:
        """As files of the sizes that the engine takes. Raises `OSError`."""
        request = record.request
        roles = Roles(request.has_source, request.references)
        given = [(pixels.shape[1], pixels.shape[0]) for pixels in pictures]
        spec = self.spec_of(request.model)
        sizes = fitted_sizes(given, roles, (request.width, request.height), spec)
        for index, (pixels, size) in enumerate(zip(pictures, sizes, strict=True)):
            png = encode_source(fit_picture(pixels, *size))
            self.library.files.write_source(record.id, index, png)

    def _check_door(self, owner: str) -> None:
        status = self.engine_status
        if status.state == "failed":
            message = f"The model could not be loaded: {status.detail}"
            raise Unavailable(message, code="engine_failed")
        with self._lock:
            self._dispatcher.check_room(owner)

    def cancel(self, job_id: str, owner: str) -> JobView:
        """End a job now: nothing more of it is saved. A finished job stays as it is."""
        with self._lock:
            live = self._dispatcher.live.get(job_id)
            if live is not None and live.record.owner == owner:
                self._dispatcher.finish(live, "cancelled")
        return self.get(job_id, owner)

    def get(self, job_id: str, owner: str) -> JobView:
        """One job of this owner. Raises `NotFound`."""
        with self._lock:
            live = self._dispatcher.live.get(job_id)
            if live is not None and live.record.owner == owner:
                return self._dispatcher.view(job_id)
            ended = self._dispatcher.ended.get(job_id)
        if ended is not None and ended.owner == owner:
            return ended
        return kept_view(self.library.job(job_id, owner), self.library.pictures_of(job_id))

    def active(self, owner: str) -> list[JobView]:
        """This owner's unfinished jobs, oldest first."""
        with self._lock:
            jobs = self._dispatcher.live.items()
            mine = [job_id for job_id, live in jobs if live.record.owner == owner]
            return [self._dispatcher.view(job_id) for job_id in mine]

    async def watch(self, job_id: str, owner: str) -> AsyncGenerator[JobView]:
        """The job now, then after each change, until it is over. Raises `NotFound`."""
        bell = Bell()
        with self._lock:
            self._bells.hang(job_id, bell)
        try:
            while True:
                view = await to_thread.run_sync(self.get, job_id, owner)
                yield view
                if view.is_final:
                    return
                await bell.heard()
        finally:
            with self._lock:
                self._bells.take_down(job_id, bell)

    def history(self, owner: str, *, before: str | None = None, limit: int = 24) -> HistoryPage:
        """This owner's pictures, newest first."""
        return self.library.history(owner, before, limit)

    def picture(self, picture_id: str, owner: str) -> Picture:
        """One picture of this owner. Raises `NotFound`."""
        return self.library.picture(picture_id, owner)

    def delete_picture(self, picture_id: str, owner: str) -> None:
        """Remove a picture and its files. Raises `NotFound`."""
        self.library.delete_picture(picture_id, owner)
