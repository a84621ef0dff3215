"""One request while it is served: its tokens, its place in the cache, the text told so far."""

from dataclasses import dataclass, field

from pipelines.text.ngram import NgramIndex
from pipelines.text.requests import Finish, Speculation, TextRequest, TextUsage, TokenLogprob
from pipelines.text.sampling import Seen
from pipelines.text.stops import StopGuard
from pipelines.text.tokens import Detokeniser


@dataclass(slots=True)
class Sequence:
    """A request and all that changes while it is written."""

    request: TextRequest
    ids: list[int]  # prompt, then what was written
    prompt_tokens: int
    max_tokens: int
    dropped_tokens: int  # of the prompt's beginning
    slot: int
    cached: int = 0  # tokens whose keys and values are in the cache
    reused: int = 0  # of those, taken from an earlier request
    finish: Finish | None = None
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    seen: Seen = field(init=False)
    ngrams: NgramIndex = field(init=False)
    detokeniser: Detokeniser = field(init=False)
    stops: StopGuard = field(init=False)
    logprobs: list[TokenLogprob] = field(default_factory=list)  # not told yet

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
        self.detokeniser.push(tokens)

    def usage(self) -> TextUsage:
        """What it took."""
        speculation = Speculation(self.steps, self.drafted, self.accepted)
        return TextUsage(self.prompt_tokens, self.written, self.reused, speculation)
