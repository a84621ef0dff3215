"""What `POST /v1/responses` takes. Unknown fields are refused, never dropped."""

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    ValidationInfo,
    field_validator,
)

from studio.request import Notice, OutputFormat
from studio.step_cache import CACHE_FIELDS, CacheName, fault_of
from studio.unicode import is_unicode

# The pictures' own limit is in bytes; this stops a longer string before anything is decoded.
MAX_IMAGE_URL_CHARS = 100 * 1024 * 1024


def valid_unicode(text: str) -> str:
    """Half of a surrogate pair passes JSON, but could not be sent back."""
    if not is_unicode(text):
        raise ValueError("holds half of a surrogate pair")
    return text


MetadataKey = Annotated[str, Field(max_length=64), AfterValidator(valid_unicode)]
MetadataValue = Annotated[str, Field(max_length=512), AfterValidator(valid_unicode)]


class Strict(BaseModel):
    """Refuses unknown keys, wrong types, NaN and infinity."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


def text_or_list(value: object) -> str:
    """Which branch to judge by, so that a fault names the field and not the other branch."""
    return "<string>" if isinstance(value, str) else "<list>"


class InputText(Strict):
    """A piece of the prompt."""

    type: Literal["input_text"]
    text: str


class InputImage(Strict):
    """The picture to start from: an https or a data URL."""

    type: Literal["input_image"]
    image_url: Annotated[str, Field(max_length=MAX_IMAGE_URL_CHARS)]
    detail: Literal["low", "high", "auto"] | None = None


class InputMessage(Strict):
    """One message of the user."""

    type: Literal["message"] = "message"
    role: Literal["user"] = "user"
    content: Annotated[
        Annotated[str, Tag("<string>")]
        | Annotated[
            list[Annotated[InputText | InputImage, Field(discriminator="type")]], Tag("<list>")
        ],
        Discriminator(text_or_list),
    ]


def _cache_value(name: str, meaning: str) -> Any:
    return Field(None, description=f"{meaning}, {CACHE_FIELDS[name]}; the cache's own by default")


class ImageOptions(Strict):
    """`provider_options.image`; what is left out takes the model's default."""

    height: int | None = Field(None, description="px; at least 128, a multiple of 8")
    width: int | None = Field(None, description="px; at least 128, a multiple of 8")
    steps: int | None = Field(None, description="denoising steps, at least 1")
    guidance_scale: float | None = Field(None, description="guidance embedding, 0 to 30")
    true_cfg_scale: float | None = Field(
        None, description="classifier-free guidance, above 0; acts above 1 with a negative_prompt"
    )
    prompt_upsampling: bool = Field(
        False,
        description="expand the prompt by the text model first; the answer carries both prompts",
    )
    negative_prompt: str | None = None
    secondary_prompt: str | None = Field(None, description="what the second text encoder reads")
    secondary_negative_prompt: str | None = None
    num_images: int = Field(1, description="pictures; picture i has seed + i")
    strength: float | None = Field(
        None, description="image-to-image: above 0 (keep the picture) to 1 (only the prompt)"
    )
    cache: CacheName | None = Field(
        None,
        description="step cache: predicts steps that can be foreseen; the studio's by default",
    )
    residual_threshold: float | None = _cache_value(
        "residual_threshold", "how far off the first block may be where a step is predicted"
    )
    taylor_order: int | None = _cache_value(
        "taylor_order", "order of the prediction, where 0 reuses the last computed step"
    )
    warmup_steps: int | None = _cache_value("warmup_steps", "first steps, always computed")
    max_skips: int | None = _cache_value("max_skips", "most predicted steps in a row")
    cache_interval: int | None = _cache_value(
        "cache_interval", "with taylorseer: compute every n-th step behind the warm-up"
    )
    output_format: OutputFormat = "jpeg"
    output_quality: int | None = Field(None, description="JPEG and WebP, 1 to 100")
    response_format: Literal["b64_json", "url"] = "b64_json"
    cfg_normalization: bool | None = Field(None, description="acts on no FLUX model")
    cfg_truncation: float | None = Field(None, gt=0, description="acts on no FLUX model")
    flow_shift: float | None = Field(None, gt=0, description="acts on no FLUX model")

    @field_validator(*CACHE_FIELDS, mode="before")
    @classmethod
    def _check_cache_value(cls, value: object, info: ValidationInfo) -> object:
        assert info.field_name is not None
        if value is not None and (fault := fault_of(info.field_name, value)):
            raise ValueError(fault)
        return value


class RoutingOptions(Strict):
    """`provider_options.max`: a hint for routers in front of the studio."""

    target_endpoint: str | None = None


class ProviderOptions(Strict):
    """Options beside those of the OpenResponses contract."""

    image: ImageOptions = ImageOptions()
    max: RoutingOptions | None = None


class ResponsesBody(Strict):
    """The body of `POST /v1/responses`."""

    model: str
    input: Annotated[
        Annotated[str, Tag("<string>")] | Annotated[list[InputMessage], Tag("<list>")],
        Discriminator(text_or_list),
    ]
    seed: int | None = Field(None, description="0 to 4294967295; drawn when left out")
    provider_options: ProviderOptions = ProviderOptions()
    background: bool = Field(False, description="answer at once; poll GET /v1/responses/{id}")
    stream: bool = False
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)] | None = None
    # Fields of text requests, which programs send along: named in `warnings`, without effect.
    instructions: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    store: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    tools: list[Any] | None = None
    tool_choice: Any | None = None


IGNORED_FIELDS = (
    "instructions",
    "temperature",
    "top_p",
    "max_output_tokens",
    "parallel_tool_calls",
    "store",
    "truncation",
    "user",
    "tools",
    "tool_choice",
)
IGNORED_OPTIONS = ("cfg_normalization", "cfg_truncation", "flow_shift")


def ignored_fields(body: ResponsesBody) -> tuple[Notice, ...]:
    """A notice for each field that was sent and acts on no picture."""
    options = body.provider_options
    fields = [name for name in IGNORED_FIELDS if getattr(body, name) is not None]
    fields += [
        f"provider_options.image.{name}"
        for name in IGNORED_OPTIONS
        if getattr(options.image, name) is not None
    ]
    if not isinstance(body.input, str):
        parts = [part for message in body.input for part in message.content]
        if any(isinstance(part, InputImage) and part.detail in ("low", "high") for part in parts):
            fields.append("input.detail")
    if options.max is not None:
        fields.append("provider_options.max")
    return tuple(
        Notice("option_without_effect", name, f"{name} has no effect on pictures of this model.")
        for name in fields
    )
