"""Which drafted tokens stand, and the token that the target model writes behind them.

    rule                  accepts a drafted x when     writes else      exact
    greedy                x is the likeliest           the likeliest    for temperature 0
    residual              u < p(x) / q(x)              max(0, p - q)    yes
    typical-acceptance    a draw from p is x           that draw        yes
    logit-comparison      log q(x) <= log p(x) + eps   a draw from p    no

p is the target's distribution after penalties, temperature and filters, q is what the draft was
drawn from. `residual` is speculative sampling (Leviathan et al. 2023, arXiv:2211.17192; Chen et al.
2023, arXiv:2302.01318). `typical-acceptance` writes the same text with drafts and without, as its
draw has the noise of its place. The names and `logit-comparison` are MAX's; its raw logits are
log-probabilities here, so that both models have one scale.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
import torch
from torch import Tensor

from pipelines.text.noise import ACCEPTANCE, DRAFT, RESIDUAL, TARGET, uniform
from pipelines.text.requests import Rule, Sampling
from pipelines.text.sampling import Ids, Kept, Seen, certain, kept, penalised

RULES: tuple[str, ...] = get_args(Rule)

_LOGIT_SLACK = math.exp(1e-5)


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens proposed to follow the text. Raises ValueError where q has another length.

    q must be what each token was drawn from, and whether a token is proposed at all must not hang
    on which it is: `residual` is not exact otherwise. None: they were not drawn (n-grams, argmax).
    """

    tokens: tuple[int, ...] = ()
    q: tuple[Kept, ...] | None = None

    def __post_init__(self) -> None:
        if self.q is not None and len(self.q) != len(self.tokens):
            raise ValueError(f"{len(self.tokens)} tokens need as many q, not {len(self.q)}.")


NOTHING = Draft()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one forward of the target writes: `accepted` drafted tokens and one of its own."""

    accepted: int
    tokens: tuple[int, ...]


def verify(
    rule: Rule,
    logits: Tensor,
    draft: Draft,
    sampling: Sampling,
    seed: int,
    position: int,
    seen: Seen,
) -> Verdict:
    """One step of one request; with `NOTHING` drafted, plain decoding.

    Row 0 follows the last written token, row i also `draft.tokens[:i]`; the token of row 0 will be
    number `position` of the output. Temperature 0 is verified greedily whatever the rule, and
    `greedy` writes the likeliest token whatever the temperature. `seen` is left as it is.
    Raises ValueError for an unknown rule, another number of rows than the draft needs, and a token
    that its q cannot give; NotFinite where the logits are.
    """
    # logits: [k + 1, vocab]
    if rule not in RULES:
        raise ValueError(f"rule must be one of {', '.join(RULES)}, not {rule!r}.")
    if len(logits) != len(draft.tokens) + 1:
        raise ValueError(f"{len(draft.tokens)} tokens need one row more, not {len(logits)} rows.")
    if rule == "greedy":
        sampling = replace(sampling, temperature=0.0)
    if sampling.temperature == 0:
        rule = "typical-acceptance"  # the draw from a distribution of one token: its argmax
    logits = logits.detach().to("cpu", torch.float32)
    rows = penalised(logits, seen, draft.tokens, sampling).numpy()
    return judge(rule, lambda i: kept(rows[i], sampling), draft, seed, position)


def judge(
    rule: Rule, target: Callable[[int], Kept], draft: Draft, seed: int, position: int
) -> Verdict:
    """`verify` on distributions; `target(i)` is asked no further than the first refusal."""
    tokens: list[int] = []
    for i, drafted in enumerate(draft.tokens):
        q = certain(drafted) if draft.q is None else draft.q[i]
        tokens.append(_token_at(rule, target(i), q, drafted, seed, position + i))
        if tokens[-1] != drafted:
            return Verdict(i, tuple(tokens))
    end = len(draft.tokens)
    tokens.append(target(end).draw(seed, position + end, TARGET))
    return Verdict(end, tuple(tokens))


def _token_at(rule: Rule, p: Kept, q: Kept, drafted: int, seed: int, position: int) -> int:
    """The token of one place: the drafted one where the rule accepts it."""
    if rule == "residual":
        if _is_accepted(p.of(drafted), q.of(drafted), uniform(seed, position, ACCEPTANCE)):
            return drafted
        return residual(p, q).draw(seed, position, RESIDUAL)
    if rule == "logit-comparison" and q.of(drafted) <= p.of(drafted) * _LOGIT_SLACK:
        return drafted
    return p.draw(seed, position, TARGET)


def _is_accepted(p: float, q: float, u: float) -> bool:
    """With probability min(1, p / q)."""
    if q <= 0:
        raise ValueError("A drafted token has probability 0 in its q: it was not drawn from that.")
    return u * q < p


def residual(p: Kept, q: Kept) -> Kept:
    """max(0, p - q) / sum: what p has and q did not give. p, where rounding left nothing."""
    left = p.probs.copy()
    if q.ids is None:
        left -= q.probs if p.ids is None else q.probs[p.ids]
    elif p.ids is None:
        left[q.ids] -= q.probs
    else:
        places = np.minimum(p.ids.searchsorted(q.ids), p.ids.size - 1)
        is_shared = p.ids[places] == q.ids
        left[places[is_shared]] -= q.probs[is_shared]
    np.maximum(left, 0, out=left)
    total = left.sum()
    return Kept(p.ids, left / total) if total > 0 else p


def draft_distribution(
    logits: Tensor,
    sampling: Sampling,
    seen: Seen,
    drafted: Sequence[int],
    columns: Ids | None = None,
) -> Kept:
    """q of the next draft token: the draft model's logits through the request's own sampling.

    `drafted` are the draft tokens before it. `columns` are the tokens of a reduced vocabulary,
    ascending; the ids of the result are the target's.
    """
    # logits: [m]
    row = logits.detach().to("cpu", torch.float32)[None]
    q = kept(penalised(row, seen, drafted, sampling, columns)[0].numpy(), sampling)
    if columns is None:
        return q
    return Kept(columns if q.ids is None else columns[q.ids], q.probs)


def draft_token(q: Kept, rule: Rule, seed: int, position: int) -> int:
    """The draft's token for one place of the output, as the rule can use it best.

    `greedy` compares with the likeliest. `typical-acceptance` compares with a draw: the same number
    on both sides makes it the same token as often as can be, and the text hangs on the target's
    draw alone. The others need a draw of its own.
    """
    if rule == "greedy":
        likeliest = int(q.probs.argmax())
        return likeliest if q.ids is None else int(q.ids[likeliest])
    purpose = TARGET if rule == "typical-acceptance" else DRAFT
    return q.draw(seed, position, purpose)
