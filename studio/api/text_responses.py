"""`POST /v1/responses` for a text model: one JSON answer, or events while it is written."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pipelines.text.requests import TextRequest
from studio.api.disconnect import answered
from studio.api.event_stream import streamed
from studio.api.text_answers import TextAnswer, field_of
from studio.api.text_events import event_frames
from studio.api.text_input import prompt_of
from studio.api.text_neutral import idle_fields, refuse_unsupported
from studio.api.text_schemas import TextBody
from studio.engine.text_protocol import Piece
from studio.errors import StudioError
from studio.text_request import TextDraft
from studio.texts import Texts


async def answer_text(request: Request, texts: Texts, body: TextBody) -> Response:
    """Write what `body` asks for; a client that hangs up cancels it.

    Raises a `StudioError` for what fails before the first event, or before the whole answer.
    """
    refuse_unsupported(body)
    with _named_by_the_body():
        planned, notices = texts.plan(_draft(body))
    answer = TextAnswer(body, planned, notices + idle_fields(body))
    pieces = _pieces(texts, planned, request.state.owner)
    if body.stream:
        return await streamed(request, event_frames(answer, pieces))
    return await answered(request, _whole(answer, pieces))


async def _pieces(texts: Texts, request: TextRequest, owner: str) -> AsyncGenerator[Piece]:
    with _named_by_the_body():
        async with aclosing(texts.stream(request, owner=owner)) as pieces:
            async for piece in pieces:
                yield piece


async def _whole(answer: TextAnswer, pieces: AsyncGenerator[Piece]) -> dict[str, Any]:
    async with aclosing(pieces):
        async for piece in pieces:
            answer.take(piece)
    return answer.response()


def _draft(body: TextBody) -> TextDraft:
    options = body.provider_options.text
    return TextDraft(
        prompt=prompt_of(body.input, body.instructions, is_raw=options.raw),
        model=body.model,
        temperature=body.temperature,
        top_k=options.top_k,
        top_p=body.top_p,
        min_p=options.min_p,
        repetition_penalty=options.repetition_penalty,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        max_output_tokens=body.max_output_tokens,
        seed=body.seed,
        stop=body.stop,
        top_logprobs=body.asked_logprobs,
        truncation=body.truncation,
        adapter=options.adapter,
    )


@contextmanager
def _named_by_the_body() -> Iterator[None]:
    """A failure names the body's field, where planning and engine know the draft's."""
    try:
        yield
    except StudioError as error:
        error.param = field_of(error.param)
        raise
