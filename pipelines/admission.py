"""Who may start: as many pictures as there are tokens for, owners in turn. Free of tensors."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

PATIENCE = 20  # times that smaller pictures may pass one that does not fit


@dataclass(slots=True, eq=False)
class Ticket:
    """One picture's claim on the engine."""

    request_id: str
    index: int
    owner: str
    tokens: int
    passed_over: int = 0


class Admission:
    """Waiting and running tickets. A picture larger than all room runs alone."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self._waiting: list[Ticket] = []  # in order of arrival
        self._running: list[Ticket] = []

    def add(self, ticket: Ticket) -> None:
        self._waiting.append(ticket)

    def drop(self, request_id: str) -> None:
        """Forgets every picture of a request, waiting or running."""
        self._waiting = [each for each in self._waiting if each.request_id != request_id]
        self._running = [each for each in self._running if each.request_id != request_id]

    def release(self, request_id: str, index: int) -> None:
        """Frees the room of one finished picture."""
        done = (request_id, index)
        self._running = [each for each in self._running if (each.request_id, each.index) != done]

    def admit(self) -> Iterator[Ticket]:
        """Tickets that may start now. The caller may `drop` a request between two of them."""
        while (ticket := self._next()) is not None:
            self._waiting.remove(ticket)
            self._running.append(ticket)
            yield ticket

    def _next(self) -> Ticket | None:
        """The first that fits, the owner with the least running before others.

        A picture that is passed over too often keeps the others out until there is room for it.
        """
        held = Counter[str]()
        for ticket in self._running:
            held[ticket.owner] += ticket.tokens
        for ticket in sorted(self._waiting, key=lambda each: held[each.owner]):
            if self._fits(ticket):
                return None if self._must_wait_for_another(ticket) else ticket
        return None

    def _must_wait_for_another(self, ticket: Ticket) -> bool:
        earlier = self._waiting[: self._waiting.index(ticket)]
        blocked = [each for each in earlier if not self._fits(each)]
        for each in blocked:
            each.passed_over += 1
        return any(each.passed_over > PATIENCE for each in blocked)

    def _fits(self, ticket: Ticket) -> bool:
        used = sum(each.tokens for each in self._running)
        return used == 0 or used + ticket.tokens <= self.max_tokens
