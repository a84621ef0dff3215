"""Liveness, readiness and version: no lock, no database, no key."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from studio import __version__
from studio.api.text_answers import speculation_to_dict
from studio.jobs import Jobs
from studio.texts import Texts


def health_router(jobs: Jobs, texts: Texts) -> APIRouter:
    """`/health/live` is about this process, `/health/ready` about the model."""
    router = APIRouter(tags=["health"])

    @router.get("/health/live")
    async def live() -> dict[str, str]:
        """This process answers."""
        return {"status": "ok"}

    @router.get("/health/ready")
    async def ready() -> JSONResponse:
        """200 when pictures can be made now, else 503 with the cause; `text` has its own status."""
        status = jobs.engine_status
        body: dict[str, Any] = {
            "status": status.state,
            "detail": status.detail,
            "model": next(iter(jobs.specs), None),
            "restarts": status.restarts,
            "steps_computed": jobs.steps_computed,
            "steps_predicted": jobs.steps_predicted,
            "text": _text(texts),
        }
        if status.fraction is not None:
            body["fraction"] = round(status.fraction, 3)
        # Text does not decide where there are pictures: without it the studio still does its work.
        decisive = status.state if jobs.specs else body["text"]["status"]
        return JSONResponse(body, status_code=200 if decisive == "ready" else 503)

    @router.get("/version")
    async def version() -> dict[str, str]:
        """The studio's version."""
        return {"version": __version__}

    return router


def _text(texts: Texts) -> dict[str, Any]:
    status, model = texts.status, texts.model
    if status is None:
        return {"status": "off", "detail": "", "model": None, "speculation": None}
    body: dict[str, Any] = {
        "status": status.state,
        "detail": status.detail,
        "model": model.name if model is not None else None,
        "speculation": speculation_to_dict(texts.speculation),
    }
    if status.fraction is not None:
        body["fraction"] = round(status.fraction, 3)
    return body
