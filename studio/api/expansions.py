"""`POST /v1/expansions`: a prompt in the place of a few words, for the page and for programs.

The page takes the stream by a plain fetch: no queue of Gradio's is held, closing the page closes
the stream, and that ends the text model's work.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from pydantic import Field

from studio.api.disconnect import answered
from studio.api.event_stream import streamed
from studio.api.failures import failure_of
from studio.api.schemas import Strict
from studio.api.text_events import DONE, frame
from studio.api.upsampling import available
from studio.errors import BadRequest, error_body
from studio.expansion.expand import Expander, Expansion, Progress
from studio.jobs import Jobs
from studio.request import MAX_PROMPT_CHARS, SEED_LIMIT

Steps = AsyncGenerator[Progress | Expansion]


class ExpansionBody(Strict):
    """The body of `POST /v1/expansions`."""

    input: str = Field(max_length=MAX_PROMPT_CHARS, description="the idea: up to 45 words")
    model: str | None = Field(None, description="the picture model that the prompt is for")
    seed: int = Field(0, ge=0, lt=SEED_LIMIT, description="another seed, another prompt")
    stream: bool = Field(False, description="events with the prompt so far")


def expansions_router(jobs: Jobs, expander: Expander | None) -> APIRouter:
    """The route that expands prompts; without a text model it says how to get one."""
    router = APIRouter(prefix="/v1", tags=["expansions"])

    @router.post("/expansions")
    async def create_expansion(body: ExpansionBody, request: Request) -> Any:
        """Expand a prompt for one picture model; nothing is kept. A hang-up cancels it."""
        steps = _steps(jobs, available(expander), body, request.state.owner)
        if body.stream:
            return await streamed(request, _frames(steps))
        return await answered(request, _whole(steps))

    return router


async def _steps(jobs: Jobs, expander: Expander, body: ExpansionBody, owner: str) -> Steps:
    spec = jobs.spec_of(body.model)
    world = jobs.worlds.get(spec.name)
    steps = expander.expand(body.input, owner=owner, spec=spec, world=world, seed=body.seed)
    try:
        async with aclosing(steps):
            async for step in steps:
                yield step
    except BadRequest as error:
        error.param = "input" if error.param == "prompt" else error.param
        raise


async def _whole(steps: Steps) -> dict[str, Any]:
    async with aclosing(steps):
        async for step in steps:
            if isinstance(step, Expansion):
                return _told(step)
    raise AssertionError("an expansion ends with its prompt or an error")


async def _frames(steps: Steps) -> AsyncGenerator[bytes]:
    """Progress, then the expansion or an error. What fails before the first is raised."""
    has_begun = False
    async with aclosing(steps):
        try:
            async for step in steps:
                yield frame(_event(step))
                has_begun = True
        except Exception as error:  # the HTTP boundary
            if not has_begun:
                raise
            yield frame({"type": "error", **error_body(failure_of(error, "an expansion"))})
    yield DONE


def _event(step: Progress | Expansion) -> dict[str, Any]:
    if isinstance(step, Expansion):
        return {"type": "expansion.completed", "expansion": _told(step)}
    return {"type": "expansion.progress", "text": step.text, "attempt": step.attempt}


def _told(expansion: Expansion) -> dict[str, Any]:
    usage = expansion.usage
    return {
        "object": "expansion",
        "original_prompt": expansion.original,
        "expanded_prompt": expansion.text,
        "seed": expansion.seed,
        "text_model": expansion.model,
        "attempts": expansion.attempts,
        "usage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.input_tokens + usage.output_tokens,
        },
    }
