"""Stop strings, watched for by the engine itself.

Servers cut them off too, but MAX streams them out, vLLM and OpenAI take four at most, and a text
with half a stop string at its end must not be shown before the rest of it is known.
"""

from collections import deque
from dataclasses import dataclass, field

from pipelines.text.requests import TokenLogprob

Logprobs = tuple[TokenLogprob, ...]


@dataclass(slots=True)
class _Piece:
    text: str  # never empty
    logprobs: Logprobs


@dataclass(slots=True)
class StopGuard:
    """Lets text through up to the first stop string, and holds back what may begin one.

    Logprobs leave with the last character of their token.
    """

    stops: tuple[str, ...]
    is_hit: bool = False
    _held: deque[_Piece] = field(default_factory=deque)
    _waiting: Logprobs = ()  # of tokens that have no whole character yet

    def push(self, text: str, logprobs: Logprobs = ()) -> tuple[str, Logprobs]:
        """What may be shown now."""
        self._take(text, logprobs)
        held = "".join(piece.text for piece in self._held)
        found = [at for stop in self.stops if stop and (at := held.find(stop)) >= 0]
        if not found:
            return self._release(len(held) - self._doubtful(held))
        self.is_hit = True
        shown = self._release(min(found))
        self._held.clear()
        return shown

    def flush(self) -> tuple[str, Logprobs]:
        """The rest, once no more text comes."""
        return self._release(sum(len(piece.text) for piece in self._held))

    def _take(self, text: str, logprobs: Logprobs) -> None:
        logprobs = self._waiting + logprobs
        self._waiting = () if text else logprobs
        if not text:
            return
        if len(logprobs) > 1 and "".join(item.token for item in logprobs) == text:
            self._held += [_Piece(item.token, (item,)) for item in logprobs if item.token]
        else:
            self._held.append(_Piece(text, logprobs))

    def _doubtful(self, held: str) -> int:
        """Characters at the end that a stop string may begin with."""
        longest = max((len(stop) for stop in self.stops), default=0)
        for size in range(min(longest - 1, len(held)), 0, -1):
            if any(stop.startswith(held[-size:]) for stop in self.stops):
                return size
        return 0

    def _release(self, size: int) -> tuple[str, Logprobs]:
        texts: list[str] = []
        logprobs: list[TokenLogprob] = []
        while size and self._held:
            piece = self._held[0]
            if len(piece.text) > size:
                texts.append(piece.text[:size])
                piece.text = piece.text[size:]
                break
            texts.append(piece.text)
            logprobs += piece.logprobs
            size -= len(piece.text)
            self._held.popleft()
        return "".join(texts), tuple(logprobs)
