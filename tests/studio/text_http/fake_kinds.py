"""What the fake servers of each dialect list, take and stream: their habits, as a table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
WORDS = ("A red", " bicycle", " by the sea")
DRAFTED, ACCEPTED, STEPS = 8, 5, 3
INPUT, OUTPUT, CACHED = 11, 8, 4  # OUTPUT = STEPS + ACCEPTED
# What every server takes; the others' own fields are in `KINDS`.
STANDARD = frozenset({"model", "messages", "prompt", "stream", "stream_options", "max_tokens"})
STANDARD |= {"temperature", "top_p", "frequency_penalty", "presence_penalty", "seed", "stop"}
STANDARD |= {"logprobs", "top_logprobs"}


def usage() -> Json:
    details = {"cached_tokens": CACHED}
    counts = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT}
    return counts | {"prompt_tokens_details": details}


@dataclass(frozen=True, slots=True)
class Kind:
    """One dialect's server."""

    card: Json
    paths: Mapping[str, Json] = field(default_factory=dict)
    takes: frozenset[str] = frozenset()  # beside `STANDARD`
    opening: tuple[Json, ...] = ()  # members of chunks without text that come first
    each: Json = field(default_factory=dict)  # members of every chunk with text
    last: Json = field(default_factory=dict)  # members of the usage chunk
    max_stops: int | None = None
    closes: bool = False  # after a stream, whatever it said of keep-alive


def choice(**delta: Any) -> Json:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


_EARLY: Json = {"usage": {"prompt_tokens": INPUT, "completion_tokens": 1}}
_SPECULATION = {
    "spec_num_proposed_drafts": DRAFTED,
    "spec_num_correct_drafts": ACCEPTED,
    "spec_verify_ct": STEPS,
}
_OWN = frozenset({"top_k", "min_p", "repetition_penalty"})

KINDS: dict[str, Kind] = {
    "openai": Kind({"id": "m", "owned_by": "somebody"}, max_stops=4),
    "vllm": Kind(
        {"id": "m", "owned_by": "vllm", "max_model_len": 4096},
        takes=_OWN,
        opening=(choice(role="assistant", content="") | _EARLY,),
        each=_EARLY,
        last={
            "metrics": {
                "speculative_decoding": {
                    "num_draft_tokens": DRAFTED,
                    "num_accepted_draft_tokens": ACCEPTED,
                    "num_spec_steps": STEPS,
                }
            }
        },
        max_stops=4,
    ),
    "sglang": Kind(
        {"id": "m", "owned_by": "sglang", "max_model_len": 4096},
        takes=_OWN | {"return_spec_tokens_details"},
        opening=(choice(role="assistant", content="") | _EARLY,),
        each=_EARLY,
        last={"sglext": {"spec_tokens_details": _SPECULATION}},
    ),
    "max": Kind({"id": "m", "owned_by": "", "max_model_len": 4096}, takes=_OWN),
    "llamacpp": Kind(
        {"id": "/models/m.gguf", "owned_by": "llamacpp", "meta": {"n_ctx": 9999}},
        paths={"/props": {"default_generation_settings": {"n_ctx": 4096}}},
        takes=frozenset(
            {"top_k", "min_p", "repeat_penalty", "repeat_last_n", "samplers", "return_progress"}
        ),
        opening=(
            choice(role="assistant", content=None)
            | {"prompt_progress": {"total": INPUT, "cache": CACHED, "processed": CACHED}},
            choice(role="assistant", content=None)
            | {"prompt_progress": {"total": INPUT, "cache": CACHED, "processed": INPUT}},
            choice(role="assistant", content=None),
        ),
        last={"timings": {"draft_n": DRAFTED, "draft_n_accepted": ACCEPTED}},
        closes=True,
    ),
    "ollama": Kind({"id": "m:latest", "owned_by": "library"}, each={"usage": {"prompt_tokens": 0}}),
}
