"""Expand prompt: a short idea and a text model give a prompt, or an honest "it stays as it is".

The same idea, seed, picture model and text model give the same prompt, also after the tries that
came before it.
"""

import random
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial

from pipelines.specs import ModelSpec
from pipelines.text.requests import Finish, TextDelta, TextDone, TextRequest, TextUsage
from studio.engine.protocol import EngineStatus
from studio.engine.text_protocol import TextModel
from studio.errors import BadRequest, ExpansionFailed, StudioError
from studio.expansion.asking import (
    Form,
    copies_example,
    form_of,
    request_of,
    world_request_of,
)
from studio.expansion.budget import (
    LONG_IDEA_WORDS,
    MAX_ADDED_BY_EXAMPLES,
    MAX_ADDED_WORDS,
    budget_of,
)
from studio.expansion.checks import fault_of
from studio.expansion.cleaning import clean
from studio.expansion.template import clean_idea
from studio.expansion.words import words_of
from studio.expansion.worlds import begun, finished, idea_fault
from studio.request import SEED_LIMIT
from studio.texts import Texts
from studio.world import World

TRIES = 3
SEED_STRIDE = 0x9E3779B9  # between the seeds of the tries: far from anybody's next seed
AS_IT_IS = "The prompt stays as it is."
_NO_USAGE = TextUsage(0, 0)


@dataclass(frozen=True, slots=True)
class Progress:
    """The prompt so far.

    For a model that draws anything it only grows within one attempt. In a world words come between
    those of the idea, and a choice is taken back where a later one does not go with it.
    """

    text: str
    attempt: int  # from 1


@dataclass(frozen=True, slots=True)
class Expansion:
    """A prompt in the place of an idea."""

    original: str
    text: str
    seed: int
    model: str  # the text model's name
    attempts: int
    usage: TextUsage  # of all attempts


@dataclass(slots=True)
class _Try:
    """What came back of one request."""

    raw: str = ""
    finish: Finish = "length"
    usage: TextUsage = _NO_USAGE


class Expander:
    """Expansion with a studio's texts, under their limits. Lives on the server's event loop."""

    def __init__(self, texts: Texts, *, tries: int = TRIES) -> None:
        self._texts = texts
        self._tries = tries

    @property
    def status(self) -> EngineStatus | None:
        """What the text engine is doing; None without one. Never blocks."""
        return self._texts.status

    @property
    def model(self) -> TextModel:
        """The text model. Raises `Unavailable` while the engine does not know it."""
        return self._texts.model_of(None)

    async def expand(
        self, idea: str, *, owner: str, spec: ModelSpec, world: World | None = None, seed: int = 0
    ) -> AsyncGenerator[Progress | Expansion]:
        """Some `Progress`, then the `Expansion`; closing the generator ends the text model's work.

        `spec` and `world` are those of the picture model. Raises `BadRequest` for an empty idea,
        `ExpansionFailed` where the idea has to stay as it is, and what `Texts.stream` raises.
        """
        _check_idea(idea)
        if world is not None and (fault := idea_fault(world, idea)):
            raise ExpansionFailed(f"{fault} {AS_IT_IS}", param="prompt")
        steps = (
            self._in_world(idea, world, owner, seed)
            if world
            else self._free(idea, spec, owner, seed)
        )
        async with aclosing(steps):
            async for step in steps:
                yield step

    async def _free(
        self, idea: str, spec: ModelSpec, owner: str, seed: int
    ) -> AsyncGenerator[Progress | Expansion]:
        """For a model that draws anything: tries, until one passes the checks."""
        form, start = form_of(self.model), clean_idea(idea)
        longest = MAX_ADDED_BY_EXAMPLES if form == "examples" else MAX_ADDED_WORDS
        budget = budget_of(spec, max_added_words=longest)
        prompt_of = partial(clean, start, budget=budget, is_answer=form == "chat")
        usage, fault = _NO_USAGE, ""
        for attempt in range(1, self._tries + 1):
            request = request_of(form, start, id=_new_id(), seed=_seed_of(seed, attempt))
            done, shown = _Try(), ""
            async with aclosing(self._write(request, owner, done)) as deltas:
                async for _ in deltas:
                    if (text := prompt_of(raw=done.raw, is_complete=False)) != shown:
                        shown = text
                        yield Progress(text, attempt)
            usage = _sum(usage, done.usage)
            text = prompt_of(raw=done.raw, is_complete=done.finish == "stop")
            fault = _fault(form, start, text)
            if not fault:
                yield Expansion(idea, text, seed, self.model.name, attempt, usage)
                return
        tries = f"{self._tries} tries" if self._tries > 1 else "one try"
        message = f"The prompt could not be expanded: after {tries} the text {fault}. {AS_IT_IS}"
        raise ExpansionFailed(message, param="prompt")

    async def _in_world(
        self, idea: str, world: World, owner: str, seed: int
    ) -> AsyncGenerator[Progress | Expansion]:
        """For a model that draws one world: a choice in its words, which never fails."""
        rng = random.Random(f"{seed} {idea}")
        form, done, shown = form_of(self.model), _Try(), idea
        request = world_request_of(form, clean_idea(idea), world, rng, id=_new_id(), seed=seed)
        async with aclosing(self._write(request, owner, done)) as deltas:
            async for _ in deltas:
                text = begun(world, idea, _whole_clauses(done.raw))
                if text != shown:
                    shown = text
                    yield Progress(text, 1)
        raw = done.raw if done.finish == "stop" else _whole_clauses(done.raw)
        final = finished(world, idea, raw, rng)
        if final is None:
            message = f"The prompt says all that this model can be told. {AS_IT_IS}"
            raise ExpansionFailed(message, param="prompt")
        yield Expansion(idea, final, seed, self.model.name, 1, done.usage)

    async def _write(self, request: TextRequest, owner: str, done: _Try) -> AsyncGenerator[None]:
        """Fill `done` as the engine writes; yields after each delta."""
        try:
            async with aclosing(self._texts.stream(request, owner=owner)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, TextDelta):
                        done.raw += piece.text
                        yield
                    elif isinstance(piece, TextDone):
                        done.finish, done.usage = piece.finish, piece.usage
        except StudioError as error:
            error.param = None  # a field of the request above, which nobody sent
            raise


def _check_idea(idea: str) -> None:
    if not clean_idea(idea):
        raise BadRequest("There is nothing to expand: write a few words first.", param="prompt")
    if len(words_of(idea)) > LONG_IDEA_WORDS:
        message = f"The prompt has more than {LONG_IDEA_WORDS} words and says enough. {AS_IT_IS}"
        raise ExpansionFailed(message, param="prompt")


def _fault(form: Form, idea: str, text: str) -> str:
    if form != "adapter" and copies_example(idea, text):
        return "copied an example"
    return fault_of(idea, text) or ""


def _seed_of(seed: int, attempt: int) -> int:
    return (seed + (attempt - 1) * SEED_STRIDE) % SEED_LIMIT


def _sum(first: TextUsage, second: TextUsage) -> TextUsage:
    return TextUsage(
        first.input_tokens + second.input_tokens,
        first.output_tokens + second.output_tokens,
        first.cached_tokens + second.cached_tokens,
    )


def _whole_clauses(raw: str) -> str:
    """Up to the last comma: what comes next may change the meaning of what is behind it."""
    return raw[: max(raw.rfind(","), raw.rfind("\n"), 0)]


def _new_id() -> str:
    return f"expand-{uuid.uuid4().hex}"
