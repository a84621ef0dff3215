"""One request while it is served: its tokens, its place in the cache, the text told so far."""

from dataclasses import dataclass, field

from pipelines.text.ngram import NgramIndex
from pipelines.text.requests import Finish, Speculation, TextRequest, TextUsage, TokenLogprob
from pipelines.text.sampling import Seen
from pipelines.text.stops import StopGuard
from pipelines.text.tokens import Detokeniser


@dataclass(slots=True, eq=False)
class Sequence:
    """A request and all that changes while it is written."""

    request: TextRequest
    ids: list[int]  # prompt, then what was written
    prompt_tokens: int
    max_tokens: int
    dropped_tokens: int  # of the prompt's beginning
    slot: int
    number: int = 0  # the place in the order of coming
    cached: int = 0  # tokens whose keys and values are in the cache
    reused: int = 0  # of those, taken from an earlier request
    finish: Finish | None = None
    has_failed: bool = False
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    seen: Seen = field(init=False)
    ngrams: NgramIndex = field(init=False)
    detokeniser: Detokeniser = field(init=False)
    stops: StopGuard = field(init=False)
    fresh: list[int] = field(default_factory=list)  # written, not told yet
    logprobs: list[TokenLogprob] = field(default_factory=list)  # of those, where they are asked for

    def __post_init__(self) -> None:
        text = [token for token in self.ids if token >= 0]  # rows of pictures are no tokens
        self.seen = Seen(text)
        self.ngrams = NgramIndex(text)
        self.detokeniser = Detokeniser(text)
        self.stops = StopGuard(self.request.stop)

    @property
    def unread(self) -> int:
        """Prompt tokens that are not in the cache yet."""
        return max(0, self.prompt_tokens - self.cached)

    @property
    def written(self) -> int:
        """Tokens of the output."""
        return len(self.ids) - self.prompt_tokens

    @property
    def room(self) -> int:
        """Tokens that may still be written."""
        return self.max_tokens - self.written

    def append(self, tokens: tuple[int, ...]) -> None:
        """Tokens were written."""
        self.ids += tokens
        for token in tokens:
            self.seen.add(token)
            self.ngrams.append(token)
        self.fresh += tokens

    @property
    def is_at_end(self) -> bool:
        """Whether nothing follows what was told."""
        return self.finish is not None and not self.fresh

    def take_fresh(self) -> tuple[TokenLogprob, ...]:
        """Hand fresh tokens to the detokeniser, one where each counts; their logprobs."""
        is_watched = bool(self.request.stop) or self.request.top_logprobs is not None
        count = 1 if is_watched else len(self.fresh)
        self.detokeniser.push(self.fresh[:count])
        told = tuple(self.logprobs[:count])
        del self.fresh[:count], self.logprobs[:count]
        return told

    def drop_fresh(self) -> None:
        """Forget what was written behind a stop string."""
        count = len(self.fresh)
        if count:
            del self.ids[-count:]
            self.accepted -= min(count, self.accepted)
            self.fresh.clear()
            self.logprobs.clear()

    def usage(self) -> TextUsage:
        """What it took."""
        speculation = Speculation(self.steps, self.drafted, self.accepted)
        return TextUsage(self.prompt_tokens, self.written, self.reused, speculation)
