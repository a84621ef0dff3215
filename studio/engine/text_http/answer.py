"""The text of one request as it grows from a server's events; no connection in it."""

from collections.abc import Iterator

from pipelines.text.requests import Finish, TextDelta, TextDone, TextRequest, TextStarted, TextUsage
from pipelines.text.stops import Logprobs, StopGuard
from studio.engine.text_http.chunks import Json, read_chunk
from studio.engine.text_http.dialects import Dialect
from studio.engine.text_http.refusals import Site, failure_in_stream
from studio.engine.text_protocol import Piece
from studio.errors import BadRequest, StudioError, Unavailable

_FINISHES: dict[str, Finish] = {"stop": "stop", "length": "length"}
# A server that cut at the stop string ends in the next chunks, with the usage in the last; one
# that did not know of it would write on.
MAX_CHUNKS_BEHIND_STOP = 4


class Answer:
    """Takes events one by one and gives the pieces that they complete."""

    def __init__(self, request: TextRequest, dialect: Dialect, site: Site) -> None:
        self._request = request
        self._dialect = dialect
        self._site = site
        self._guard = StopGuard(request.stop)
        self._finish: str | None = None
        self._usage = TextUsage(0, 0)
        self._chunks = 0  # with text; about one a token
        self._chunks_behind_stop = 0
        self._has_started = False

    @property
    def is_over(self) -> bool:
        """No event can add text any more; one may still add the usage."""
        return self._finish is not None or self._guard.is_hit

    @property
    def is_done(self) -> bool:
        """The server writes behind a stop string: hang up."""
        return self._chunks_behind_stop > MAX_CHUNKS_BEHIND_STOP

    def take(self, event: Json) -> Iterator[Piece]:
        """The pieces of one event. Raises the StudioError that it is, if it is one."""
        if failure := failure_in_stream(self._site, event):
            raise failure
        chunk = read_chunk(event, self._dialect, self._request.top_logprobs)
        self._usage = chunk.usage or self._usage
        self._finish = self._finish or chunk.finish
        if chunk.is_reading:
            return
        if not self._has_started:
            self._has_started = True
            usage = self._usage
            yield TextStarted(self._request.id, usage.input_tokens, usage.cached_tokens)
        self._chunks += bool(chunk.text)
        if self._guard.is_hit:
            self._chunks_behind_stop += bool(chunk.text)
        else:
            yield from self._delta(*self._guard.push(chunk.text, chunk.logprobs))

    def end(self) -> Iterator[Piece]:
        """The last pieces, once the stream is over. Raises where it ended for no good reason."""
        if self._guard.is_hit:
            finish: Finish = "stop"
        elif self._finish in _FINISHES:
            finish = _FINISHES[self._finish]
            yield from self._delta(*self._guard.flush())
        else:
            raise self._bad_end()
        yield TextDone(self._request.id, finish, self._counted())

    def _delta(self, text: str, logprobs: Logprobs) -> Iterator[Piece]:
        if text:
            yield TextDelta(self._request.id, text, logprobs)

    def _counted(self) -> TextUsage:
        usage = self._usage
        if usage.output_tokens or not self._chunks:
            return usage
        return TextUsage(usage.input_tokens, self._chunks, usage.cached_tokens)

    def _bad_end(self) -> StudioError:
        if self._finish is None:
            return Unavailable("The text server ended the stream without saying why. Try again.")
        if self._finish == "content_filter":
            message = "The text server wrote no more of this text: its content filter forbids it."
            return BadRequest(message, param="input", code="content_filter")
        reason = self._site.quoted(self._finish)
        return Unavailable(f"The text server gave the text up (finish_reason {reason}). Try again.")
