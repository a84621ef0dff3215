"""What the studio asks of a text engine, wherever it runs."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from pipelines.text.requests import Speculation, TextDelta, TextDone, TextRequest, TextStarted
from studio.engine.protocol import EngineStatus

Piece = TextStarted | TextDelta | TextDone


@dataclass(frozen=True, slots=True)
class Caveat:
    """A field that the engine may not honour, without telling. Texts that it touches are warned."""

    param: str  # of a `TextDraft`
    message: str


@dataclass(frozen=True, slots=True)
class TextModel:
    """A text model as it is served. None: the engine does not say, or is not asked yet."""

    name: str
    context_tokens: int | None = None
    chats: bool = True  # takes turns through a chat template
    completes: bool = True  # goes on with plain text
    adapters: tuple[str, ...] = ()  # LoRAs by name, for `TextRequest.adapter`
    caveats: tuple[Caveat, ...] = ()


class TextEngine(Protocol):
    """Writes text. Its methods are called on the server's event loop, `start` and `close` too."""

    @property
    def status(self) -> EngineStatus:
        """The latest status; never blocks."""
        ...

    @property
    def model(self) -> TextModel:
        """What is served; complete once the status is `ready`."""
        ...

    @property
    def speculation(self) -> Speculation | None:
        """Sums since the start; None where the engine does not tell."""
        ...

    def start(self) -> None:
        """Begin to load or to look for the server; returns at once."""
        ...

    def stream(self, request: TextRequest) -> AsyncGenerator[Piece]:
        """`TextStarted`, then deltas, then `TextDone`; closing the generator cancels the request.

        Raises a `StudioError`: `BadRequest` with the field in `param` for what cannot be served,
        `Unavailable` while the model is not ready, or when it was lost.
        """
        ...

    def close(self) -> None:
        """End the engine and everything that it started."""
        ...
