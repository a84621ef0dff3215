"""Moves jobs between queue and engine, and turns engine events into states that owners see.

queued → loading (the engine has it) → running → done, failed, cancelled

Engine events are handled on one thread, in order; everything shared is under the lock of `Jobs`.
A worker that ends gives its jobs back to the queue: those that had begun count an attempt, and
after `MAX_ATTEMPTS` they fail with the cause. A job on its second attempt runs alone, so that a
request which kills the worker takes no neighbour with it.
"""

import logging
import threading
import time
from collections import deque
from dataclasses import replace
from queue import SimpleQueue

from sqlalchemy.exc import SQLAlchemyError

from pipelines import requests as render
from studio.encoding import encode_finished, encode_preview, read_sources
from studio.engine.protocol import Engine, EngineEvent, EngineStatus, WorkerLost
from studio.job import JobView, Status
from studio.library import JobRecord, Library
from studio.live import LiveJob, kept_view
from studio.queue import FairQueue
from studio.request import Notice
from studio.watch import Bells

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 2
MAX_IN_FLIGHT = 16  # jobs handed to the engine at once; it admits them by its own room
SECONDS_A_JOB = 5  # a guess for `Retry-After`; four pictures step together


class Dispatcher:
    """The unfinished jobs. Its methods are called with the lock held, but for `start`, `close`."""

    def __init__(
        self,
        library: Library,
        engine: Engine,
        bells: Bells,
        lock: threading.RLock,
        queue_capacity: int,
    ) -> None:
        self.live: dict[str, LiveJob] = {}
        self._library = library
        self._engine = engine
        self._bells = bells
        self._lock = lock
        self._queue = FairQueue(queue_capacity)
        self._in_flight: set[str] = set()
        # Restarts of the worker that is ready by the events handled so far: the jobs of a lost
        # worker must be taken back before the next one gets any.
        self._ready_after: int | None = None
        self.ended: dict[str, JobView] = {}  # over, but not yet written
        self._unwritten: deque[JobRecord] = deque()
        self.steps_computed = 0  # of the pictures finished since the start
        self.steps_predicted = 0
        self._events: SimpleQueue[EngineEvent | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="jobs", daemon=True)

    def recover(self) -> None:
        """Take up what an earlier run of the studio left; drop what only its client waited for."""
        for record in self._library.unfinished_jobs():
            live = LiveJob(record, attempts=record.attempts, warnings=list(record.warnings))
            live.pictures = {p.index: p for p in self._library.pictures_of(record.id)}
            self.live[record.id] = live
            if record.origin == "api":
                self.finish(live, "cancelled")
            elif record.status == "running":
                self._try_again(live, "The studio was stopped while it made this picture.")
            else:
                self._queue.restore(record.owner, record.id)

    def start(self) -> None:
        """Start the engine and listen to it."""
        self._thread.start()
        self._engine.start(self._events.put)

    def close(self) -> None:
        """End the engine. An orderly stop is no attempt: what ran waits for the next start."""
        self._engine.close()
        self._events.put(None)
        if self._thread.is_alive():
            self._thread.join()
        for live in self.live.values():
            if live.status == "running":
                self._library.update_job(live.record.id, status="queued")

    def check_room(self, owner: str) -> None:
        """Raises `QueueFull`."""
        waiting = len(self._queue)
        self._queue.check_room(owner, retry_after_s=SECONDS_A_JOB * max(1, waiting // 4))

    def enqueue(self, live: LiveJob) -> None:
        """Let a kept job wait for its turn, which may be now."""
        self.live[live.record.id] = live
        self._queue.push(live.record.owner, live.record.id)
        self._dispatch()
        self._bells.ring_all()  # places in the queue changed

    def view(self, job_id: str) -> JobView:
        """What the owner of an unfinished job sees now."""
        live = self.live[job_id]
        order = self._queue.order() if live.status == "queued" else []
        return live.view(order.index(job_id) if job_id in order else None)

    def finish(
        self, live: LiveJob, status: Status, code: str | None = None, message: str | None = None
    ) -> None:
        """A job is over, whether it waits, runs or was handed in; what follows of it is ignored."""
        job_id = live.record.id
        self._queue.remove(job_id)
        if job_id in self._in_flight:
            self._engine.cancel(job_id)
        ended = replace(
            live.record,
            status=status,
            finished_at=time.time(),
            started_at=live.started_at,
            attempts=live.attempts,
            warnings=tuple(live.warnings),
            error_code=code,
            error_message=message,
        )
        self.ended[job_id] = kept_view(ended, live.view(None).pictures)
        del self.live[job_id]
        self._write_ends(ended)
        self._bells.ring_all()  # of the job itself, and of those whose place in the queue changed

    def _write_ends(self, ended: JobRecord) -> None:
        """Keep how a job ended; where the disk is full, its owner is told all the same."""
        self._unwritten.append(ended)
        while self._unwritten:
            record = self._unwritten[0]
            try:
                self._library.end_job(record)
            except (SQLAlchemyError, OSError):
                log.exception("a job's end could not be written; it is tried again at the next one")
                return
            self._unwritten.popleft()
            del self.ended[record.id]

    # Engine events, on this class's thread

    def _run(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._handle(event)
            except Exception:  # the studio must outlive any single event
                log.exception("an engine event could not be handled: %s", type(event).__name__)

    def _handle(self, event: EngineEvent) -> None:
        if isinstance(event, render.PictureDone):
            self._on_picture(event)
            return
        with self._lock:
            if isinstance(event, EngineStatus):
                self._on_status(event)
            elif isinstance(event, WorkerLost):
                self._on_worker_lost(event.cause)
            else:
                self._on_request_event(event)

    def _on_status(self, status: EngineStatus) -> None:
        self._ready_after = status.restarts if status.state == "ready" else None
        if status.state == "failed":
            for live in [job for job in self.live.values() if job.record.origin == "api"]:
                self.finish(live, "failed", "engine_failed", status.detail)
        self._dispatch()
        self._bells.ring_all()

    def _on_worker_lost(self, cause: str) -> None:
        lost = [self.live[job_id] for job_id in self._in_flight if job_id in self.live]
        self._in_flight.clear()
        self._ready_after = None
        # Should none have begun, any of them may be the one that ended the worker.
        suspects = [live for live in lost if live.status == "running"] or lost
        for live in sorted(lost, key=lambda live: live.record.created_at):
            if live in suspects:
                self._try_again(live, cause)
            else:
                live.status = "queued"
                self._queue.push_front(live.record.id)
        self._bells.ring_all()

    def _try_again(self, live: LiveJob, cause: str) -> None:
        live.attempts += 1
        if live.attempts >= MAX_ATTEMPTS:
            message = f"{cause} It was tried {live.attempts} times. Try a smaller size."
            self.finish(live, "failed", "worker_lost", message)
            return
        live.status = "queued"
        self._library.update_job(live.record.id, status="queued", attempts=live.attempts)
        self._queue.push_front(live.record.id)

    def _on_picture(self, event: render.PictureDone) -> None:
        live = self.live.get(event.request_id)
        if live is None:
            return
        index = live.rendering[event.index]
        try:  # slow, so without the lock
            encoded = encode_finished(event, index, live.record.request)
            picture = self._library.store_picture(live.record, encoded)
        except (OSError, ValueError) as error:
            self._on_unsaved(live, error)
            return
        with self._lock:
            if event.request_id not in self.live:  # cancelled while it was encoded
                self._library.files.discard(picture)
                return
            try:
                self._library.add_picture(picture)
            except SQLAlchemyError as error:
                self._library.files.discard(picture)
                self._on_unsaved(live, error)
                return
            live.pictures[index] = picture
            self.steps_computed += picture.steps_computed
            self.steps_predicted += picture.steps_predicted
            self._bells.ring(event.request_id)

    def _on_unsaved(self, live: LiveJob, error: Exception) -> None:
        log.error("a picture could not be saved: %s", error)
        message = f"The picture could not be saved: {error}. Is there room in the data folder?"
        with self._lock:
            if live.record.id in self.live:
                self.finish(live, "failed", "save_failed", message)

    def _on_request_event(self, event: render.Event) -> None:
        live = self.live.get(event.request_id)
        match event:
            case render.Started() if live:
                live.begin(time.time())
                self._library.update_job(
                    live.record.id, status="running", started_at=live.started_at
                )
            case render.Warned(_, code, param, message) if live:
                live.warnings.append(Notice(code, param, message))
                self._library.update_job(live.record.id, warnings=tuple(live.warnings))
            case render.StepDone() if live:
                self._on_step(live, event)
            case render.RequestDone():
                self._leave(event.request_id, "done")
            case render.RequestFailed(_, code, message):
                self._leave(event.request_id, "failed", code, message)
            case render.RequestCancelled():
                self._leave(event.request_id, "cancelled")
        self._bells.ring(event.request_id)

    def _on_step(self, live: LiveJob, event: render.StepDone) -> None:
        live.advance(event.index, event.step, time.monotonic())
        if event.preview is not None:
            live.preview = encode_preview(event.preview)
            live.preview_index = live.rendering[event.index]

    def _leave(
        self, job_id: str, status: Status, code: str | None = None, message: str | None = None
    ) -> None:
        self._in_flight.discard(job_id)
        live = self.live.get(job_id)
        if live is not None:
            self.finish(live, status, code, message)
        self._dispatch()

    # From the queue to the engine

    def _dispatch(self) -> None:
        while self._ready_after is not None and (job_id := self._queue.peek()):
            live = self.live[job_id]
            in_flight = [self.live[other] for other in self._in_flight if other in self.live]
            is_alone = any(job.attempts > 0 for job in (live, *in_flight))
            if len(self._in_flight) >= (1 if is_alone else MAX_IN_FLIGHT):
                return
            self._queue.pop()
            self._hand_over(live)

    def _hand_over(self, live: LiveJob) -> None:
        if not live.hand_over():  # all its pictures were saved before the worker was lost
            self.finish(live, "done")
            return
        try:
            pictures = read_sources(self._library, live.record)
        except OSError:
            message = "A picture that came with it is gone; send it again."
            self.finish(live, "failed", "source_lost", message)
            return
        self._in_flight.add(live.record.id)
        assert self._ready_after is not None
        self._engine.submit(live.render_request(pictures), restarts=self._ready_after)
