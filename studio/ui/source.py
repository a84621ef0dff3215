"""The picture that a model starts from or looks at: an upload, read by the studio's loader."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from pathlib import Path

from studio.encoding import encode_preview
from studio.errors import BadRequest
from studio.pictures import LoadedPicture, load_picture, thumbnail
from studio.roles import Size

Upload = str | list[str] | None

CARD_PX = 320
PARAM = "source"


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What the loader accepts."""

    max_bytes: int
    max_pixels: int


def paths_of(upload: Upload) -> list[str]:
    """What Gradio sends for no file, for one, and for several."""
    return [upload] if isinstance(upload, str) else list(upload or ())


def read_uploads(upload: Upload, limits: UploadLimits) -> list[LoadedPicture]:
    """All of them. Raises `BadRequest` and `TooLarge`."""
    return [read_upload(path, limits) for path in paths_of(upload)]


def read_upload(path: str, limits: UploadLimits) -> LoadedPicture:
    """The upload's pixels, notices and settings. Raises `BadRequest` and `TooLarge`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:  # Gradio keeps uploads for a day and not over a restart
        raise BadRequest("The source picture is gone; add it again.", param=PARAM) from error
    return load_picture(data, max_bytes=limits.max_bytes, max_pixels=limits.max_pixels, param=PARAM)


def upload_sizes(upload: Upload, limits: UploadLimits) -> tuple[Size, ...]:
    """Width and height of each. Raises `BadRequest` and `TooLarge`."""
    return tuple(_size(path, limits) for path in paths_of(upload))


@lru_cache(maxsize=256)
def _size(path: str, limits: UploadLimits) -> Size:
    """Kept, since Gradio names an upload after its content."""
    return read_upload(path, limits).size


def source_cards(pictures: Sequence[LoadedPicture]) -> str:
    """The uploads as the model will see them, with what the loader decided."""
    kind = "several" if len(pictures) > 1 else "single"
    return f"<div class='sources {kind}'>{''.join(map(_card, pictures))}</div>"


def _card(picture: LoadedPicture) -> str:
    height, width = picture.pixels.shape[:2]
    small = base64.b64encode(encode_preview(thumbnail(picture.pixels, CARD_PX))).decode()
    notices = "".join(f"<p class='note'>{escape(notice)}</p>" for notice in picture.notices)
    return (
        f"<figure class='source'><img alt='Source picture' src='data:image/jpeg;base64,{small}'>"
        f"<figcaption>{width} × {height} px</figcaption>{notices}</figure>"
    )
