"""What the OpenResponses contract requires of the response object."""

from typing import Any

# The contract's response object: all must be there, these never null …
NEVER_NULL = {
    "id": str,
    "object": str,
    "created_at": int,
    "status": str,
    "model": str,
    "output": list,
    "tools": list,
    "tool_choice": str,
    "truncation": str,
    "parallel_tool_calls": bool,
    "text": dict,
    "top_p": float,
    "presence_penalty": float,
    "frequency_penalty": float,
    "top_logprobs": int,
    "temperature": float,
    "store": bool,
    "background": bool,
    "service_tier": str,
    "metadata": dict,
}
# … and these null where there is nothing to say.
MAYBE_NULL = {
    "completed_at",
    "incomplete_details",
    "previous_response_id",
    "instructions",
    "error",
    "reasoning",
    "usage",
    "max_output_tokens",
    "max_tool_calls",
    "safety_identifier",
    "prompt_cache_key",
}


def check_keys(answer: dict[str, Any]) -> None:
    """All 31 keys of the contract, with their types."""
    assert len(NEVER_NULL) + len(MAYBE_NULL) == 31
    assert set(answer) >= MAYBE_NULL
    for key, kind in NEVER_NULL.items():
        assert type(answer[key]) is kind, key
