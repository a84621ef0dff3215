"""The middle of the page as HTML: empty, loading, at work, done, stopped or failed."""

import base64
import math
from collections.abc import Sequence
from html import escape

from studio.engine.protocol import EngineStatus
from studio.job import JobView, Picture
from studio.ui.notes import steps_words, warnings
from studio.ui.shots import shot
from studio.ui.step_cache import steps_made

_OPENING = frozenset({"starting", "loading", "restarting"})


def is_opening(status: EngineStatus) -> bool:
    """Whether the model is on its way and cannot make pictures yet."""
    return status.state in _OPENING


def status_words(status: EngineStatus) -> str:
    """The engine's state in a few words, with the percent where there is one."""
    words = {
        "starting": "Starting",
        "loading": "Loading the model",
        "restarting": "Restarting the model",
        "ready": "Ready",
        "failed": "The model could not be loaded",
        "closed": "The studio is closing",
    }[status.state]
    if status.state == "ready" and status.detail:  # another model is on its way
        return f"{status.detail}{percent(status)}"
    detail = f": {status.detail}" if status.detail and status.state != "closed" else ""
    return f"{words}{detail}{percent(status)}"


def percent(status: EngineStatus) -> str:
    """` · 45 %`, or nothing where the loading is not measured."""
    if status.fraction is None:
        return ""
    return f" · {round(100 * status.fraction)} %"


def job_stage(view: JobView, status: EngineStatus, waiting: int, base: str = "") -> str:
    """A job at this moment; `waiting` other jobs of this owner come after it.

    `base` leads to the studio's root.
    """
    if view.status == "failed":
        return _message("failed", "This did not work", view.error_message or "The job failed.")
    if view.status == "cancelled" and view.pictures:  # made before the stop: kept
        return done_stage(view.pictures, view.request.count, base)
    if view.status == "cancelled":
        return _message("stopped", "Stopped", "Nothing of this picture was saved.")
    if view.status == "done":
        return done_stage(view.pictures, view.request.count, base) + warnings(view.warnings)
    cells = _cells_at_work(view, base)
    ratio = view.request.width / view.request.height
    return (
        f"{_grid(cells, ratio, 'busy')}{_progress(view, status, waiting)}{warnings(view.warnings)}"
    )


def done_stage(pictures: Sequence[Picture], count: int, base: str = "") -> str:
    """The finished pictures of one job; some may have been deleted since."""
    if not pictures:
        return _message("stopped", "Nothing here any more", "These pictures were deleted.")
    first = pictures[0]
    cells = [shot(picture, is_thumbnail=False, base=base) for picture in pictures]
    steps = steps_words(first.request) + steps_made(pictures)
    facts = [f"{first.width} × {first.height} px", _seeds(pictures), steps]
    return (
        f"{_grid(cells, first.width / first.height, 'done')}"
        f"<p class='caption' role='status'>"
        f"<span class='caption-prompt'>{escape(first.request.prompt)}</span>"
        f"<span>{escape(' · '.join(facts))}</span></p>"
    )


def idle_stage(
    status: EngineStatus,
    latest: Sequence[Picture],
    examples: Sequence[str],
    model: str,
    base: str = "",
) -> str:
    """What stands here before the first picture, or the latest pictures after a reload."""
    if status.state == "failed":
        cause = status.detail or "The cause is in the server's log."
        return _message("failed", "The model could not be loaded", cause)
    if latest:
        return done_stage(latest, len(latest), base)
    if is_opening(status):
        return _opening(status, model)
    return _empty(examples)


def _seeds(pictures: Sequence[Picture]) -> str:
    first, last = pictures[0].seed, pictures[-1].seed
    return f"seed {first}" if len(pictures) == 1 else f"seeds {first} to {last}"


def _cells_at_work(view: JobView, base: str) -> list[str]:
    made = {picture.index: picture for picture in view.pictures}
    return [
        shot(made[index], is_thumbnail=False, base=base)
        if index in made
        else _unfinished(view, index)
        for index in range(view.request.count)
    ]


def _unfinished(view: JobView, index: int) -> str:
    if view.preview is None or index != view.preview_index:
        return "<div class='shot waiting'></div>"
    data = base64.b64encode(view.preview).decode()
    alt = "Preview of the picture being made"
    source = f"data:image/jpeg;base64,{data}"
    return f"<div class='shot preview'><img alt='{alt}' decoding='sync' src='{source}'></div>"


def _grid(cells: Sequence[str], ratio: float, state: str) -> str:
    columns = 1 if len(cells) == 1 else 2
    rows = math.ceil(len(cells) / columns)
    return (
        f"<div class='grid' data-state='{state}' "
        f"style='--columns:{columns};--rows:{rows};--ratio:{ratio:.4f}'>{''.join(cells)}</div>"
    )


def _progress(view: JobView, status: EngineStatus, waiting: int) -> str:
    done = view.step / view.steps if view.steps else 0.0
    share = round(100 * done)
    return (
        f"<div class='progress' data-job='{escape(view.id, quote=True)}' data-share='{share}' "
        f"data-status='{view.status}'>"
        f"<div class='bar' role='progressbar' aria-label='Progress' aria-valuemin='0' "
        f"aria-valuemax='100' aria-valuenow='{share}'><i style='width:{share}%'></i></div>"
        f"<p><span>{escape(progress_words(view, status))}</span>"
        f"<span>{escape(_beside(view, waiting))}</span></p></div>"
    )


def progress_words(view: JobView, status: EngineStatus) -> str:
    """What the job is doing now."""
    if view.status == "running" and view.step >= view.steps:
        return "Developing the picture"
    if view.status == "running":
        return f"Step {view.step} of {view.steps}"
    if is_opening(status):
        return f"Waiting for the model. {status_words(status)}"
    if status.state == "failed":
        return f"It waits for the next start. {status_words(status)}"
    if view.status == "loading":
        return status_words(status) if status.detail else "Starting"
    if view.position:
        return f"In the queue, {view.position} before you"
    return "Next in the queue"


def _beside(view: JobView, waiting: int) -> str:
    parts = [f"{waiting} more waiting"] if waiting else []
    if view.status == "running" and view.seconds_left is not None and view.step < view.steps:
        minutes, seconds = divmod(math.ceil(view.seconds_left), 60)
        parts.insert(0, f"{minutes} min {seconds} s left" if minutes else f"{seconds} s left")
    return " · ".join(parts)


def _opening(status: EngineStatus, model: str) -> str:
    width = 100 if status.fraction is None else round(100 * status.fraction)
    kind = " unmeasured" if status.fraction is None else ""
    return (
        f"<div class='message opening' role='status'><h2>{escape(status_words(status))}</h2>"
        f"<div class='bar{kind}'><i style='width:{width}%'></i></div>"
        f"<p>{escape(model)} is on its way. Write the prompt meanwhile: it starts by itself.</p>"
        "</div>"
    )


def _empty(examples: Sequence[str]) -> str:
    chips = "".join(
        f"<button type='button' class='chip' data-do='example'>{escape(text)}</button>"
        for text in examples
    )
    return (
        "<div class='message empty'><h2>What would you like to see?</h2>"
        "<p>Describe it below, or begin with one of these.</p>"
        f"<div class='chips'>{chips}</div></div>"
    )


def _message(kind: str, title: str, text: str) -> str:
    role = "alert" if kind == "failed" else "status"
    return (
        f"<div class='message {kind}' role='{role}'><h2>{escape(title)}</h2>"
        f"<p>{escape(text)}</p></div>"
    )
