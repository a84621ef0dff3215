"""What the engine takes and what it tells: a request in, a stream of events out. Free of torch.

Order of events for one request: `Started`, any `Warned`, `StepDone` for each picture and step,
`PictureDone` for each picture, and exactly one of `RequestDone`, `RequestFailed` and
`RequestCancelled`.
A request that fails or is cancelled before its turn has no `Started`.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pipelines import schedule
from pipelines.cache_rules import OFF, CacheRule
from pipelines.errors import BadRequest
from pipelines.specs import ModelSpec

Pixels = NDArray[np.uint8]  # [height, width, 3], sRGB


@dataclass(frozen=True, slots=True)
class RenderRequest:
    """Pictures of one prompt: one for each seed, `width` and `height` in pixels."""

    id: str
    prompt: str
    width: int
    height: int
    steps: int  # of the whole schedule; image-to-image runs `schedule.run_steps` of them
    seeds: tuple[int, ...]
    guidance_scale: float = 3.5
    true_cfg_scale: float = 1.0  # above 1 and with a negative prompt: two rows a picture
    negative_prompt: str | None = None
    secondary_prompt: str | None = None  # what T5 reads instead of the prompt
    secondary_negative_prompt: str | None = None
    source: Pixels | None = None  # image-to-image, already width x height
    strength: float = 1.0  # 0 < strength <= 1, used with a source only
    # Pictures to look at, each of its own size, both sides multiples of the model's.
    references: tuple[Pixels, ...] = ()
    owner: str = ""  # owners take turns when there is not room for all
    cache: CacheRule = OFF
    model: str = ""  # read where one worker has several

    @property
    def uses_true_cfg(self) -> bool:
        return self.negative_prompt is not None and self.true_cfg_scale > 1

    @property
    def steps_run(self) -> int:
        return self.steps if self.source is None else schedule.run_steps(self.steps, self.strength)


@dataclass(frozen=True, slots=True)
class Started:
    request_id: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something was changed or ignored.

    `code` "prompt_truncated": `message` ends with the lost words. "words_unknown": it names words
    that T5 reads as `<unk>`. "cache_idle": the cache computes every step because of the value that
    `param` names.
    """

    request_id: str
    code: str
    param: str
    message: str


@dataclass(frozen=True, slots=True)
class StepDone:
    """Picture `index` has run `step` of `steps`, counting only the steps that run, from 1."""

    request_id: str
    index: int
    step: int
    steps: int
    preview: Pixels | None = None  # the picture as predicted now, often smaller than the request
    is_predicted: bool = False  # the step ran the first block alone, for each of its prompts


@dataclass(frozen=True, slots=True)
class PictureDone:
    """`steps_run` is the sum of the two others.

    With true classifier-free guidance each of the two prompts may be predicted alone, which counts
    as half a step; `steps_predicted` is rounded down.
    """

    request_id: str
    index: int
    seed: int
    pixels: Pixels
    steps_run: int
    steps_computed: int
    steps_predicted: int


@dataclass(frozen=True, slots=True)
class RequestDone:
    request_id: str


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """`code` is one of those of `pipelines.errors`, or "engine_error"."""

    request_id: str
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class RequestCancelled:
    request_id: str


Event = Started | Warned | StepDone | PictureDone | RequestDone | RequestFailed | RequestCancelled


def check_request(request: RenderRequest, spec: ModelSpec) -> None:
    """Raises BadRequest, with the limit, where the model cannot render the request."""
    _check_size(request, spec)
    if not 1 <= request.steps <= spec.max_steps:
        raise BadRequest(f"steps must be 1 to {spec.max_steps}, not {request.steps}.")
    if not request.seeds or not all(0 <= seed < 2**32 for seed in request.seeds):
        raise BadRequest("seeds must hold at least one number from 0 to 4294967295.")
    if not (math.isfinite(request.guidance_scale) and math.isfinite(request.true_cfg_scale)):
        raise BadRequest("guidance_scale and true_cfg_scale must be finite numbers.")
    if request.source is not None:
        _check_source(request, request.source)
    _check_references(request, spec)


def _check_size(request: RenderRequest, spec: ModelSpec) -> None:
    size, multiple = f"{request.width}x{request.height}", spec.size_multiple
    if request.width % multiple or request.height % multiple:
        raise BadRequest(f"Width and height must be multiples of {multiple}, not {size}.")
    if min(request.width, request.height) < max(spec.min_side_px, multiple):
        raise BadRequest(f"{size} is too small: both sides need {spec.min_side_px} pixels or more.")
    if request.width * request.height > spec.max_pixels:
        raise BadRequest(f"{size} is too large: this model draws {spec.max_pixels} pixels at most.")


def _check_references(request: RenderRequest, spec: ModelSpec) -> None:
    if len(request.references) > spec.max_references:
        raise BadRequest(
            f"{spec.name} looks at {spec.max_references} reference pictures at most, not "
            f"{len(request.references)}."
        )
    multiple = spec.size_multiple
    for pixels in request.references:
        is_picture = pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.shape[2] == 3
        if not is_picture or 0 in pixels.shape or any(x % multiple for x in pixels.shape[:2]):
            raise BadRequest(
                f"A reference picture must be 8-bit RGB with sides that are multiples of "
                f"{multiple}, not {pixels.dtype} of shape {pixels.shape}."
            )


def _check_source(request: RenderRequest, source: Pixels) -> None:
    if source.dtype != np.uint8 or source.shape != (request.height, request.width, 3):
        raise BadRequest(
            f"The source picture must be 8-bit RGB of {request.width}x{request.height} pixels, "
            f"not {source.dtype} of shape {source.shape}."
        )
    if not 0 < request.strength <= 1 or request.steps_run < 1:
        raise BadRequest(f"strength must be above 0 and at most 1, not {request.strength}.")
