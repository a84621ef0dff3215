"""`prompt_upsampling`: the prompt of a request expanded before its pictures are made."""

from contextlib import aclosing
from dataclasses import replace

from studio.api.answers import field_of
from studio.errors import ExpansionFailed, StudioError, Unavailable
from studio.expansion.expand import Expander, Expansion
from studio.jobs import Jobs
from studio.request import Draft, Notice

PARAM = "provider_options.image.prompt_upsampling"


def available(expander: Expander | None, *, param: str | None = None) -> Expander:
    """The expander of a studio that has one. Raises `Unavailable` with the way out."""
    if expander is None:
        raise Unavailable(
            "This studio has no text model, so it cannot expand prompts. Start it with "
            "--text-engine, or leave the expansion out.",
            param=param,
            code="no_text_engine",
        )
    return expander


async def upsampled(
    expander: Expander | None, jobs: Jobs, draft: Draft, *, owner: str
) -> tuple[Draft, tuple[Notice, ...]]:
    """`draft` with an expanded prompt, or as it is with a notice that says why.

    The seed of the pictures is that of the expansion, too, and is drawn here where it is left out:
    so the same request gives the same prompt. Raises `Unavailable` without a text model, while it
    loads and when it is lost, `TooManyRequests` where `owner` has too many texts in flight, and
    `BadRequest` for a draft that could not be made anyway.
    """
    expander = available(expander, param=PARAM)
    try:
        planned, _ = jobs.plan(draft)
    except StudioError as error:
        error.param = field_of(error.param)
        raise
    draft = replace(draft, seed=planned.seed)
    spec = jobs.spec_of(draft.model)
    world = jobs.worlds.get(spec.name)
    steps = expander.expand(draft.prompt, owner=owner, spec=spec, world=world, seed=planned.seed)
    try:
        async with aclosing(steps):
            async for step in steps:
                if isinstance(step, Expansion):
                    return replace(draft, prompt=step.text, original_prompt=step.original), ()
    except ExpansionFailed as error:
        return draft, (Notice("prompt_not_expanded", "prompt", error.message),)
    raise AssertionError("an expansion ends with its prompt or an error")
