"""One picture request: as it came in, and as it will be made.

A `Draft` has gaps. `studio.settle` fills them, refuses the impossible and returns the frozen
`PictureRequest` that everything later works on, with the `Notice`s that the answer must carry.
"""

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, get_args

from pipelines.cache_rules import OFF, CacheRule
from studio.roles import Size
from studio.step_cache import NOTHING_SAID, CacheChoice, rule_from_dict, rule_to_dict

OutputFormat = Literal["jpeg", "png", "webp"]
OUTPUT_FORMATS: tuple[str, ...] = get_args(OutputFormat)

SEED_LIMIT = 2**32
MIN_SIDE_PX = 128
MAX_PROMPT_CHARS = 20_000
MAX_GUIDANCE = 30.0
DEFAULT_QUALITY = 90
DEFAULT_STRENGTH = 0.6


@dataclass(frozen=True, slots=True)
class Notice:
    """Something that was changed or has no effect: said, never silent."""

    code: str
    param: str | None
    message: str


@dataclass(frozen=True, slots=True)
class Draft:
    """A request as it came in; None means that the sender left it out."""

    prompt: str
    model: str | None = None  # the studio's default
    original_prompt: str | None = None  # a person's words, where the prompt is an expansion
    negative_prompt: str | None = None
    secondary_prompt: str | None = None
    secondary_negative_prompt: str | None = None
    width: int | None = None
    height: int | None = None
    steps: int | None = None
    guidance_scale: float | None = None
    true_cfg_scale: float | None = None
    strength: float | None = None
    seed: int | None = None
    count: int = 1
    output_format: str = "jpeg"
    quality: int | None = None
    picture_sizes: tuple[Size, ...] = ()  # of the pictures that came with it
    cache: CacheChoice = NOTHING_SAID


@dataclass(frozen=True, slots=True)
class PictureRequest:
    """A request that can run: every value is settled, every limit was checked."""

    model: str
    prompt: str
    width: int
    height: int
    steps: int
    steps_to_run: int
    guidance_scale: float
    true_cfg_scale: float
    seed: int
    count: int
    output_format: OutputFormat
    quality: int
    negative_prompt: str | None = None
    secondary_prompt: str | None = None
    secondary_negative_prompt: str | None = None
    has_source: bool = False  # the first of its pictures is the start
    references: int = 0  # pictures to look at
    strength: float = 1.0
    original_prompt: str | None = None  # a person's words, of which the prompt is an expansion
    cache: CacheRule = OFF  # requests that were kept before there was a step cache had none

    def seed_of(self, index: int) -> int:
        """The seed of picture `index`: (seed + index) mod 2^32."""
        return (self.seed + index) % SEED_LIMIT

    def to_dict(self) -> dict[str, Any]:
        """Plain values for a JSON column or a picture's metadata."""
        return asdict(self) | rule_to_dict(self.cache)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The reverse of `to_dict`; fields that a later version added or dropped do no harm."""
        known = {field.name for field in fields(cls)}
        kept = {name: value for name, value in values.items() if name in known}
        return cls(**kept | {"cache": rule_from_dict(values)})
