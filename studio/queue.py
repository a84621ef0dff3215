"""The waiting line: bounded, fair between owners, no tensors, no files.

Owners take turns (round robin); within one owner, first in is first out. A job that must run again
because its worker was lost goes to the very front.
"""

from collections import OrderedDict, deque

from studio.errors import QueueFull


class FairQueue:
    """Job ids in waiting. Not thread-safe: its user holds a lock."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._again: deque[str] = deque()
        self._lines: OrderedDict[str, deque[str]] = OrderedDict()  # owner to ids, next owner first

    def __len__(self) -> int:
        return len(self._again) + sum(len(line) for line in self._lines.values())

    def check_room(self, owner: str, *, retry_after_s: int) -> None:
        """Raises `QueueFull` at capacity.

        An owner who has nothing waiting is let in up to twice the capacity: nobody can shut the
        door on the others by filling the queue.
        """
        limit = self.capacity if owner in self._lines else 2 * self.capacity
        if len(self) >= limit:
            raise QueueFull(
                f"{len(self)} jobs are waiting already, the limit is {self.capacity}. "
                f"Try again in {retry_after_s} s.",
                retry_after_s=retry_after_s,
            )

    def push(self, owner: str, job_id: str) -> None:
        """Append to the owner's line. Raises `QueueFull`, see `check_room`."""
        self.check_room(owner, retry_after_s=1)
        self.restore(owner, job_id)

    def restore(self, owner: str, job_id: str) -> None:
        """Append a job that was accepted earlier (before a restart), whatever the capacity."""
        self._lines.setdefault(owner, deque()).append(job_id)

    def push_front(self, job_id: str) -> None:
        """Put a job before all others, whatever the capacity: it had its turn already."""
        self._again.append(job_id)

    def peek(self) -> str | None:
        """The id that `pop` would give."""
        if self._again:
            return self._again[0]
        for line in self._lines.values():
            return line[0]
        return None

    def pop(self) -> str | None:
        """Take the next id; its owner goes to the end of the round."""
        if self._again:
            return self._again.popleft()
        if not self._lines:
            return None
        owner, line = self._lines.popitem(last=False)
        job_id = line.popleft()
        if line:
            self._lines[owner] = line
        return job_id

    def remove(self, job_id: str) -> bool:
        """Take one id out wherever it stands; False when it is not waiting."""
        if job_id in self._again:
            self._again.remove(job_id)
            return True
        for owner, line in self._lines.items():
            if job_id in line:
                line.remove(job_id)
                if not line:
                    del self._lines[owner]
                return True
        return False

    def order(self) -> list[str]:
        """All ids in the order that `pop` would give."""
        lines = [list(line) for line in self._lines.values()]
        rounds = max((len(line) for line in lines), default=0)
        turns = [line[turn] for turn in range(rounds) for line in lines if turn < len(line)]
        return list(self._again) + turns
