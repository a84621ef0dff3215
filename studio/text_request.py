"""One text request as it came in, and what page and API know of the text that follows.

A `TextDraft` has gaps. `studio.text_settle` fills them, refuses the impossible and returns the
frozen `TextRequest` that the engine works on, with the `Notice`s that the answer must carry.
"""

from dataclasses import dataclass

from pipelines.text.requests import Message, Truncation

# Several times what the longest contexts hold: 100,000 tokens are about 450,000 characters. What
# is longer is refused here, since to tokenise it would only tell the same after seconds.
MAX_INPUT_CHARS = 2_000_000
MAX_STOPS = 8
MAX_STOP_CHARS = 200


@dataclass(frozen=True, slots=True)
class TextDraft:
    """A request as it came in; None means that the sender left it out."""

    prompt: str | tuple[Message, ...]  # text to go on with, or turns of a conversation
    model: str | None = None  # the served one
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    max_output_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    top_logprobs: int | None = None  # None: no logprobs; 0: those of the chosen tokens alone
    truncation: Truncation | None = None
    adapter: str | None = None
