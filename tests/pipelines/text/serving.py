"""Runs an engine over requests and keeps what it tells."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelines.text.drafts import Drafter
from pipelines.text.engine import EngineOptions, TextEngine
from pipelines.text.language_model import LanguageModel
from pipelines.text.requests import (
    TextDelta,
    TextDone,
    TextEvent,
    TextFailed,
    TextRequest,
    TokenLogprob,
)


@dataclass
class Told:
    """All events of one run, by request."""

    events: list[TextEvent] = field(default_factory=list)

    def text(self, request_id: str = "a") -> str:
        return "".join(event.text for event in self.deltas(request_id))

    def deltas(self, request_id: str = "a") -> list[TextDelta]:
        mine = [event for event in self.events if event.request_id == request_id]
        return [event for event in mine if isinstance(event, TextDelta)]

    def logprobs(self, request_id: str = "a") -> list[TokenLogprob]:
        return [item for event in self.deltas(request_id) for item in event.logprobs]

    def done(self, request_id: str = "a") -> TextDone:
        return next(self._of(request_id, TextDone))

    def failed(self, request_id: str = "a") -> TextFailed:
        return next(self._of(request_id, TextFailed))

    def has(self, kind: type, request_id: str = "a") -> bool:
        return any(True for _ in self._of(request_id, kind))

    def _of(self, request_id: str, kind: type):  # type: ignore[no-untyped-def]
        return (e for e in self.events if e.request_id == request_id and isinstance(e, kind))


def open_engine(
    model: LanguageModel, options: EngineOptions | None = None, drafter: Drafter | None = None
) -> tuple[TextEngine, Told]:
    """An engine and what it will have told."""
    told = Told()
    return TextEngine(model, told.events.append, options, drafter), told


def run(engine: TextEngine, requests: Sequence[TextRequest], apart: int = 0) -> None:
    """Serve all; each joins `apart` steps after the one before."""
    for request in requests:
        engine.submit(request)
        for _ in range(apart):
            engine.step()
    while engine.is_busy:
        engine.step()


def serve(
    model: LanguageModel,
    requests: Sequence[TextRequest],
    options: EngineOptions | None = None,
    drafter: Drafter | None = None,
    apart: int = 0,
) -> Told:
    """A fresh engine's answers."""
    engine, told = open_engine(model, options, drafter)
    run(engine, requests, apart)
    return told
