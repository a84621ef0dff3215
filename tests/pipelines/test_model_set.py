"""Several models in one worker: who is loaded, who goes, and that nobody waits for ever."""

from dataclasses import replace
from typing import cast

import pytest

from pipelines.engine import PictureEngine
from pipelines.errors import LoadFailed
from pipelines.model_set import ModelSet
from pipelines.requests import (
    Event,
    PictureDone,
    RenderRequest,
    RequestCancelled,
    RequestDone,
    RequestFailed,
)
from pipelines.specs import DEV

NAMES = ("a", "b", "c")


class Engine:
    """Needs two ticks a request."""

    def __init__(self) -> None:
        self.left: dict[str, int] = {}

    @property
    def is_idle(self) -> bool:
        return not self.left

    def submit(self, request: RenderRequest) -> None:
        self.left[request.id] = 2

    def cancel(self, request_id: str) -> None:
        self.left.pop(request_id, None)

    def tick(self) -> list[Event]:
        self.left = {id_: count - 1 for id_, count in self.left.items()}
        done = [id_ for id_, count in self.left.items() if count == 0]
        self.left = {id_: count for id_, count in self.left.items() if count}
        return [RequestDone(id_) for id_ in done]


class Host:
    """A set of three models, of which `room` fit at once."""

    def __init__(self, room: int) -> None:
        self.opened: list[str] = []
        self.broken: set[str] = set()
        specs = [replace(DEV, name=name) for name in NAMES]
        self.models = ModelSet(specs, self.open, lambda spec: len(self.models.loaded) < room)

    def open(self, spec) -> PictureEngine:
        self.opened.append(spec.name)
        if spec.name in self.broken:
            raise LoadFailed(f"{spec.name} is broken")
        return cast(PictureEngine, Engine())

    def ask(self, *ids: str) -> None:
        """The model is the id's first letter."""
        for id_ in ids:
            self.models.submit(RenderRequest(id_, "a frog", 32, 32, 2, (1,), model=id_[0]))

    def run(self) -> list[Event]:
        events: list[Event] = []
        for _ in range(100):
            if self.models.is_idle:
                return events
            events += self.models.tick()
        raise AssertionError("the models do not come to rest")


def done(events: list[Event]) -> list[str]:
    return [event.request_id for event in events if isinstance(event, RequestDone)]


def test_models_load_when_they_are_named_and_stay_while_there_is_room():
    host = Host(room=3)
    host.ask("a1", "b1", "a2")
    assert sorted(done(host.run())) == ["a1", "a2", "b1"]
    host.ask("b2", "a3")
    host.run()
    assert host.opened == ["a", "b"] and host.models.loaded == ("b", "a")


def test_the_least_lately_used_goes():
    host = Host(room=2)
    for id_ in ("a1", "b1", "a2", "c1"):
        host.ask(id_)
        assert done(host.run()) == [id_]
    assert host.models.loaded == ("a", "c")
    assert host.opened == ["a", "b", "c"]


def test_a_model_that_draws_is_not_let_go():
    host = Host(room=1)
    host.ask("a1")
    host.models.tick()
    host.ask("b1")
    assert done(host.models.tick()) == ["a1"]
    assert host.models.loaded == ("a",)
    assert done(host.run()) == ["b1"]
    assert host.models.loaded == ("b",)


def test_models_that_do_not_fit_together_take_turns():
    """Each with all that waits for it; a request that comes later waits for the next turn."""
    host = Host(room=1)
    host.ask("a1")
    host.models.tick()
    host.ask("b1", "a2", "b2", "a3")
    assert done(host.run()) == ["a1", "b1", "b2", "a2", "a3"]
    assert host.opened == ["a", "b", "a"]


def test_two_models_draw_at_the_same_time():
    host = Host(room=2)
    host.ask("a1", "b1")
    host.models.tick()
    assert sorted(done(host.models.tick())) == ["a1", "b1"]


def test_a_model_that_cannot_be_loaded_fails_its_requests_alone_and_is_tried_again():
    host = Host(room=2)
    host.broken.add("b")
    host.ask("a1", "b1", "a2", "b2")
    events = host.run()
    failed = [event for event in events if isinstance(event, RequestFailed)]
    assert [(event.request_id, event.code) for event in failed] == [
        ("b1", "load_failed"),
        ("b2", "load_failed"),
    ]
    assert sorted(done(events)) == ["a1", "a2"]
    host.broken.clear()
    host.ask("b3")
    assert done(host.run()) == ["b3"]


def test_a_model_that_is_not_served_is_refused_by_name():
    host = Host(room=1)
    host.ask("x1")
    (failed,) = host.run()
    assert isinstance(failed, RequestFailed)
    assert failed.message == "There is no model 'x' here; served are a, b, c."


@pytest.mark.parametrize("ticks", [0, 1])
def test_a_cancelled_request_does_not_load_its_model(ticks):
    host = Host(room=1)
    host.ask("a1")
    for _ in range(ticks):
        host.models.tick()
    host.ask("b1")
    host.models.cancel("b1")
    events = host.run()
    assert [event for event in events if not isinstance(event, RequestDone)] == [
        RequestCancelled("b1")
    ]
    assert host.opened == ["a"]


def test_a_model_larger_than_all_room_is_loaded_alone():
    """Its placement streams what does not fit, or says that nothing helps."""
    host = Host(room=0)
    host.ask("a1")
    assert done(host.run()) == ["a1"]


def test_real_engines(tiny, tiny_flux2):
    models = {model.spec.name: model for model in (tiny, tiny_flux2)}
    both = ModelSet(
        [model.spec for model in models.values()],
        lambda spec: PictureEngine(models[spec.name]),
        lambda spec: True,
    )
    for name in models:
        both.submit(RenderRequest(name, "a frog", 48, 32, 3, (1,), model=name))
    events: list[Event] = []
    while not both.is_idle:
        events += both.tick()
    assert {e.request_id for e in events if isinstance(e, PictureDone)} == set(models)
