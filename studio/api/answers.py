"""The response object of `/v1/responses`, as the OpenAI SDK reads it."""

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from anyio import to_thread
from fastapi import Request

from studio.api.schemas import ImageOptions
from studio.job import JobView, Picture
from studio.jobs import Jobs
from studio.pictures import LoadedPicture
from studio.request import Notice, PictureRequest
from studio.step_cache import rule_to_dict

OPTION_NAMES = frozenset(ImageOptions.model_fields)
STATUS = {"done": "completed", "loading": "queued", "running": "in_progress"}


def field_of(param: str | None) -> str | None:
    """Where a value of the draft stands in the body."""
    if param == "prompt":
        return "input"
    return f"provider_options.image.{param}" if param in OPTION_NAMES else param


def source_notices(pictures: Sequence[LoadedPicture]) -> tuple[Notice, ...]:
    notices = [notice for picture in pictures for notice in picture.notices]
    return tuple(Notice("source_changed", "input", text) for text in notices)


async def answer_with(request: Request, jobs: Jobs, job: JobView) -> dict[str, Any]:
    """The response object, with the pictures of a job that is done."""
    by_url = job.client.get("response_format") == "url"
    parts = []
    for picture in job.pictures if job.status == "done" else ():
        part = _part(picture)
        if by_url:
            part["image_url"] = str(request.base_url).rstrip("/") + picture.content_path
        else:
            path = await to_thread.run_sync(jobs.library.content_path, picture.id, job.owner)
            part["image_data"] = await to_thread.run_sync(_base64, path)
        parts.append(part)
    return _response(job, parts, _engine_notices(jobs, job))


def _engine_notices(jobs: Jobs, job: JobView) -> tuple[Notice, ...]:
    """Why a job still waits, where it will wait for long."""
    status = jobs.engine_status
    if job.is_final or status.state != "failed":
        return ()
    message = f"The model could not be loaded: {status.detail} The job waits for the next start."
    return (Notice("engine_failed", None, message),)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode("ascii")


def _part(picture: Picture) -> dict[str, Any]:
    return {
        "type": "output_image",
        "id": picture.id,
        "format": picture.format,
        "seed": picture.seed,
        "width": picture.width,
        "height": picture.height,
        "steps": picture.steps_run,
        "steps_computed": picture.steps_computed,
        "steps_predicted": picture.steps_predicted,
        **rule_to_dict(picture.request.cache),
        **_prompts(picture.request),
    }


def _prompts(request: PictureRequest) -> dict[str, str]:
    """Of an expanded prompt what was sent and what was drawn; nothing of others."""
    if request.original_prompt is None:
        return {}
    return {"original_prompt": request.original_prompt, "expanded_prompt": request.prompt}


def _response(
    job: JobView,
    parts: list[dict[str, Any]],
    notices: tuple[Notice, ...],
) -> dict[str, Any]:
    """The response object, as the OpenAI SDK reads it."""
    message = {
        "type": "message",
        "id": f"msg_{job.id}",
        "role": "assistant",
        "status": "completed",
        "content": parts,
    }
    error = {"code": job.error_code, "message": job.error_message} if job.error_code else None
    return {
        "id": f"resp_{job.id}",
        "object": "response",
        "created_at": int(job.created_at),
        "completed_at": int(job.finished_at) if job.finished_at and parts else None,
        "status": STATUS.get(job.status, job.status),
        "model": job.request.model,
        "output": [message] if parts else [],
        "warnings": [warning(notice, field_of) for notice in (*job.warnings, *notices)],
        "usage": _usage(job) if parts else None,
        "error": error,
        "incomplete_details": None,
        "background": job.origin == "background",
        "metadata": job.client.get("metadata", {}),
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
        "seed": job.request.seed,
        "progress": {"step": job.step, "steps": job.steps, "seconds_left": job.seconds_left},
    }


def warning(notice: Notice, field_of: Callable[[str | None], str | None]) -> dict[str, Any]:
    """A notice as answers have it; `field_of` tells where its value stands in the body."""
    return {"code": notice.code, "param": field_of(notice.param), "message": notice.message}


def _usage(job: JobView) -> dict[str, Any]:
    request = job.request
    details = {
        "width": request.width,
        "height": request.height,
        "megapixels": round(request.width * request.height / 1e6, 6),
        "steps": job.pictures[0].steps_run,
        "image_count": len(job.pictures),
    }
    return {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
        "image_generation_details": details,
    }
