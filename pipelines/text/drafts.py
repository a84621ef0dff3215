"""Who proposes tokens for the target model to verify."""

from collections.abc import Sequence as Items
from typing import Protocol

from torch import Tensor

from pipelines.text.sequence import Sequence
from pipelines.text.speculative import NOTHING, Draft

LEAST_RUN = 4  # tokens that came before; shorter runs are left to the other drafter
TRUST_MEMORY = 0.8
TRUST_FLOOR = 0.3  # accepted of drafted: below, n-grams are left to the other drafter
TRUST_REGAINED = 0.005  # a step: a text may begin to repeat itself later


class Drafter(Protocol):
    """Proposes up to `width` tokens for each sequence. Called on the engine's thread alone."""

    def propose(self, rows: Items[Sequence], width: int) -> list[Draft]:
        """One draft a row; `NOTHING` where none comes to mind."""
        ...

    def read(self, row: Sequence, start: int, hidden: Tensor) -> None:
        """The target read the row's tokens from `start` on; `hidden` are its states for them."""
        ...

    def judged(self, row: Sequence, draft: Draft, accepted: int) -> None:
        """How many of a draft's tokens stand."""
        ...

    def move(self, row: Sequence, target: int) -> None:
        """The row is about to change its slot."""
        ...

    def leave(self, row: Sequence) -> None:
        """The row is done."""
        ...


class NgramDrafter:
    """Drafts from the text itself, as long as they are accepted; then from another drafter."""

    def __init__(self, other: Drafter | None = None) -> None:
        self._other = other
        self._trust: dict[str, float] = {}
        self._from_text: set[str] = set()  # whose latest draft was from the text

    def propose(self, rows: Items[Sequence], width: int) -> list[Draft]:
        drafts = [self._from(row, width) for row in rows]
        self._from_text = {
            row.request.id for row, draft in zip(rows, drafts, strict=True) if draft.tokens
        }
        if self._other is None:
            return drafts
        others = [row for row, draft in zip(rows, drafts, strict=True) if not draft.tokens]
        theirs = iter(self._other.propose(others, width) if others else [])
        return [draft if draft.tokens else next(theirs) for draft in drafts]

    def _from(self, row: Sequence, width: int) -> Draft:
        key = row.request.id
        if self._other is not None and self._trust.get(key, 1.0) < TRUST_FLOOR:
            self._trust[key] += TRUST_REGAINED
            return NOTHING
        return Draft(row.ngrams.propose(width, 1 if self._other is None else LEAST_RUN))

    def read(self, row: Sequence, start: int, hidden: Tensor) -> None:
        if self._other is not None:
            self._other.read(row, start, hidden)

    def judged(self, row: Sequence, draft: Draft, accepted: int) -> None:
        key = row.request.id
        if key in self._from_text:
            rate = accepted / len(draft.tokens)
            self._trust[key] = TRUST_MEMORY * self._trust.get(key, 1.0) + (1 - TRUST_MEMORY) * rate
        elif self._other is not None:
            self._other.judged(row, draft, accepted)

    def move(self, row: Sequence, target: int) -> None:
        if self._other is not None:
            self._other.move(row, target)

    def leave(self, row: Sequence) -> None:
        self._trust.pop(row.request.id, None)
        if self._other is not None:
            self._other.leave(row)
