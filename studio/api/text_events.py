"""The events of a streamed text, in the order and the shapes of the OpenResponses contract.

response.created, response.in_progress, response.output_item.added, response.content_part.added,
response.output_text.delta …, response.output_text.done, response.content_part.done,
response.output_item.done, response.completed or response.incomplete. After a failure in mid-stream
part and item end as they are, then come error and response.failed. The literal `[DONE]` is last.
"""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, Final

from pipelines.text.requests import TextDelta
from studio.api.failures import failure_of
from studio.api.text_answers import TextAnswer
from studio.engine.text_protocol import Piece
from studio.errors import error_body

DONE: Final = b"data: [DONE]\n\n"

Event = dict[str, Any]


async def event_frames(answer: TextAnswer, pieces: AsyncGenerator[Piece]) -> AsyncGenerator[bytes]:
    """The frames of a stream, each to be sent in one write; closes `pieces` when it ends.

    What goes wrong before the prompt was read is raised with the first frame, so that it can be
    answered with its status.
    """
    events = TextEvents(answer)
    async with aclosing(pieces):
        answer.take(await anext(pieces))
        for event in events.opening():
            yield frame(event)
        try:
            async for piece in pieces:
                answer.take(piece)
                if isinstance(piece, TextDelta) and (piece.text or piece.logprobs):
                    yield frame(events.delta(piece))
        except Exception as error:  # the HTTP boundary
            answer.fail(failure_of(error, "a text"))
        for event in events.closing():
            yield frame(event)
        yield DONE


def frame(event: Event) -> bytes:
    """One event as the wire has it: LF only, data on one line.

    ASCII, since some readers end a line at U+2028 too.
    """
    data = json.dumps(event, separators=(",", ":"), allow_nan=False)
    return f"event: {event['type']}\ndata: {data}\n\n".encode("ascii")


class TextEvents:
    """Numbers the events of one answer and fills them from it."""

    def __init__(self, answer: TextAnswer) -> None:
        self._answer = answer
        self._count = 0

    def opening(self) -> Iterator[Event]:
        """Before the first word."""
        yield self._of_response("response.created")
        yield self._of_response("response.in_progress")
        item = self._answer.item(is_empty=True)
        yield self._event("response.output_item.added", output_index=0, item=item)
        yield self._of_part("response.content_part.added", part=self._answer.part())

    def delta(self, piece: TextDelta) -> Event:
        """More text. `logprobs` is empty where none were asked for: the OpenAI SDK reads it."""
        return self._of_part(
            "response.output_text.delta",
            delta=piece.text,
            logprobs=self._answer.logprobs_of(piece),
        )

    def closing(self) -> Iterator[Event]:
        """After the last word, or after a failure."""
        answer = self._answer
        yield self._of_part("response.output_text.done", text=answer.text, logprobs=answer.logprobs)
        yield self._of_part("response.content_part.done", part=answer.part())
        yield self._event("response.output_item.done", output_index=0, item=answer.item())
        if answer.error is not None:
            yield self._event("error", **error_body(answer.error))
        yield self._of_response(f"response.{answer.status}")

    def _of_response(self, kind: str) -> Event:
        return self._event(kind, response=self._answer.response())

    def _of_part(self, kind: str, **values: Any) -> Event:
        place = {"item_id": self._answer.item_id, "output_index": 0, "content_index": 0}
        return self._event(kind, **place, **values)

    def _event(self, kind: str, **values: Any) -> Event:
        event = {"type": kind, "sequence_number": self._count, **values}
        self._count += 1
        return event
