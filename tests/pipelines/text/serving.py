"""Requests for an engine over a tiny model, and what it tells of them."""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field

from torch import Tensor

from pipelines.text.drafts import Drafter
from pipelines.text.engine import EngineOptions, TextEngine
from pipelines.text.language_model import LanguageModel
from pipelines.text.requests import (
    Sampling,
    Speculation,
    TextDelta,
    TextDone,
    TextEvent,
    TextFailed,
    TextRequest,
    TokenLogprob,
)
from pipelines.text.sequence import Sequence
from pipelines.text.speculative import Draft
from tests.pipelines.text.tiny_models import VOCABULARY

PROMPT = "5 17 3 60 42 8 8 21 9 33 71 2"
GREEDY = Sampling(temperature=0)
WARM = Sampling(temperature=0.9, top_p=0.95, repetition_penalty=1.1, frequency_penalty=0.2)


class Parrot:
    """Drafts what the text will be, with a wrong token every third time."""

    def __init__(self, text: str, prompt_tokens: int) -> None:
        self._ids = [int(word) for word in text.split()]
        self._prompt_tokens = prompt_tokens

    def propose(self, rows: Items[Sequence], width: int) -> list[Draft]:
        return [Draft(tuple(self._next(row, width))) for row in rows]

    def _next(self, row: Sequence, width: int) -> list[int]:
        at = len(row.ids) - self._prompt_tokens
        wrong = [
            (token + 1) % VOCABULARY if i % 3 == 2 else token for i, token in enumerate(self._ids)
        ]
        return wrong[at : at + width]

    def read(self, row: Sequence, start: int, hidden: Tensor) -> None:
        pass

    def judged(self, row: Sequence, draft: Draft, accepted: int) -> None:
        pass

    def move(self, row: Sequence, target: int) -> None:
        pass

    def leave(self, row: Sequence) -> None:
        pass


def ask(name: str = "a", prompt: str = PROMPT, seed: int = 7, **more: object) -> TextRequest:
    values: dict[str, object] = {"sampling": WARM, "max_tokens": 24} | more
    return TextRequest(name, prompt, seed, **values)  # type: ignore[arg-type]


def crowd(**more: object) -> list[TextRequest]:
    prompts = [PROMPT, "1 2 3", "90 " * 30, "11 12 13 14 15 16 17", "4"]
    return [ask(f"r{i}", prompt, seed=i, **more) for i, prompt in enumerate(prompts)]


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

    @property
    def speculation(self) -> Speculation:
        """Sums over the texts that are complete."""
        usages = [event.usage for event in self.events if isinstance(event, TextDone)]
        return sum((u.speculation for u in usages if u.speculation), Speculation(0, 0, 0))

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


def run(engine: TextEngine, requests: Items[TextRequest], apart: int = 0) -> None:
    """Serve all; each joins `apart` steps after the one before."""
    for request in requests:
        engine.submit(request)
        for _ in range(apart):
            engine.step()
    while engine.is_busy:
        engine.step()


def serve(
    model: LanguageModel,
    requests: Items[TextRequest],
    options: EngineOptions | None = None,
    drafter: Drafter | None = None,
    apart: int = 0,
) -> Told:
    """A fresh engine's answers."""
    engine, told = open_engine(model, options, drafter)
    run(engine, requests, apart)
    return told
