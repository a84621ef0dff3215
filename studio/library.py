"""The history: rows by SQLAlchemy (SQLite here, another database is a URL away), pictures as files.

A picture is never lost: its file is written under another name, flushed and renamed before its row
is committed, and its row before anybody hears of it. Files without a row are leftovers of a crash
between the two; `sweep` removes them.
"""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, delete, event, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from studio.errors import CannotStart, NotFound
from studio.files import PictureFiles
from studio.job import FINAL, Origin, Picture, Status
from studio.migrations import migrate
from studio.request import Notice, PictureRequest
from studio.tables import JobRow, PictureRow


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job as it is kept: what must survive a restart."""

    id: str
    owner: str
    origin: Origin
    request: PictureRequest
    created_at: float
    status: Status = "queued"
    attempts: int = 0
    started_at: float | None = None
    finished_at: float | None = None
    warnings: tuple[Notice, ...] = ()
    error_code: str | None = None
    error_message: str | None = None
    client: dict[str, Any] = field(default_factory=dict)  # what a program wants back as it was


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Pictures, newest first, and the cursor of the next page (None at the end)."""

    pictures: tuple[Picture, ...]
    next: str | None = None


@dataclass(frozen=True, slots=True)
class EncodedPicture:
    """A finished picture as bytes, not yet in the library."""

    index: int
    seed: int
    steps_run: int
    steps_predicted: int
    width: int
    height: int
    content: bytes = field(repr=False)
    thumbnail: bytes = field(repr=False)


class Library:
    """Jobs and pictures under one folder. Every method may be called from any thread."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        self.files = PictureFiles(folder)
        self._engine = _connect(url or f"sqlite:///{folder / 'studio.db'}")
        try:
            migrate(self._engine)
        except SQLAlchemyError as error:
            raise CannotStart(f"The history's database cannot be used: {error}") from error

    def close(self) -> None:
        """Give the database connections back."""
        self._engine.dispose()

    # Jobs

    def add_job(self, record: JobRecord) -> None:
        """Keep a new job."""
        values = asdict(record)
        values["request"] = record.request.to_dict()
        values["warnings"] = [asdict(notice) for notice in record.warnings]
        with self._write() as session:
            session.add(JobRow(**values))

    def update_job(self, job_id: str, **values: Any) -> None:
        """Change columns of one job; `warnings` may be a tuple of notices."""
        if "warnings" in values:
            values["warnings"] = [asdict(notice) for notice in values["warnings"]]
        with self._write() as session:
            session.execute(update(JobRow).where(JobRow.id == job_id).values(**values))

    def end_job(self, record: JobRecord) -> None:
        """Keep a job's final state, and forget the picture that it started from."""
        self.update_job(
            record.id,
            status=record.status,
            finished_at=record.finished_at,
            attempts=record.attempts,
            warnings=record.warnings,
            error_code=record.error_code,
            error_message=record.error_message,
        )
        self.files.drop_sources(record.id)

    def job(self, job_id: str, owner: str) -> JobRecord:
        """One job of this owner. Raises `NotFound`."""
        with Session(self._engine) as session:
            row = session.get(JobRow, job_id)
            if row is None or row.owner != owner:
                raise NotFound(f"There is no job {job_id[:64]!r}.", code="job_not_found")
            return _record(row)

    def unfinished_jobs(self) -> list[JobRecord]:
        """Jobs that an earlier run of the studio left behind, oldest first."""
        query = select(JobRow).where(JobRow.status.not_in(FINAL)).order_by(JobRow.created_at)
        with Session(self._engine) as session:
            return [_record(row) for row in session.scalars(query)]

    # Pictures

    def store_picture(self, record: JobRecord, encoded: EncodedPicture) -> Picture:
        """Write a picture's files; `add_picture` makes it known. Raises `OSError`."""
        picture = Picture(
            id=uuid.uuid4().hex,
            job_id=record.id,
            owner=record.owner,
            index=encoded.index,
            seed=encoded.seed,
            width=encoded.width,
            height=encoded.height,
            format=record.request.output_format,
            steps_run=encoded.steps_run,
            steps_predicted=encoded.steps_predicted,
            created_at=time.time(),
            request=record.request,
        )
        self.files.write(picture, encoded.content, encoded.thumbnail)
        return picture

    def add_picture(self, picture: Picture) -> None:
        """Record a picture whose files are stored: from now on it can be shown."""
        row = PictureRow(
            id=picture.id,
            job_id=picture.job_id,
            owner=picture.owner,
            index=picture.index,
            seed=picture.seed,
            width=picture.width,
            height=picture.height,
            format=picture.format,
            steps_run=picture.steps_run,
            steps_predicted=picture.steps_predicted,
            created_at=picture.created_at,
            request=picture.request.to_dict(),
        )
        with self._write() as session:
            session.add(row)

    def pictures_of(self, job_id: str) -> tuple[Picture, ...]:
        """A job's pictures in the order of their index."""
        query = select(PictureRow).where(PictureRow.job_id == job_id).order_by(PictureRow.index)
        with Session(self._engine) as session:
            return tuple(_picture(row) for row in session.scalars(query))

    def history(self, owner: str, before: str | None, limit: int) -> HistoryPage:
        """This owner's pictures, newest first; `before` is the cursor of an earlier page."""
        query = select(PictureRow).where(PictureRow.owner == owner)
        if before is not None:
            number = int(before[:18]) if before.isdecimal() else 0  # SQLite holds 64 bits
            query = query.where(PictureRow.number < number)
        query = query.order_by(PictureRow.number.desc()).limit(limit + 1)
        with Session(self._engine) as session:
            rows = list(session.scalars(query))
        more = str(rows[limit - 1].number) if len(rows) > limit else None
        return HistoryPage(tuple(_picture(row) for row in rows[:limit]), more)

    def picture(self, picture_id: str, owner: str) -> Picture:
        """One picture of this owner. Raises `NotFound`, also for somebody else's."""
        query = select(PictureRow).where(PictureRow.id == picture_id, PictureRow.owner == owner)
        with Session(self._engine) as session:
            row = session.scalars(query).first()
        if row is None:
            raise NotFound(f"There is no picture {picture_id[:64]!r}.", code="picture_not_found")
        return _picture(row)

    def content_path(self, picture_id: str, owner: str) -> Path:
        """The file of one picture of this owner. Raises `NotFound`."""
        return self.files.content_path(self.picture(picture_id, owner))

    def thumbnail_path(self, picture_id: str, owner: str) -> Path:
        """The WebP thumbnail of one picture of this owner. Raises `NotFound`."""
        return self.files.thumbnail_path(self.picture(picture_id, owner))

    def delete_picture(self, picture_id: str, owner: str) -> None:
        """Row first, files second, so that no row ever points nowhere. Raises `NotFound`."""
        picture = self.picture(picture_id, owner)
        with self._write() as session:
            session.execute(delete(PictureRow).where(PictureRow.id == picture.id))
        self.files.discard(picture)

    def sweep(self, now: float) -> int:
        """Remove files older than an hour that no row knows; returns how many."""
        with Session(self._engine) as session:
            pictures = set(session.scalars(select(PictureRow.id)))
            jobs = set(session.scalars(select(JobRow.id).where(JobRow.status.not_in(FINAL))))
        return self.files.sweep(pictures, jobs, now)

    @contextmanager
    def _write(self) -> Iterator[Session]:
        with Session(self._engine, expire_on_commit=False) as session, session.begin():
            yield session


