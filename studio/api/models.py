"""`/v1/models`: what this studio serves, with the limits that a client needs."""

from typing import Any

from fastapi import APIRouter

from studio.errors import NotFound
from studio.jobs import Jobs
from studio.step_cache import CACHE_NAMES, NOTHING_SAID
from studio.world import World


def models_router(jobs: Jobs) -> APIRouter:
    """One model a studio."""
    spec = jobs.spec
    router = APIRouter(prefix="/v1", tags=["models"])
    entry = _entry(jobs)

    @router.get("/models")
    async def list_models() -> dict[str, Any]:
        """The models that `model` may name."""
        return {"object": "list", "data": [entry]}

    @router.get("/models/{name:path}/world")
    async def get_world(name: str) -> World:
        """What the model can draw and how to ask for it, where `has_world` is true."""
        _check_name(name, spec.name)
        if jobs.world is None:
            raise NotFound(
                f"{spec.name} comes without a list of what it draws: try any prompt.",
                code="no_world",
            )
        return jobs.world

    @router.get("/models/{name:path}")
    async def get_model(name: str) -> dict[str, Any]:
        """One model's limits and defaults."""
        _check_name(name, spec.name)
        return entry

    return router


def _check_name(name: str, served: str) -> None:
    if name != served:
        raise NotFound(
            f"There is no model {name[:100]!r} here; this studio serves {served!r}.",
            param="model",
            code="model_not_found",
        )


def _entry(jobs: Jobs) -> dict[str, Any]:
    spec = jobs.spec
    return {
        "id": spec.name,
        "object": "model",
        "created": 0,
        "owned_by": spec.name.partition("/")[0],
        "licence": spec.licence,
        "image": {
            "native_width": spec.native_width,
            "native_height": spec.native_height,
            "size_multiple": spec.size_multiple,
            "min_side": spec.min_side_px,
            "max_pixels": spec.max_pixels,
            "default_steps": spec.default_steps,
            "max_steps": spec.max_steps,
            "default_guidance_scale": spec.default_guidance_scale,
            "guidance": spec.guidance,
            "takes_start": spec.takes_start,
            "max_references": spec.max_references,
            "max_prompt_tokens": spec.max_sequence_length,
            "has_world": jobs.world is not None,
            "caches": list(CACHE_NAMES),
            "default_cache": jobs.cache.rule_of(NOTHING_SAID).name,
        },
    }
