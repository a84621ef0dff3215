"""Tells waiting coroutines that a job changed, from whatever thread it changed on."""

import asyncio
from collections import defaultdict
from contextlib import suppress


class Bell:
    """One watcher's bell. Rings that nobody has heard yet count once: slow watchers skip states."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the watcher; safe from any thread, and after its loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._rung.set)

    async def heard(self) -> None:
        """Wait for the next ring."""
        await self._rung.wait()
        self._rung.clear()


class Bells:
    """All watchers' bells by job id. Its user holds a lock around every call but `Bell`'s own."""

    def __init__(self) -> None:
        self._bells: defaultdict[str, set[Bell]] = defaultdict(set)

    def hang(self, job_id: str, bell: Bell) -> None:
        """Let `bell` ring when the job changes."""
        self._bells[job_id].add(bell)

    def take_down(self, job_id: str, bell: Bell) -> None:
        """The reverse of `hang`."""
        self._bells[job_id].discard(bell)
        if not self._bells[job_id]:
            del self._bells[job_id]

    def ring(self, job_id: str) -> None:
        """The job changed."""
        for bell in self._bells.get(job_id, ()):
            bell.ring()

    def ring_all(self) -> None:
        """Something that every job shows changed: the engine's state, places in the queue."""
        for bells in self._bells.values():
            for bell in bells:
                bell.ring()
