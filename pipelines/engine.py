"""The loop that the worker runs: admits pictures, steps all of them, decodes those that are done.

One thread calls everything here. `submit` and `cancel` only take notes; `tick` does the work and
tells what happened.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from pipelines.admission import Admission, Ticket
from pipelines.cache_rules import idle_value
from pipelines.decode import decode_rows
from pipelines.decode_line import DecodeLine
from pipelines.denoise import step_groups, step_rows
from pipelines.encodings import Encodings
from pipelines.errors import NotFinite, OutOfMemory
from pipelines.failures import ENGINE_ERROR, Failure, attempt
from pipelines.flux import Flux
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
from pipelines.row import Conditioning, Row, group_rows, new_row
from pipelines.step_memory import measure_max_tokens
from pipelines.unknown_words import warning_of

MAX_LOST_CHARACTERS = 500  # of a prompt's end, in a warning
log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Job:
    """A request that the engine has taken. `given` is None until its first picture starts."""

    request: RenderRequest
    pictures_left: int
    given: Conditioning | None = None
    is_announced: bool = False


class PictureEngine:
    """Denoises many requests at once, each picture at its own step.

    A request that fails does so alone. Only an error that leaves the device unusable is raised, by
    `tick`: the process has to be started anew.
    `max_tokens` bounds the picture and text tokens in flight; `clock` gives seconds.
    """

    def __init__(
        self,
        model: Flux,
        *,
        max_tokens: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._max_tokens = max_tokens or measure_max_tokens(model)
        self._admission = Admission(self._max_tokens)
        self._encodings = Encodings(model)
        self._previewer = Previewer(model, clock)
        self._line = DecodeLine(model, decode_rows)
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
        if job.given is None:
            job.given = self._encode(job.request)
        return new_row(self._model, job.request, index, job.given)

    def _encode(self, request: RenderRequest) -> Conditioning:
        """Prompts and pictures once for all pictures of a request."""
        texts = prompts_of(request)
        prompts = self._encodings.prompts([(first, second) for _, first, second in texts])
        source = None if request.source is None else self._model.encode_picture(request.source)
        references = tuple(self._encodings.reference(pixels) for pixels in request.references)
        for param, _, text in texts:
            self._warn_of_cut(request.id, param, text)
            self._warn_of_unknown_words(request.id, param, text)
        self._warn_of_idle_cache(request)
        return Conditioning(prompts, source, references)

    def _warn_of_cut(self, request_id: str, param: str, prompt: str) -> None:
        tokens, limit, cut = self._model.prompts.measure(prompt)
        if tokens > limit:
            lost = cut if len(cut) <= MAX_LOST_CHARACTERS else f"{cut[:MAX_LOST_CHARACTERS]} …"
            message = f"This model reads {limit} tokens of {tokens}; it did not read: {lost}"
            self._events.append(Warned(request_id, "prompt_truncated", param, message))

    def _warn_of_unknown_words(self, request_id: str, param: str, prompt: str) -> None:
        if words := self._model.prompts.unknown_words(prompt):
            self._events.append(Warned(request_id, "words_unknown", param, warning_of(words)))

    def _warn_of_idle_cache(self, request: RenderRequest) -> None:
        param = idle_value(request.cache, request.steps_run)
        if request.cache.name != "off" and param is not None:
            value = getattr(request.cache, param)
            message = f"With {param} {value} each of the {request.steps_run} steps is computed."
            self._events.append(Warned(request.id, "cache_idle", param, message))

    def _tokens_a_picture(self, request: RenderRequest) -> int:
        sizes = [(request.width, request.height)]
        sizes += [(pixels.shape[1], pixels.shape[0]) for pixels in request.references]
        pictures = sum(self._model.grid(*size).tokens for size in sizes)
        return (pictures + self._model.spec.max_sequence_length) * len(prompts_of(request))

    # Stepping

    def _step(self) -> list[Row]:
        """Steps every row and returns those that moved."""
        groups = group_rows(self._rows, self._max_tokens)
        outcomes = attempt(partial(step_groups, self._model, groups))
        if isinstance(outcomes, Failure):
            outcomes = [outcomes] * len(groups)
        stepped: list[Row] = []
        for rows, outcome in zip(groups, outcomes, strict=True):
            stepped += self._judge(rows, outcome)
        return [row for row in stepped if self._is_alive(row)]

    def _step_group(self, rows: list[Row]) -> list[Row]:
        rows = [row for row in rows if self._is_alive(row)]
        return self._judge(rows, attempt(partial(step_rows, self._model, rows))) if rows else []

    def _judge(self, rows: list[Row], outcome: list[Row] | Failure) -> list[Row]:
        """Where a group failed, its halves are tried, down to the row at fault."""
        if isinstance(outcome, list):
            for row in outcome:
                self._fail(row.request.id, _not_finite(row))
            return rows
        if outcome.code == OutOfMemory.code and self._model.graphs is not None:
            self._model.graphs.clear()
        if len(rows) == 1:
            self._fail(rows[0].request.id, _at_step(rows[0], outcome))
            return []
        middle = len(rows) // 2
        stepped = self._step_group(rows[:middle]) + self._step_group(rows[middle:])
        if outcome.code == OutOfMemory.code and len(stepped) == len(rows):
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
            done = StepDone(
                row.request.id, row.index, row.steps_done, row.steps, preview, row.was_predicted
            )
            self._events.append(done)

    def _preview(self, row: Row) -> Pixels | None:
        """None where drawing fails: a preview is never worth a picture."""
        preview = attempt(partial(self._previewer.draw, row))
        return None if isinstance(preview, Failure) else preview

    # Finishing

    def _decode(self, finished: Sequence[Row]) -> None:
        """Puts rows in line and tells what the line has done, of this tick or of earlier ones."""
        for row in finished:
            self._rows.remove(row)
            self._line.add(row)
        for row, picture in self._line.turn(may_wait=not self._rows):
            if not self._is_alive(row):
                continue
            if isinstance(picture, Failure):
                self._fail(row.request.id, picture)
            else:
                self._finish(row, picture)

    def _finish(self, row: Row, pixels: Pixels) -> None:
        request, job = row.request, self._jobs[row.request.id]
        computed = row.steps - row.steps_predicted
        done = PictureDone(
            request.id, row.index, row.seed, pixels, row.steps, computed, row.steps_predicted
        )
        self._events.append(done)
        self._admission.release(request.id, row.index)
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
        self._line.drop(request_id)
        self._admitted = [each for each in self._admitted if each.request_id != request_id]
        self._rows = [row for row in self._rows if row.request.id != request_id]

    def _is_alive(self, row: Row) -> bool:
        return row.request.id in self._jobs


def _not_finite(row: Row) -> Failure:
    message = f"The model's prediction has values that are not numbers, at {_step(row)}."
    return Failure(NotFinite.code, f"{message} Try other settings or a seed.")


def _at_step(row: Row, failure: Failure) -> Failure:
    """An unforeseen error with the step that it came from."""
    if failure.code != ENGINE_ERROR:
        return failure
    return Failure(failure.code, f"{failure.message}, at {_step(row)}")


def _step(row: Row) -> str:
    """`row` has not moved: the step at fault is the one after those done."""
    return f"step {row.steps_done + 1} of {row.steps}"


def prompts_of(request: RenderRequest) -> list[tuple[str, str, str]]:
    """What is read: the parameter that the second text comes from, the first, the second.

    A family with one encoder reads the second; FLUX.1's CLIP reads the first.
    """
    prompt, second = request.prompt, request.secondary_prompt
    prompts = [("secondary_prompt" if second else "prompt", prompt, second or prompt)]
    if request.uses_true_cfg:
        negative, second = request.negative_prompt or "", request.secondary_negative_prompt
        param = "secondary_negative_prompt" if second else "negative_prompt"
        prompts.append((param, negative, second or negative))
    return prompts
