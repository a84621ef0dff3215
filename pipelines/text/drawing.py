"""Drawing the tokens of drafts, one place after the other, each row under its own sampling."""

from collections.abc import Callable
from collections.abc import Sequence as Items

from torch import Tensor

from pipelines.text.requests import Rule
from pipelines.text.sampling import Ids, Kept
from pipelines.text.sequence import Sequence
from pipelines.text.speculative import Draft, draft_distribution, draft_token

GoOn = Callable[[int, list[int]], Tensor]  # step, each row's latest token -> [rows, vocabulary]


def draw_drafts(
    rows: Items[Sequence],
    width: int,
    rule: Rule,
    logits: Tensor,
    go_on: GoOn,
    columns: Ids | None = None,
) -> list[Draft]:
    """`width` tokens for each row.

    `logits` `[rows, vocabulary]` are those of the first place; `go_on(step, tokens)` gives the next
    place's, behind `tokens` that were drawn at place `step`. `columns` are the tokens of a reduced
    vocabulary, ascending.
    """
    tokens: list[list[int]] = [[] for _ in rows]
    chosen: list[list[Kept]] = [[] for _ in rows]
    for step in range(width):
        for row, drafted, qs, own in zip(rows, tokens, chosen, logits, strict=True):
            request = row.request
            q = draft_distribution(own, request.sampling, row.seen, drafted, columns)
            drafted.append(draft_token(q, rule, request.seed, row.written + step))
            qs.append(q)
        if step + 1 < width:
            logits = go_on(step, [drafted[-1] for drafted in tokens])
    return [Draft(tuple(t), tuple(qs)) for t, qs in zip(tokens, chosen, strict=True)]
