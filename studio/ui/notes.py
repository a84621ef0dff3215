"""Short sentences beside the controls: what will be made, what a control does, what went wrong."""

from html import escape

from studio.errors import StudioError
from studio.request import Notice, PictureRequest

# Upper bounds of strength, and what a person sees at it.
_STRENGTH_WORDS: tuple[tuple[float, str], ...] = (
    (0.25, "Subtle: almost the same picture"),
    (0.45, "Gentle: keeps most of the picture"),
    (0.65, "Balanced: keeps the layout, repaints the rest"),
    (0.85, "Strong: keeps a hint of the picture"),
    (0.99, "Very strong: mostly the prompt"),
)


def strength_words(strength: float) -> str:
    """Strength as what happens to the source picture."""
    return next((words for limit, words in _STRENGTH_WORDS if strength <= limit), "Only the prompt")


def steps_words(request: PictureRequest) -> str:
    """How many steps run: image-to-image starts part of the way."""
    if request.steps_to_run == request.steps:
        return f"{request.steps} steps"
    return f"runs {request.steps_to_run} of {request.steps} steps"


def plan_line(
    request: PictureRequest,
    asked: tuple[float | None, float | None] | None,
    source_size: tuple[int, int] | None,
    grid_px: int,
) -> str:
    """What Generate would make now, in exact pixels, and what was changed to get there."""
    parts = [f"<b>{request.width} × {request.height} px</b>", escape(steps_words(request))]
    if request.count > 1:
        parts.append(f"{request.count} pictures")
    if request.true_cfg_scale > 1 and request.negative_prompt is not None:
        parts.append("twice the time")
    said = ""
    if asked is not None and asked != (request.width, request.height):
        said += _note(f"Sides are floored to multiples of {grid_px} px.")
    if source_size is not None and request.has_source and _is_cropped(source_size, request):
        said += _note("The source picture is cropped around its centre to this shape.")
    return _line(" · ".join(parts)) + said


def plan_problem(error: StudioError) -> str:
    """Why nothing can be made with these settings, at the place where the size stands."""
    return f"<p class='plan problem' role='alert'>{escape(error.message)}</p>"


def problem(error: StudioError) -> str:
    """A refused request, at the Generate button; the script marks the field that `param` names."""
    param = escape(error.param or "", quote=True)
    return f"<p class='problem' role='alert' data-param='{param}'>{escape(error.message)}</p>"


def told(message: str) -> str:
    """A short confirmation at the Generate button."""
    return f"<p class='told' role='status'>{escape(message)}</p>"


def strength_note(strength: float, request: PictureRequest | None) -> str:
    """Words for the strength and the steps that it leaves."""
    steps = "" if request is None else f" · {escape(steps_words(request))}"
    return f"<p class='note'>{escape(strength_words(strength))}{steps}</p>"


def seed_note(seed: str) -> str:
    """The seed of the latest request, as text so that no digit is lost."""
    return f"<p class='note'>Last used: <code>{escape(seed)}</code></p>" if seed else ""


def warnings(notices: tuple[Notice, ...]) -> str:
    """What was changed or had no effect, under the pictures."""
    items = "".join(f"<li>{escape(notice.message)}</li>" for notice in notices)
    return f"<ul class='warnings'>{items}</ul>" if items else ""


def _line(inner: str) -> str:
    return f"<p class='plan' aria-live='polite'>{inner}</p>"


def _note(text: str) -> str:
    return f"<p class='note'>{escape(text)}</p>"


def _is_cropped(source_size: tuple[int, int], request: PictureRequest) -> bool:
    ratio, wanted = source_size[0] / source_size[1], request.width / request.height
    return abs(ratio / wanted - 1) > 0.03
