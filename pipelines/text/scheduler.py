"""Which requests take part in the next forward: those that write, those that read, or both.

Pure policy, no tensors. Reading a prompt in one piece would hold up everyone who writes; so it is
read in chunks, and a policy says who goes first. The names are those of other servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.text.requests import Priority

CHUNK_TOKENS = 256  # of prompts in one forward: .2 s of one thread with the embedded model


@dataclass(frozen=True, slots=True)
class Turn:
    """One forward: whether the writing rows go on, and how many tokens each reading row reads."""

    decodes: bool
    reads: tuple[int, ...]  # by reading row, in the order given; 0: it waits

    @property
    def is_empty(self) -> bool:
        """Nothing to do."""
        return not self.decodes and not any(self.reads)


def plan(
    priority: Priority, writing: int, unread: Sequence[int], chunk_tokens: int = CHUNK_TOKENS
) -> Turn:
    """The next forward for `writing` rows and rows that have `unread` prompt tokens each.

    - `prefill_first`: prompts before anything else: the shortest time to a first token.
    - `decode_first`: prompts only while nobody writes: the steadiest flow of tokens.
    - `balanced`: whichever kind of row is in the majority.
    - `per_replica`: both in one forward; writing rows go on, prompts fill the chunk.
    """
    reads = _chunks(unread, chunk_tokens)
    if not writing or not any(unread):
        return Turn(writing > 0, reads)
    if priority == "per_replica":
        return Turn(True, _chunks(unread, max(1, chunk_tokens - writing)))
    waiting = sum(tokens > 0 for tokens in unread)
    reads_now = priority == "prefill_first" or (priority == "balanced" and waiting > writing)
    return Turn(False, reads) if reads_now else Turn(True, (0,) * len(unread))


def _chunks(unread: Sequence[int], budget: int) -> tuple[int, ...]:
    """The oldest prompt first, the next ones from what it leaves."""
    reads = []
    for tokens in unread:
        take = min(tokens, budget)
        reads.append(take)
        budget -= take
    return tuple(reads)
