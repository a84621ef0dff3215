"""Fields that the studio does not offer for text: taken where they ask for nothing."""

from collections.abc import Iterator
from typing import Final

from studio.api.text_schemas import TextBody
from studio.errors import BadRequest
from studio.request import Notice

PLAIN_TEXT: Final = {"type": "text"}


def refuse_unsupported(body: TextBody) -> None:
    """Raises `BadRequest` for the first field that asks for what is not offered yet."""
    for field, sentence in _unsupported(body):
        raise BadRequest(sentence, param=field, code="unsupported")


def idle_fields(body: TextBody) -> tuple[Notice, ...]:
    """A notice for each field that was sent and could not act."""
    return tuple(
        Notice("option_without_effect", field, f"{field} had no effect: {reason}.")
        for field, reason in _idle(body)
    )


def _unsupported(body: TextBody) -> Iterator[tuple[str, str]]:
    if body.background:
        yield (
            "background",
            "background is not offered for text; leave it out, and stream to see the text grow.",
        )
    if body.previous_response_id is not None:
        yield (
            "previous_response_id",
            "previous_response_id is not offered yet: texts are not kept. Send the earlier turns "
            "in input.",
        )
    if body.tools:
        yield "tools", "tools are not offered yet; leave them out."
    if body.tool_choice not in (None, "auto", "none"):
        yield "tool_choice", "tool_choice must be auto or none, since tools are not offered yet."
    yield from _unsupported_styles(body)


def _unsupported_styles(body: TextBody) -> Iterator[tuple[str, str]]:
    if body.reasoning is not None and body.reasoning.effort not in (None, "none"):
        yield "reasoning.effort", "The text models here do not reason; leave reasoning out."
    if body.reasoning is not None and body.reasoning.summary is not None:
        yield "reasoning.summary", "The text models here do not reason; leave reasoning out."
    if body.text is not None and body.text.format not in (None, PLAIN_TEXT):
        yield "text.format", 'text.format must be {"type": "text"}; JSON is not offered yet.'
    if body.text is not None and body.text.verbosity not in (None, "medium"):
        yield "text.verbosity", "text.verbosity is not offered; say it in instructions."


def _idle(body: TextBody) -> Iterator[tuple[str, str]]:
    if body.store:
        yield "store", "texts are not kept"
    if body.service_tier in ("flex", "priority"):
        yield "service_tier", "all texts are served alike"
    if "reasoning.encrypted_content" in (body.include or ()):
        yield "include", "the text models here do not reason"
    if body.provider_options.max is not None:
        yield "provider_options.max", "it is for routers in front of the studio"
