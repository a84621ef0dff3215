"""Pictures, thumbnails and sources as files under one folder.

A file is written under another name, flushed and renamed: what carries its final name is whole.
"""

import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from studio.job import Picture

LEFTOVER_AGE_S = 3600.0


class PictureFiles:
    """Knows where files stand, not which of them are wanted."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("pictures", "thumbnails", "sources"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    def write(self, picture: Picture, content: bytes, thumbnail: bytes) -> None:
        """Both files of a picture, or none. Raises `OSError`."""
        try:
            _write_file(self.content_path(picture), content)
            _write_file(self.thumbnail_path(picture), thumbnail)
        except OSError:
            self.discard(picture)
            raise

    def discard(self, picture: Picture) -> None:
        """Remove both files of a picture."""
        self.content_path(picture).unlink(missing_ok=True)
        self.thumbnail_path(picture).unlink(missing_ok=True)

    def content_path(self, picture: Picture) -> Path:
        """The picture in its output format."""
        month = time.strftime("%Y-%m", time.gmtime(picture.created_at))
        return self._folder / "pictures" / month / f"{picture.id}.{picture.extension}"

    def thumbnail_path(self, picture: Picture) -> Path:
        """The small WebP."""
        return self._folder / "thumbnails" / f"{picture.id}.webp"

    def write_source(self, job_id: str, index: int, png: bytes) -> None:
        """A picture that came with a job, counted from 0. Raises `OSError`."""
        _write_file(self._source_path(job_id, index), png)

    def read_source(self, job_id: str, index: int) -> bytes:
        """What `write_source` kept. Raises `OSError`."""
        return self._source_path(job_id, index).read_bytes()

    def drop_sources(self, job_id: str) -> None:
        """Forget all pictures that came with a job."""
        for path in (self._folder / "sources").glob(f"{job_id}.*"):
            path.unlink(missing_ok=True)

    def _source_path(self, job_id: str, index: int) -> Path:
        name = f"{job_id}.{index}.png" if index else f"{job_id}.png"
        return self._folder / "sources" / name

    def sweep(self, pictures: Collection[str], jobs: Collection[str], now: float) -> int:
        """Remove files older than an hour of other pictures and jobs; returns how many."""
        stale = [
            path
            for path in self._all()
            if path.name.split(".")[0] not in (jobs if path.parent.name == "sources" else pictures)
            and now - path.stat().st_mtime > LEFTOVER_AGE_S
        ]
        for path in stale:
            path.unlink(missing_ok=True)
        return len(stale)

    def _all(self) -> Iterator[Path]:
        for name in ("pictures", "thumbnails", "sources"):
            yield from (path for path in (self._folder / name).rglob("*") if path.is_file())


def _write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.part")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
