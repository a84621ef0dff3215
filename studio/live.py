"""A job that is not over: what only memory knows of it. Its user holds a lock."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelines.requests import Pixels, RenderRequest
from studio.job import JobView, Picture, Status
from studio.library import JobRecord
from studio.request import Notice

TIMED_STEPS = 8  # the seconds left follow the last steps, since others join and leave


@dataclass(slots=True)
class LiveJob:
    """One unfinished job: its kept record, and its progress in this process."""

    record: JobRecord
    status: Status = "queued"
    attempts: int = 0
    started_at: float | None = None
    warnings: list[Notice] = field(default_factory=list)
    pictures: dict[int, Picture] = field(default_factory=dict)
    rendering: tuple[int, ...] = ()  # indexes handed to the engine: all but those made already
    steps_done: dict[int, int] = field(default_factory=dict)
    ticks: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=TIMED_STEPS))
    preview: bytes | None = None
    preview_index: int = 0

    def hand_over(self) -> tuple[int, ...]:
        """The picture indexes that the engine still has to make; progress starts afresh."""
        self.status = "loading"
        count = self.record.request.count
        self.rendering = tuple(index for index in range(count) if index not in self.pictures)
        self.steps_done.clear()
        self.ticks.clear()
        self.preview = None
        return self.rendering

    def render_request(self, pictures: Sequence[Pixels]) -> RenderRequest:
        """What the engine is asked for after `hand_over`; `pictures` came with the request."""
        request = self.record.request
        start = pictures[0] if request.has_source else None
        return RenderRequest(
            id=self.record.id,
            model=request.model,
            prompt=request.prompt,
            width=request.width,
            height=request.height,
            steps=request.steps,
            seeds=tuple(request.seed_of(index) for index in self.rendering),
            guidance_scale=request.guidance_scale,
            true_cfg_scale=request.true_cfg_scale,
            negative_prompt=request.negative_prompt,
            secondary_prompt=request.secondary_prompt,
            secondary_negative_prompt=request.secondary_negative_prompt,
            source=start,
            references=tuple(pictures[request.has_source :]),
            strength=request.strength,
            cache=request.cache,
            owner=self.record.owner,
        )

    def begin(self, now: float) -> None:
        """The engine took it up."""
        self.status = "running"
        self.started_at = self.started_at or now

    def advance(self, place: int, step: int, now: float) -> None:
        """`place` counts within what was handed over."""
        self.steps_done[self.rendering[place]] = step
        self.ticks.append((now, sum(self.steps_done.values())))

    @property
    def seconds_left(self) -> float | None:
        """By the pace of the last steps; None before there is a pace."""
        if len(self.ticks) < 2:
            return None
        (first_at, first), (last_at, last) = self.ticks[0], self.ticks[-1]
        if last <= first or last_at <= first_at:
            return None
        total = len(self.rendering) * self.record.request.steps_to_run
        return (total - last) * (last_at - first_at) / (last - first)

    @property
    def step(self) -> int:
        """Steps done, the mean over all pictures of the job."""
        request = self.record.request
        made = len(self.pictures) * request.steps_to_run
        under_way = sum(
            step for index, step in self.steps_done.items() if index not in self.pictures
        )
        return (made + under_way) // request.count

    def view(self, position: int | None) -> JobView:
        """What the owner sees now."""
        record = self.record
        return JobView(
            id=record.id,
            owner=record.owner,
            origin=record.origin,
            status=self.status,
            request=record.request,
            created_at=record.created_at,
            started_at=self.started_at,
            position=position,
            step=self.step,
            steps=record.request.steps_to_run,
            seconds_left=self.seconds_left,
            preview=self.preview,
            preview_index=self.preview_index,
            warnings=tuple(self.warnings),
            pictures=tuple(self.pictures[index] for index in sorted(self.pictures)),
            client=record.client,
        )


def kept_view(record: JobRecord, pictures: tuple[Picture, ...]) -> JobView:
    """A finished job, from what the library keeps."""
    steps = record.request.steps_to_run
    return JobView(
        id=record.id,
        owner=record.owner,
        origin=record.origin,
        status=record.status,
        request=record.request,
        created_at=record.created_at,
        started_at=record.started_at,
        finished_at=record.finished_at,
        step=steps if record.status == "done" else 0,
        steps=steps,
        warnings=record.warnings,
        pictures=pictures,
        error_code=record.error_code,
        error_message=record.error_message,
        client=record.client,
    )
