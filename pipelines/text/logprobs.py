"""How likely the written tokens were, and which others were likely at their places."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.text.requests import TokenLogprob
from pipelines.text.sampling import logprobs
from pipelines.text.tokens import Tokens


def logprobs_of(
    logits: Tensor, chosen: Sequence[int], top: int, tokens: Tokens
) -> list[TokenLogprob]:
    """For each of `chosen`, under the model's own distribution.

    Penalties, temperature and filters do not count, as in the APIs that have the field.
    """
    # logits: float32 [tokens, vocabulary]
    if not chosen:
        return []
    found = logprobs(logits.cpu(), torch.tensor(chosen), top)
    rows = zip(chosen, found.chosen, found.ids, found.values, strict=True)
    return [
        _named(
            token,
            float(value),
            tokens,
            tuple(
                _named(int(other), float(likely), tokens)
                for other, likely in zip(ids, values, strict=True)
            ),
        )
        for token, value, ids, values in rows
    ]


def _named(
    token: int, logprob: float, tokens: Tokens, top: tuple[TokenLogprob, ...] = ()
) -> TokenLogprob:
    raw = tokens.bytes_of(token)
    return TokenLogprob(raw.decode("utf-8", "replace"), logprob, raw, top)
