"""What a text engine is asked and what it tells: plain values, free of torch."""

from dataclasses import dataclass, field
from typing import Literal

Role = Literal["system", "user", "assistant"]
Finish = Literal["stop", "length"]
Truncation = Literal["disabled", "auto"]

KVFormat = Literal["auto", "float32", "bfloat16", "float8_e4m3fn"]
Priority = Literal["prefill_first", "decode_first", "balanced", "per_replica"]
Rule = Literal["greedy", "residual", "typical-acceptance", "logit-comparison"]
Speculating = Literal["auto", "off", "ngram", "head", "model", "mtp"]

MAX_TOP_LOGPROBS = 20


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: Role
    text: str
    pictures: tuple[bytes, ...] = ()  # encoded files, seen before the text


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. The defaults change nothing: plain sampling of the model.

    Penalties come first, then temperature, top-k, top-p and min-p, each on what the one before
    left. `repetition_penalty` divides the logits of tokens in prompt and output (CTRL, Keskar et
    al. 2019, as in transformers); the other two subtract from those of the output (OpenAI).
    """

    temperature: float = 1.0  # 0 to 2; 0 takes the most likely token
    top_k: int = 0  # 0 keeps all
    top_p: float = 1.0  # above 0, to 1
    min_p: float = 0.0  # 0 to 1, of the most likely token's probability
    repetition_penalty: float = 1.0  # above 0
    frequency_penalty: float = 0.0  # -2 to 2, for each time that a token came
    presence_penalty: float = 0.0  # -2 to 2, once


@dataclass(frozen=True, slots=True)
class TextRequest:
    """One text to write. `prompt` is text to go on with, or turns for the chat template."""

    id: str
    prompt: str | tuple[Message, ...]
    seed: int
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None  # None: what the context leaves
    stop: tuple[str, ...] = ()  # the text ends before the first of these
    top_logprobs: int | None = None  # None: no logprobs; 0: those of the chosen tokens alone
    truncation: Truncation = "disabled"  # auto drops the beginning of a prompt that is too long
    adapter: str | None = None  # a LoRA of the model by name


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token with the logarithm of its probability before any penalty or temperature."""

    token: str
    logprob: float
    bytes: bytes
    top: tuple["TokenLogprob", ...] = ()  # the likeliest at this place, best first


@dataclass(frozen=True, slots=True)
class Speculation:
    """What speculative decoding did for one request, or for all since the start."""

    steps: int  # forwards of the target model that wrote
    drafted: int
    accepted: int

    def __add__(self, other: "Speculation") -> "Speculation":
        return Speculation(
            self.steps + other.steps,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
        )

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted of drafted tokens; None where nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_step(self) -> float | None:
        """Tokens that one forward wrote on average, the target's own among them."""
        return 1 + self.accepted / self.steps if self.steps else None


@dataclass(frozen=True, slots=True)
class TextUsage:
    """Tokens of one request; `speculation` is None where the engine does not tell."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0  # of the input: taken from earlier requests
    speculation: Speculation | None = None


@dataclass(frozen=True, slots=True)
class TextStarted:
    """The prompt was read; text follows."""

    request_id: str
    input_tokens: int
    cached_tokens: int
    dropped_tokens: int = 0  # of the prompt's beginning, with truncation auto


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text: whole characters, never part of a stop string."""

    request_id: str
    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class TextDone:
    """The text is complete: the model or a stop string ended it, or the limit did."""

    request_id: str
    finish: Finish
    usage: TextUsage


@dataclass(frozen=True, slots=True)
class TextFailed:
    """The request cannot be served; `param` names the field where one is at fault."""

    request_id: str
    code: str
    message: str
    param: str | None = None


@dataclass(frozen=True, slots=True)
class TextCancelled:
    """Nothing more of it will be written."""

    request_id: str


TextEvent = TextStarted | TextDelta | TextDone | TextFailed | TextCancelled
