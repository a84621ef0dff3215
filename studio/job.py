"""A job: one picture request on its way, as its owner sees it. No behaviour but reading."""

from dataclasses import dataclass, field
from typing import Any, Literal

from studio.request import Notice, PictureRequest

Status = Literal["queued", "loading", "running", "done", "failed", "cancelled"]
Origin = Literal["page", "api", "background"]

FINAL: frozenset[str] = frozenset({"done", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Picture:
    """A finished picture in the history."""

    id: str
    job_id: str
    owner: str
    index: int  # place in its job, from 0
    seed: int
    width: int
    height: int
    format: str
    steps_run: int
    steps_predicted: int  # of those that ran: taken from earlier ones by the step cache
    created_at: float  # seconds since the epoch
    request: PictureRequest

    @property
    def steps_computed(self) -> int:
        """Of those that ran: the whole model was asked."""
        return self.steps_run - self.steps_predicted

    @property
    def extension(self) -> str:
        """Of its file, without the dot."""
        return {"jpeg": "jpg"}.get(self.format, self.format)

    @property
    def content_path(self) -> str:
        """Where the page and programs fetch the full picture."""
        return f"/v1/images/{self.id}/content"

    @property
    def thumbnail_path(self) -> str:
        """A WebP of at most 256 px a side."""
        return f"/v1/images/{self.id}/thumbnail"


@dataclass(frozen=True, slots=True)
class JobView:
    """A job at one moment."""

    id: str
    owner: str
    origin: Origin
    status: Status
    request: PictureRequest
    created_at: float
    started_at: float | None = None
    finished_at: float | None = None
    position: int | None = None  # jobs of anyone that stand before it while it is queued
    step: int = 0  # steps done, the mean over its pictures
    steps: int = 0  # steps that each picture runs
    seconds_left: float | None = None
    preview: bytes | None = None  # JPEG of the picture that moved last
    preview_index: int = 0
    warnings: tuple[Notice, ...] = ()
    pictures: tuple[Picture, ...] = ()
    error_code: str | None = None
    error_message: str | None = None
    client: dict[str, Any] = field(default_factory=dict)  # what a program wants back as it was

    @property
    def is_final(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status in FINAL
