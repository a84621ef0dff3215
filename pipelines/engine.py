"""The loop that the worker runs: admits pictures, steps all of them, decodes those that are done.

One thread calls everything here. `submit` and `cancel` only take notes; `tick` does the work and
tells what happened.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from pipelines.admission import Admission, Ticket
from pipelines.decode import MAX_PIXELS, decode_batches, decode_rows
from pipelines.denoise import Row, group_rows, new_row, step_rows
from pipelines.errors import NotFinite, OutOfMemory
from pipelines.failures import Failure, attempt
from pipelines.flux1 import Flux1, PictureEncoding, PromptEncoding
from pipelines.previews import Previewer
from pipelines.requests import (
    Event,
    PictureDone,
    Pixels,
    RenderRequest,
    RequestCancelled,
    RequestDone,
    RequestFailed,
    Started,
    StepDone,
    Warned,
    check_request,
)

# Tokens in flight. CUDA: seven pictures of 1024 x 1024 with their text, calculated, not measured.
# CPU: a batch gains nothing (a transformer of the embedded one's shape took 58 ms for one picture
# and 56 ms each for twenty, one core), so more would only make everybody wait: four of 256 x 256.
MAX_TOKENS = {"cuda": 7 * (4096 + 512), "cpu": 512}
MAX_LOST_CHARACTERS = 500  # of a prompt's end, in a warning
NOT_FINITE = "The model's prediction has values that are not numbers. Try other settings or a seed."
log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Job:
    """A request that the engine has taken. `prompts` is empty until its first picture starts."""

    request: RenderRequest
    pictures_left: int
    prompts: list[PromptEncoding] = field(default_factory=list)
    source: PictureEncoding | None = None
    is_announced: bool = False


class PictureEngine:
    """Denoises many requests at once, each picture at its own step.

    A request that fails does so alone. Only an error that leaves the device unusable is raised, by
    `tick`: the process has to be started anew.
    `max_tokens` bounds the picture and text tokens in flight; `clock` gives seconds.
    """

    def __init__(
        self,
        model: Flux1,
        *,
        max_tokens: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._max_tokens = max_tokens or _of_device(MAX_TOKENS, model)
        self._admission = Admission(self._max_tokens)
        self._previewer = Previewer(model, clock)
        self._jobs: dict[str, Job] = {}
        self._admitted: list[Ticket] = []  # announced, not started
        self._rows: list[Row] = []
        self._events: list[Event] = []

    @property
    def is_idle(self) -> bool:
        return not (self._jobs or self._events)

    def submit(self, request: RenderRequest) -> None:
        """Queues a request; one that cannot be rendered fails in the next tick.

        Raises ValueError where the id is in use.
        """
        if request.id in self._jobs:
            raise ValueError(f"request {request.id!r} is already in the engine")
        self._jobs[request.id] = Job(request, len(request.seeds))
        failure = attempt(lambda: check_request(request, self._model.spec))
        if isinstance(failure, Failure):
            return self._fail(request.id, failure)
        tokens = self._tokens_a_picture(request)
        for index in range(len(request.seeds)):
            self._admission.add(Ticket(request.id, index, request.owner, tokens))

    def cancel(self, request_id: str) -> None:
        """Drops a request before the next tick; an unknown or finished one is left alone."""
        if request_id in self._jobs:
            self._forget(request_id)
            self._events.append(RequestCancelled(request_id))

    @torch.inference_mode()
    def tick(self) -> list[Event]:
        """One step of every running picture, or news of those that start next; empty when idle.

        `Started` is told before the first work on a request, so that a request which ends the whole
        process can be known from outside.
        """
        if not self._announce():
            self._start_admitted()
            stepped = self._step()
            self._report(stepped)
            self._decode([row for row in stepped if row.is_finished])
        events, self._events = self._events, []
        return events

    # Starting

    def _announce(self) -> bool:
        """Admits pictures; whether requests are among them that nobody has heard of."""
        news = False
        for ticket in self._admission.admit():
            self._admitted.append(ticket)
            job = self._jobs[ticket.request_id]
            if not job.is_announced:
                job.is_announced = news = True
                self._events.append(Started(ticket.request_id))
        return news

    def _start_admitted(self) -> None:
        while self._admitted:
            ticket = self._admitted.pop(0)
            job = self._jobs[ticket.request_id]
            row = attempt(partial(self._start, job, ticket.index))
            if isinstance(row, Failure):
                self._fail(ticket.request_id, row)
            else:
                self._rows.append(row)

    def _start(self, job: Job, index: int) -> Row:
        if not job.prompts:
            self._encode(job)
        return new_row(self._model, job.request, index, job.prompts, job.source)

    def _encode(self, job: Job) -> None:
        """Prompts and source once for all pictures of a request."""
        request = job.request
        texts = prompts_of(request)
        job.prompts = self._model.encode_prompts([(clip, t5) for _, clip, t5 in texts])
        if request.source is not None:
            job.source = self._model.encode_picture(request.source)
        for param, _, t5 in texts:
            self._warn_of_cut(request.id, param, t5)

    def _warn_of_cut(self, request_id: str, param: str, prompt: str) -> None:
        tokens, limit, cut = self._model.measure_prompt(prompt)
        if tokens > limit:
            lost = cut if len(cut) <= MAX_LOST_CHARACTERS else f"{cut[:MAX_LOST_CHARACTERS]} …"
            message = f"This model reads {limit} tokens of {tokens}; it did not read: {lost}"
            self._events.append(Warned(request_id, "prompt_truncated", param, message))

    def _tokens_a_picture(self, request: RenderRequest) -> int:
        picture = self._model.grid(request.width, request.height).tokens
        return (picture + self._model.spec.max_sequence_length) * len(prompts_of(request))

    # Stepping

    def _step(self) -> list[Row]:
        """Steps every row and returns those that moved."""
        stepped: list[Row] = []
        for group in group_rows(self._rows, self._max_tokens):
            stepped += self._step_group(group)
        return [row for row in stepped if self._is_alive(row)]

    def _step_group(self, rows: list[Row]) -> list[Row]:
        """Where a group fails, its halves are tried, down to the row at fault."""
        rows = [row for row in rows if self._is_alive(row)]
        if not rows:
            return []
        broken = attempt(lambda: step_rows(self._model, rows))
        if isinstance(broken, list):
            for row in broken:
                self._fail(row.request.id, Failure(NotFinite.code, NOT_FINITE))
            return rows
        if len(rows) == 1:
            self._fail(rows[0].request.id, broken)
            return []
        middle = len(rows) // 2
        stepped = self._step_group(rows[:middle]) + self._step_group(rows[middle:])
        if broken.code == OutOfMemory.code and len(stepped) == len(rows):
            # No row was at fault: the group was too large, and would be in every tick.
            self._lower_limit(sum(row.tokens for row in rows) // 2)
        return stepped

    def _lower_limit(self, tokens: int) -> None:
        if tokens < self._max_tokens:
            log.warning("Out of memory: from now on %d tokens run at once", tokens)
            self._max_tokens = self._admission.max_tokens = tokens

    def _report(self, rows: Sequence[Row]) -> None:
        shown = self._previewer.choose(rows)
        for row in rows:
            preview = self._preview(row) if row is shown else None
            done = StepDone(row.request.id, row.index, row.steps_done, row.steps, preview)
            self._events.append(done)

    def _preview(self, row: Row) -> Pixels | None:
        """None where drawing fails: a preview is never worth a picture."""
        preview = attempt(partial(self._previewer.draw, row))
        return None if isinstance(preview, Failure) else preview

    # Finishing

    def _decode(self, rows: Sequence[Row]) -> None:
        for batch in decode_batches(rows, _of_device(MAX_PIXELS, self._model)):
            self._decode_batch(batch)

    def _decode_batch(self, rows: Sequence[Row]) -> None:
        """Where a batch fails, each row is tried alone."""
        rows = [row for row in rows if self._is_alive(row)]
        pictures = attempt(lambda: decode_rows(self._model, rows)) if rows else []
        if isinstance(pictures, list):
            for row, pixels in zip(rows, pictures, strict=True):
                self._finish(row, pixels)
        elif len(rows) == 1:
            self._fail(rows[0].request.id, pictures)
        else:
            for row in rows:
                self._decode_batch([row])

    def _finish(self, row: Row, pixels: Pixels) -> None:
        request, job = row.request, self._jobs[row.request.id]
        self._events.append(PictureDone(request.id, row.index, row.seed, pixels, row.steps))
        self._admission.release(request.id, row.index)
        self._rows.remove(row)
        job.pictures_left -= 1
        if job.pictures_left == 0:
            self._forget(request.id)
            self._events.append(RequestDone(request.id))

    def _fail(self, request_id: str, failure: Failure) -> None:
        """Tells the first failure of a request; several of its pictures may fail in one step."""
        if request_id in self._jobs:
            self._forget(request_id)
            self._events.append(RequestFailed(request_id, failure.code, failure.message))

    def _forget(self, request_id: str) -> None:
        del self._jobs[request_id]
        self._admission.drop(request_id)
        self._admitted = [each for each in self._admitted if each.request_id != request_id]
        self._rows = [row for row in self._rows if row.request.id != request_id]

    def _is_alive(self, row: Row) -> bool:
        return row.request.id in self._jobs


def _of_device(limits: dict[str, int], model: Flux1) -> int:
    return limits.get(model.device.type, limits["cpu"])


def prompts_of(request: RenderRequest) -> list[tuple[str, str, str]]:
    """What CLIP and T5 read: the parameter that T5's text comes from, CLIP's text, T5's text."""
    prompt, second = request.prompt, request.secondary_prompt
    prompts = [("secondary_prompt" if second else "prompt", prompt, second or prompt)]
    if request.uses_true_cfg:
        negative, second = request.negative_prompt or "", request.secondary_negative_prompt
        param = "secondary_negative_prompt" if second else "negative_prompt"
        prompts.append((param, negative, second or negative))
    return prompts
