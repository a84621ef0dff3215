"""The models of one worker: loaded when a request names one, let go when another needs the room.

Requests for a model that is here go on, unless one for another model waits for its room: then the
models take turns, each with all that waits for it, so that nobody waits for ever and weights are
not read for each request anew.
"""

import gc
from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch

from pipelines.engine import PictureEngine
from pipelines.errors import BadRequest
from pipelines.failures import Failure, attempt
from pipelines.requests import Event, RenderRequest, RequestCancelled, RequestFailed
from pipelines.specs import ModelSpec


class ModelSet:
    """`tick`, `submit` and `cancel` as of one engine; one thread calls everything here.

    `open_engine` loads a model and may take minutes; `has_room` says whether a model fits beside
    those that are loaded. What they raise fails the requests for that model.
    """

    def __init__(
        self,
        specs: Sequence[ModelSpec],
        open_engine: Callable[[ModelSpec], PictureEngine],
        has_room: Callable[[ModelSpec], bool],
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._open_engine = open_engine
        self._has_room = has_room
        self._engines: OrderedDict[str, PictureEngine] = OrderedDict()  # least lately used first
        self._waiting: list[RenderRequest] = []  # for a model that is not here, and those behind
        self._events: list[Event] = []

    @property
    def loaded(self) -> tuple[str, ...]:
        """The least lately used first."""
        return tuple(self._engines)

    @property
    def is_idle(self) -> bool:
        are_idle = all(engine.is_idle for engine in self._engines.values())
        return are_idle and not (self._waiting or self._events)

    def open(self, name: str) -> None:
        """Load a model before anybody asks for it. Raises what loading raises."""
        self._engines[name] = self._open_engine(self._specs[name])

    def submit(self, request: RenderRequest) -> None:
        """Queues a request; one for a model that is not served fails in the next tick."""
        if request.model not in self._specs:
            served = ", ".join(self._specs)
            message = f"There is no model {request.model!r} here; served are {served}."
            self._events.append(RequestFailed(request.id, BadRequest.code, message))
        elif self._waiting or request.model not in self._engines:
            self._waiting.append(request)
        else:
            self._hand_over(request)

    def cancel(self, request_id: str) -> None:
        """Drops a request before the next tick; an unknown or finished one is left alone."""
        kept = [request for request in self._waiting if request.id != request_id]
        if len(kept) < len(self._waiting):
            self._events.append(RequestCancelled(request_id))
        self._waiting = kept
        for engine in self._engines.values():
            engine.cancel(request_id)

    def tick(self) -> list[Event]:
        """One step of every running picture of every model; loads the next model when it may."""
        self._serve_waiting()
        events, self._events = self._events, []
        for engine in self._engines.values():
            if not engine.is_idle:
                events += engine.tick()
        return events

    def _serve_waiting(self) -> None:
        while self._waiting:
            name = self._waiting[0].model
            if name not in self._engines and not self._load(name):
                return
            for request in [each for each in self._waiting if each.model == name]:
                self._waiting.remove(request)
                self._hand_over(request)

    def _hand_over(self, request: RenderRequest) -> None:
        self._engines.move_to_end(request.model)
        self._engines[request.model].submit(request)

    def _load(self, name: str) -> bool:
        """Whether the first in line can go on: its model is here, or it failed with its load."""
        spec = self._specs[name]
        has_room = attempt(lambda: self._make_room(spec))
        if has_room is False:
            return False
        opened = attempt(lambda: self.open(name)) if has_room is True else has_room
        if isinstance(opened, Failure):
            self._fail_all(name, opened)
        return True

    def _make_room(self, spec: ModelSpec) -> bool:
        """Lets idle models go until there is room; False where only drawing ones are left."""
        while self._engines and not self._has_room(spec):
            idle = [name for name, engine in self._engines.items() if engine.is_idle]
            if not idle:
                return False
            self._let_go(idle[0])
        return True

    def _let_go(self, name: str) -> None:
        del self._engines[name]
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _fail_all(self, name: str, failure: Failure) -> None:
        for request in [each for each in self._waiting if each.model == name]:
            self._waiting.remove(request)
            self._events.append(RequestFailed(request.id, failure.code, failure.message))
