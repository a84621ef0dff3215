"""Weights files read once in order before their library maps them.

Libraries that load weights say nothing until a component is there. A file that was read lies in the
page cache, so it is mapped without a wait, and the reading can be counted in bytes.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

CHUNK = 64 * 2**20
ROOM = 1.5  # times the files: with less memory free, the first pages are gone before the last come


def has_room(files: Sequence[Path]) -> bool:
    """Whether what is read would still be in memory when it is mapped."""
    size = sum(path.stat().st_size for path in files)
    return ROOM * size <= psutil.virtual_memory().available


def read_ahead(files: Sequence[Path], on_read: Callable[[int], None]) -> None:
    """Reads the files; `on_read` hears the bytes so far.

    Raises OSError for a file that cannot be read.
    """
    buffer, done = bytearray(CHUNK), 0
    for path in files:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                done += count
                on_read(done)
