"""Liveness, readiness and version: no lock, no database, no key."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from studio import __version__
from studio.jobs import Jobs


def health_router(jobs: Jobs) -> APIRouter:
    """`/health/live` is about this process, `/health/ready` about the model."""
    router = APIRouter(tags=["health"])

    @router.get("/health/live")
    async def live() -> dict[str, str]:
        """This process answers."""
        return {"status": "ok"}

    @router.get("/health/ready")
    async def ready() -> JSONResponse:
        """200 when pictures can be made now, else 503 with the cause."""
        status = jobs.engine_status
        body: dict[str, Any] = {
            "status": status.state,
            "detail": status.detail,
            "model": next(iter(jobs.specs)),
            "restarts": status.restarts,
            "steps_computed": jobs.steps_computed,
            "steps_predicted": jobs.steps_predicted,
        }
        if status.fraction is not None:
            body["fraction"] = round(status.fraction, 3)
        return JSONResponse(body, status_code=200 if status.state == "ready" else 503)

    @router.get("/version")
    async def version() -> dict[str, str]:
        """The studio's version."""
        return {"version": __version__}

    return router
