"""`/v1/models`: what this studio serves, with the limits that a client needs."""

from typing import Any

from fastapi import APIRouter

from pipelines.specs import ModelSpec
from studio.api.kinds import TEXT, kind_of
from studio.engine.text_protocol import TextModel
from studio.errors import NotFound
from studio.jobs import Jobs
from studio.step_cache import CACHE_NAMES, NOTHING_SAID
from studio.texts import Texts
from studio.world import World


def models_router(jobs: Jobs, texts: Texts) -> APIRouter:
    """The models that `model` may name, the default first; what writes text comes last."""
    router = APIRouter(prefix="/v1", tags=["models"])
    entries = {name: _entry(jobs, spec) for name, spec in jobs.specs.items()}

    @router.get("/models")
    async def list_models() -> dict[str, Any]:
        """The models that `model` may name."""
        written = [] if texts.model is None else [_text_entry(texts.model)]
        return {"object": "list", "data": [*entries.values(), *written]}

    @router.get("/models/{name:path}/world")
    async def get_world(name: str) -> World:
        """What the model can draw and how to ask for it, where `has_world` is true."""
        if kind_of(name, jobs, texts) == TEXT:
            raise NotFound(f"{name} writes text and draws nothing.", code="no_world")
        spec = jobs.spec_of(name)
        if spec.name not in jobs.worlds:
            raise NotFound(
                f"{spec.name} comes without a list of what it draws: try any prompt.",
                code="no_world",
            )
        return jobs.worlds[spec.name]

    @router.get("/models/{name:path}")
    async def get_model(name: str) -> dict[str, Any]:
        """One model's limits and defaults."""
        if kind_of(name, jobs, texts) == TEXT:
            return _text_entry(texts.model_of(name))
        return entries[name]

    return router


def _text_entry(model: TextModel) -> dict[str, Any]:
    return {
        "id": model.name,
        "object": "model",
        "created": 0,
        "owned_by": model.name.partition("/")[0],
        "text": {
            "context_tokens": model.context_tokens,
            "chats": model.chats,
            "completes": model.completes,
            "adapters": list(model.adapters),
        },
    }


def _entry(jobs: Jobs, spec: ModelSpec) -> dict[str, Any]:
    return {
        "id": spec.name,
        "object": "model",
        "created": 0,
        "owned_by": spec.name.partition("/")[0],
        "licence": spec.licence,
        "weights_gb": round(spec.weights_gb, 3),
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
            "negative_prompt": spec.negative_scale,
            "takes_start": spec.takes_start,
            "takes_mask": spec.takes_mask,
            "max_references": spec.max_references,
            "max_prompt_tokens": spec.max_sequence_length,
            "has_world": spec.name in jobs.worlds,
            "caches": list(CACHE_NAMES),
            "default_cache": jobs.cache.rule_of(NOTHING_SAID).name,
        },
    }
