"""The two tables of the history, and the record of what was changed in them."""

from typing import Any

from sqlalchemy import JSON, Index, String, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    """The schema's root."""


class JobRow(Base):
    """One job; `status` and `attempts` are what a restart goes by."""

    __tablename__ = "jobs"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    owner: Mapped[str] = mapped_column(String(64))
    origin: Mapped[str] = mapped_column(String(16))
    status: Mapped[str] = mapped_column(String(16), index=True)
    attempts: Mapped[int] = mapped_column(default=0)
    request: Mapped[dict[str, Any]] = mapped_column(JSON)
    warnings: Mapped[list[dict[str, Any]]] = mapped_column(JSON)
    created_at: Mapped[float]
    started_at: Mapped[float | None]
    finished_at: Mapped[float | None]
    error_code: Mapped[str | None] = mapped_column(String(64))
    error_message: Mapped[str | None]
    client: Mapped[dict[str, Any]] = mapped_column(JSON)


class PictureRow(Base):
    """One finished picture; `number` orders the history and is its paging cursor."""

    __tablename__ = "pictures"
    __table_args__ = (Index("pictures_by_owner", "owner", "number"),)

    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    id: Mapped[str] = mapped_column(String(32), unique=True)
    job_id: Mapped[str] = mapped_column(String(32), index=True)
    owner: Mapped[str] = mapped_column(String(64))
    index: Mapped[int]
    seed: Mapped[int]
    width: Mapped[int]
    height: Mapped[int]
    format: Mapped[str] = mapped_column(String(8))
    steps_run: Mapped[int]
    steps_predicted: Mapped[int] = mapped_column(server_default=text("0"))
    created_at: Mapped[float]
    request: Mapped[dict[str, Any]] = mapped_column(JSON)


class MigrationRow(Base):
    """A step of `studio.migrations` that these tables have behind them."""

    __tablename__ = "migrations"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    applied_at: Mapped[float]
