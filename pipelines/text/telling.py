"""From written tokens to told text: whole characters, nothing of a stop string, logprobs."""

from collections.abc import Callable
from collections.abc import Sequence as Items

from pipelines.text.requests import TextDelta, TextDone, TextEvent, TokenLogprob
from pipelines.text.sequence import Sequence
from pipelines.text.tokens import Tokens


class Teller:
    """Tells the fresh tokens of all rows, decoded together; `tell` may be exchanged."""

    def __init__(self, tokens: Tokens, tell: Callable[[TextEvent], None]) -> None:
        self.tell = tell
        self._tokens = tokens

    def tell_fresh(self, rows: Items[Sequence]) -> list[Sequence]:
        """Tell what the rows wrote; those that are done with it.

        Where a stop string or logprobs are asked for, token by token: what stands behind the stop
        is not the text's, whether it came with a draft or not.
        """
        pending = list(rows)
        while pending:
            taken = [row.take_fresh() for row in pending]
            windows = [window for row in pending for window in row.detokeniser.windows]
            decoded = iter(self._tokens.decode(windows))
            for row, logprobs in zip(pending, taken, strict=True):
                text = row.detokeniser.text(next(decoded), next(decoded), is_last=row.is_at_end)
                self._show(row, *row.stops.push(text, logprobs))
            pending = [row for row in pending if row.fresh and not row.stops.is_hit]
        return [row for row in rows if row.finish is not None]

    def _show(self, row: Sequence, shown: str, logprobs: tuple[TokenLogprob, ...]) -> None:
        if row.stops.is_hit:
            row.drop_fresh()
            row.finish = "stop"
        elif row.is_at_end:
            rest, more = row.stops.flush()
            shown, logprobs = shown + rest, logprobs + more
        if shown or logprobs:
            self.tell(TextDelta(row.request.id, shown, logprobs))

    def tell_done(self, row: Sequence) -> None:
        """The text is complete."""
        assert row.finish is not None
        self.tell(TextDone(row.request.id, row.finish, row.usage()))
