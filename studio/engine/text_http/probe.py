"""Which server is there, which model it serves, and how much that reads: asked before any text."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

import httpx

from studio.engine.protocol import EngineState
from studio.engine.text_http.chunks import Json, as_count, as_object
from studio.engine.text_http.dialects import DIALECTS, OPENAI, Dialect, dialect_of_card
from studio.engine.text_http.refusals import Refusal, Site, failure_of_answer, lost
from studio.engine.text_protocol import TextModel

MAX_NAMES = 20  # of models in a message


class NotFoundYet(Exception):
    """The server cannot be used now; `state` is what the engine is meanwhile."""

    def __init__(self, state: EngineState, message: str) -> None:
        super().__init__(message)
        self.state = state


@dataclass(frozen=True, slots=True)
class Found:
    """A server that serves our model."""

    dialect: Dialect
    model: TextModel
    wire_name: str  # the model as the server calls it


async def find_server(
    client: httpx.AsyncClient, site: Site, *, model: str | None, dialect: Dialect | None
) -> Found:
    """Ask `site` what it is. `dialect` None: find out. Raises NotFoundYet with a sentence."""
    cards = await _cards(client, site, model)
    card = _chosen(cards, model, site)
    dialect = dialect or dialect_of_card(card) or await _probed(client, site)
    context_tokens = await _context_tokens(client, site, card, dialect)
    wire_name = str(card["id"])
    # llama.cpp calls a model by the path of its file, which is nobody's business.
    name = PurePath(wire_name).stem if wire_name.endswith(".gguf") else wire_name
    model_there = TextModel(
        name, context_tokens, completes=dialect.completes, caveats=dialect.caveats
    )
    return Found(dialect, model_there, wire_name)


async def _cards(client: httpx.AsyncClient, site: Site, model: str | None) -> list[Json]:
    """What /v1/models lists; a server without a list is believed to serve what was named."""
    try:
        answer = await client.get(f"{site.url}/models")
    except httpx.HTTPError as error:
        raise NotFoundYet("restarting", lost(site, error).message) from error
    if answer.status_code in (404, 405) and model is not None:
        return [{"id": model}]
    if answer.status_code != 200:
        location = answer.headers.get("location")
        failed = Refusal(answer.status_code, answer.content, location=location)
        is_loading = answer.status_code in (502, 503, 504)
        message = failure_of_answer(site, failed).message
        raise NotFoundYet("loading" if is_loading else "failed", message)
    data = _json(answer).get("data")
    cards = [as_object(item) for item in data] if isinstance(data, list) else []
    cards = [card for card in cards if isinstance(card.get("id"), str)]
    if not cards:
        raise NotFoundYet(
            "failed",
            "The text server lists no model. Load one there, or give the --text-url of an "
            "OpenAI-compatible server.",
        )
    return cards


def _chosen(cards: list[Json], model: str | None, site: Site) -> Json:
    if model is None:  # a card with a parent is a LoRA's
        return next((card for card in cards if not card.get("parent")), cards[0])
    for card in cards:
        if model in _names(card):
            return card
    listed = [str(card["id"]) for card in cards]
    more = f" and {len(listed) - MAX_NAMES} more" if len(listed) > MAX_NAMES else ""
    raise NotFoundYet(
        "failed",
        f"The text server does not serve {model}. It serves {', '.join(listed[:MAX_NAMES])}{more}: "
        "name one of them with --text-model.",
    )


def _names(card: Json) -> Iterator[str]:
    """What a person may call a model: `llama3` for `llama3:latest`, the last part of a path."""
    name = str(card["id"])
    yield name
    yield name.removesuffix(":latest")
    yield PurePath(name).name
    if name.endswith(".gguf"):
        yield PurePath(name).stem
    aliases = card.get("aliases")
    if isinstance(aliases, list):
        yield from (alias for alias in aliases if isinstance(alias, str))


async def _probed(client: httpx.AsyncClient, site: Site) -> Dialect:
    for dialect in DIALECTS.values():
        if dialect.probe and dialect.probe.key in await _get(client, site, dialect.probe.path):
            return dialect
    return OPENAI


async def _context_tokens(
    client: httpx.AsyncClient, site: Site, card: Json, dialect: Dialect
) -> int | None:
    if length := as_count(card.get("max_model_len")):
        return length
    if dialect.name != "llamacpp":
        return None
    settings = as_object((await _get(client, site, "/props")).get("default_generation_settings"))
    of_slot, of_model = settings.get("n_ctx"), as_object(card.get("meta")).get("n_ctx")
    return as_count(of_slot) or as_count(of_model) or None


async def _get(client: httpx.AsyncClient, site: Site, path: str) -> Json:
    """The object below the server's root, or an empty one."""
    try:
        answer = await client.get(site.root + path)
    except httpx.HTTPError:
        return {}
    return _json(answer) if answer.status_code == 200 else {}


def _json(answer: httpx.Response) -> Json:
    try:
        return as_object(json.loads(answer.content))
    except ValueError:
        return {}
