"""What `POST /v1/responses` takes for a text model. Unknown fields are refused, never dropped.

Fields of the OpenResponses contract that the studio does not offer yet are here too, loosely
typed: `studio.api.text_neutral` takes them where they ask for nothing.
"""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from studio.api.schemas import (
    MetadataKey,
    MetadataValue,
    RoutingOptions,
    Strict,
    text_or_list,
    valid_unicode,
)
from studio.api.text_input import TextInput
from studio.text_request import MAX_STOP_CHARS, MAX_STOPS

Echoed = Annotated[str, AfterValidator(valid_unicode)]  # sent back in the answer
ShortEcho = Annotated[str, Field(max_length=64), AfterValidator(valid_unicode)]
Include = Literal["message.output_text.logprobs", "reasoning.encrypted_content"]


class TextOptions(Strict):
    """`provider_options.text`: what the OpenResponses contract has no field for."""

    raw: bool = Field(False, description="go on with `input` as it is, without a chat template")
    top_k: int | None = Field(None, description="the likeliest tokens to choose among; 0: all")
    min_p: float | None = Field(
        None, description="0 to 1: least probability, as a share of the likeliest token's"
    )
    repetition_penalty: float | None = Field(
        None, description="0.01 to 100; above 1 makes tokens of input and output less likely"
    )
    stop: (
        Annotated[
            Annotated[str, Tag("<string>")] | Annotated[list[str], Tag("<list>")],
            Discriminator(text_or_list),
        ]
        | None
    ) = Field(
        None,
        description=f"the text ends before the first of these: at most {MAX_STOPS}, each of at "
        f"most {MAX_STOP_CHARS} characters",
    )
    adapter: str | None = Field(None, description="a LoRA of the model, see GET /v1/models")


class TextProviderOptions(Strict):
    """Options beside those of the OpenResponses contract."""

    text: TextOptions = TextOptions()
    max: RoutingOptions | None = None


class TextFormat(Strict):
    """`text`: only plain text is offered."""

    format: dict[str, Any] | None = Field(None, description='{"type": "text"}')
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(Strict):
    """`reasoning`: the text models here do not reason."""

    effort: str | None = None
    summary: str | None = None


class StreamOptions(Strict):
    """`stream_options`: obfuscation is never sent."""

    include_obfuscation: bool | None = None


class TextBody(Strict):
    """The body of `POST /v1/responses` for a text model."""

    model: str
    input: TextInput
    instructions: Echoed | None = Field(None, description="read before the input, as `system`")
    temperature: float | None = Field(None, description="0 to 2; 0 takes the likeliest token")
    top_p: float | None = Field(None, description="above 0, to 1")
    presence_penalty: float | None = Field(None, description="-2 to 2")
    frequency_penalty: float | None = Field(None, description="-2 to 2")
    max_output_tokens: int | None = Field(
        None, description="at least 1; what the context leaves when left out"
    )
    seed: int | None = Field(None, description="0 to 4294967295; drawn when left out")
    provider_options: TextProviderOptions = TextProviderOptions()
    include: list[Include] | None = Field(None, description="message.output_text.logprobs")
    top_logprobs: int | None = Field(None, description="0 to 20; above 0 asks for logprobs too")
    truncation: Literal["auto", "disabled"] | None = Field(
        None, description="auto drops the beginning of an input that is too long"
    )
    stream: bool | None = Field(None, description="server-sent events, as they are written")
    stream_options: StreamOptions | None = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)] | None = None
    user: Echoed | None = None
    safety_identifier: ShortEcho | None = None
    prompt_cache_key: ShortEcho | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    service_tier: Literal["auto", "default", "flex", "priority"] | None = None
    store: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    tools: list[Any] | None = None
    tool_choice: Any | None = None
    reasoning: Reasoning | None = None
    text: TextFormat | None = None

    @property
    def stop(self) -> tuple[str, ...]:
        """The stop strings, however they were written."""
        given = self.provider_options.text.stop
        return (given,) if isinstance(given, str) else tuple(given or ())

    @property
    def asked_logprobs(self) -> int | None:
        """How many alternatives a token's logprob comes with; None where none was asked for."""
        is_asked = "message.output_text.logprobs" in (self.include or ())
        return self.top_logprobs or 0 if is_asked or self.top_logprobs else None
