"""What each text server takes and tells, as one table; everything else reads it.

They all speak OpenAI's chat completions and differ around it. Facts are from the servers' own
sources and documentation of 2026; those of llama.cpp were measured on its server.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from studio.engine.text_protocol import Caveat

DialectName = Literal["openai", "vllm", "sglang", "max", "llamacpp", "ollama"]


@dataclass(frozen=True, slots=True)
class Counts:
    """Where a server's chunk holds what speculative decoding did."""

    path: tuple[str, ...]
    drafted: str
    accepted: str
    steps: str | None = None  # None: a step writes one token beside the accepted ones


@dataclass(frozen=True, slots=True)
class Probe:
    """A path, seen from the server's root, whose JSON has `key` on this server alone."""

    path: str
    key: str


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of server. A name that is None: the server has no such field."""

    name: DialectName
    title: str  # begins a sentence
    owned_by: str | None = None  # in the cards of /v1/models
    probe: Probe | None = None  # asked where the cards do not tell

    top_k: str | None = None
    top_k_off: int = 0  # what keeps every token
    min_p: str | None = None
    repetition_penalty: str | None = None
    penalty_window: str | None = None  # over how many tokens; sent as the whole context
    last_seed: int = 2**63 - 1
    first_seed: int = 0
    max_stops: int | None = None  # the studio itself watches for more
    least_logprobs: int = 0  # fewer give none at all, not even the chosen token's
    max_logprobs: int = 20
    extras: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    completes: bool = True  # /v1/completions goes on with plain text
    # A completion without a limit: leave the field out, send null, or never (16 by default).
    unlimited: Literal["absent", "null", "never"] = "absent"
    # Drops the beginning of a prompt that is too long, whatever one asks. vLLM can be asked to,
    # but on which side it cuts depends on its version.
    truncates: bool = False
    caveats: tuple[Caveat, ...] = ()  # what it takes and may not honour

    has_early_usage: bool = False  # usage in every chunk, so that the input is counted first
    speculation: tuple[Counts, ...] = ()
    keeps_alive: bool = True  # a connection can be used again after a stream


_VLLM_COUNTS = Counts(
    ("metrics", "speculative_decoding"),
    drafted="num_draft_tokens",
    accepted="num_accepted_draft_tokens",
    steps="num_spec_steps",
)
_SGLANG_NAMES = ("spec_num_proposed_drafts", "spec_num_correct_drafts", "spec_verify_ct")
_SGLANG_COUNTS = (
    Counts(("sglext", "spec_tokens_details"), *_SGLANG_NAMES),
    Counts(("meta_info",), *_SGLANG_NAMES),
)
_LLAMACPP_COUNTS = Counts(("timings",), drafted="draft_n", accepted="draft_n_accepted")

# The order that `Sampling` states; llama.cpp's own puts the temperature last.
_SAMPLERS = ("penalties", "temperature", "top_k", "top_p", "min_p")

_SGLANG_SEED = "SGLang follows a seed only where it runs with --enable-deterministic-inference."
_MAX_PENALTIES = "MAX ignores penalties unless it runs with --enable-penalties."
_OLLAMA_TOP_K = (
    "Ollama chooses among its own top_k, which is 40 unless the model's Modelfile sets another: "
    "its OpenAI API takes none."
)
_OLLAMA_CUTS = (
    "Ollama cuts a prompt that is longer than its context and does not say so: give it a longer "
    "one there with OLLAMA_CONTEXT_LENGTH, or send less."
)

_ALL = (
    Dialect(
        "openai",
        "The text server",  # of a kind that it does not tell
        max_stops=4,
        unlimited="never",
        speculation=(_VLLM_COUNTS, *_SGLANG_COUNTS, _LLAMACPP_COUNTS),  # a gateway hands them on
    ),
    Dialect(
        "vllm",
        "vLLM",
        owned_by="vllm",
        probe=Probe("/version", "version"),
        top_k="top_k",
        top_k_off=-1,
        min_p="min_p",
        repetition_penalty="repetition_penalty",
        max_stops=4,  # VLLM_MAX_STOP_STRINGS
        unlimited="null",
        has_early_usage=True,
        speculation=(_VLLM_COUNTS,),
    ),
    Dialect(
        "sglang",
        "SGLang",
        owned_by="sglang",
        probe=Probe("/get_model_info", "model_path"),
        top_k="top_k",
        top_k_off=-1,  # 0 is refused
        min_p="min_p",
        repetition_penalty="repetition_penalty",
        unlimited="never",
        has_early_usage=True,
        caveats=(Caveat("seed", _SGLANG_SEED),),
        speculation=_SGLANG_COUNTS,
        extras=MappingProxyType({"return_spec_tokens_details": True}),
    ),
    Dialect(
        "max",
        "MAX",  # known by cards whose owner is empty
        top_k="top_k",
        top_k_off=-1,
        min_p="min_p",
        repetition_penalty="repetition_penalty",
        first_seed=1,  # 0 draws a seed
        least_logprobs=1,
        caveats=tuple(
            Caveat(f"{kind}_penalty", _MAX_PENALTIES)
            for kind in ("repetition", "frequency", "presence")
        ),
    ),
    Dialect(
        "llamacpp",
        "llama.cpp",
        owned_by="llamacpp",
        probe=Probe("/props", "default_generation_settings"),
        top_k="top_k",
        min_p="min_p",
        repetition_penalty="repeat_penalty",
        penalty_window="repeat_last_n",
        last_seed=2**32 - 2,  # the one after it draws a seed
        least_logprobs=1,
        speculation=(_LLAMACPP_COUNTS,),
        keeps_alive=False,  # closes after a stream although it says keep-alive
        extras=MappingProxyType({"samplers": _SAMPLERS, "return_progress": True}),
    ),
    Dialect(
        "ollama",
        "Ollama",
        owned_by="library",
        probe=Probe("/api/version", "version"),
        last_seed=2**32 - 2,
        completes=False,  # its /v1/completions puts the text through the chat template
        truncates=True,
        caveats=(Caveat("top_k", _OLLAMA_TOP_K), Caveat("truncation", _OLLAMA_CUTS)),
    ),
)

DIALECTS: Mapping[str, Dialect] = MappingProxyType({dialect.name: dialect for dialect in _ALL})
OPENAI = DIALECTS["openai"]
DIALECT_NAMES: tuple[str, ...] = ("auto", *DIALECTS)


def dialect_of_card(card: Mapping[str, object]) -> Dialect | None:
    """The dialect that a card of /v1/models gives away, if any."""
    owner = card.get("owned_by")
    for dialect in _ALL:
        if dialect.owned_by is not None and dialect.owned_by == owner:
            return dialect
    # vLLM and SGLang tell this length as well, and an owner that is not empty.
    return DIALECTS["max"] if owner == "" and "max_model_len" in card else None