def _connect(url: str) -> Engine:
    try:
        engine = create_engine(url)
    except (SQLAlchemyError, ImportError) as error:
        raise CannotStart(f"--database-url cannot be used: {error}") from error
    if engine.dialect.name == "sqlite":
        # WAL lets the page read while a picture is recorded; NORMAL survives a killed process.
        @event.listens_for(engine, "connect")
        def _tune(connection: Any, _record: Any) -> None:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("PRAGMA busy_timeout=5000")

    return engine


def _record(row: JobRow) -> JobRecord:
    return JobRecord(
        id=row.id,
        owner=row.owner,
        origin=row.origin,  # type: ignore[arg-type]  # the column is a plain string
        request=PictureRequest.from_dict(row.request),
        created_at=row.created_at,
        status=row.status,  # type: ignore[arg-type]
        attempts=row.attempts,
        started_at=row.started_at,
        finished_at=row.finished_at,
        warnings=tuple(Notice(**notice) for notice in row.warnings),
        error_code=row.error_code,
        error_message=row.error_message,
        client=row.client,
    )


def _picture(row: PictureRow) -> Picture:
    return Picture(
        id=row.id,
        job_id=row.job_id,
        owner=row.owner,
        index=row.index,
        seed=row.seed,
        width=row.width,
        height=row.height,
        format=row.format,
        steps_run=row.steps_run,
        steps_predicted=row.steps_predicted,
        created_at=row.created_at,
        request=PictureRequest.from_dict(row.request),
    )
