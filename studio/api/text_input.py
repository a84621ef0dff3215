"""`input` of a text request: turns of a conversation, or one string."""

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from pipelines.text.requests import Message
from studio.api.schemas import InputText, Strict, text_or_list
from studio.errors import BadRequest

MAX_ITEMS: Final = 2_000  # turns, or parts of one; a chat template reads them one by one

UNREAD_PARTS: Final = {
    "input_image": "pictures are not read by text models here yet; describe it as input_text",
    "input_file": "files are not read; send what it says as input_text",
    "input_video": "videos are not read; describe it as input_text",
    "refusal": "refusals are not read; send what was said as output_text",
}
UNREAD_ITEMS: Final = (
    "function_call",
    "function_call_output",
    "reasoning",
    "item_reference",
    "compaction",
)


def _refuse_unread_part(value: object) -> object:
    kind = value.get("type") if isinstance(value, dict) else None
    if isinstance(kind, str) and kind in UNREAD_PARTS:
        raise ValueError(UNREAD_PARTS[kind])
    return value


def _refuse_unread_item(value: object) -> object:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind in UNREAD_ITEMS:
        raise ValueError(f"items of type {kind} are not taken yet; send messages only")
    return value


class OutputText(Strict):
    """What the model wrote in an earlier turn, as it was answered."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any] | None = Field(None, description="not read")
    logprobs: list[Any] | None = Field(None, description="not read")


TextPart = Annotated[
    Annotated[InputText | OutputText, Field(discriminator="type")],
    BeforeValidator(_refuse_unread_part),
]


class TextTurn(Strict):
    """One message of a conversation; `developer` is read as `system`."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"] = "user"
    content: Annotated[
        Annotated[str, Tag("<string>")]
        | Annotated[list[TextPart], Field(max_length=MAX_ITEMS), Tag("<list>")],
        Discriminator(text_or_list),
    ]
    # Come along where an earlier answer is sent back; none of them is read.
    id: str | None = None
    status: Literal["in_progress", "completed", "incomplete"] | None = None
    phase: Literal["commentary", "final_answer"] | None = None


TextItem = Annotated[TextTurn, BeforeValidator(_refuse_unread_item)]
TextInput = Annotated[
    Annotated[str, Tag("<string>")]
    | Annotated[list[TextItem], Field(max_length=MAX_ITEMS), Tag("<list>")],
    Discriminator(text_or_list),
]


def prompt_of(
    given: str | list[TextTurn], instructions: str | None, *, is_raw: bool
) -> str | tuple[Message, ...]:
    """Text to go on with where `is_raw`, else turns with the instructions before them.

    Raises `BadRequest` for what raw text cannot have.
    """
    if is_raw:
        return _raw_text(given, instructions)
    turns = [Message("user", given)] if isinstance(given, str) else [_message(t) for t in given]
    # No turns stay none, so that what is missing is said, and not hidden by instructions.
    first = [Message("system", instructions)] if instructions and turns else []
    return (*first, *turns)


def _raw_text(given: str | list[TextTurn], instructions: str | None) -> str:
    if not isinstance(given, str):
        raise BadRequest(
            "raw goes on with a text; send input as one string, or leave raw out.",
            param="provider_options.text.raw",
        )
    if instructions:
        raise BadRequest(
            "raw text has no place for instructions; write them into input, or leave raw out.",
            param="instructions",
        )
    return given


def _message(turn: TextTurn) -> Message:
    role = "system" if turn.role == "developer" else turn.role
    content = turn.content
    if isinstance(content, str):
        return Message(role, content)
    return Message(role, "\n".join(part.text for part in content))
