"""The picture that a model starts from or looks at: an upload, read by the studio's loader."""

import base64
from dataclasses import dataclass
from functools import lru_cache
from html import escape
from pathlib import Path

from studio.encoding import encode_preview
from studio.errors import BadRequest
from studio.pictures import LoadedPicture, load_picture, thumbnail

CARD_PX = 320
PARAM = "source"


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What the loader accepts."""

    max_bytes: int
    max_pixels: int


def read_upload(path: str, limits: UploadLimits) -> LoadedPicture:
    """The upload's pixels, notices and settings. Raises `BadRequest` and `TooLarge`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:  # Gradio keeps uploads for a day and not over a restart
        raise BadRequest("The source picture is gone; add it again.", param=PARAM) from error
    return load_picture(data, max_bytes=limits.max_bytes, max_pixels=limits.max_pixels, param=PARAM)


@lru_cache(maxsize=256)
def upload_size(path: str, limits: UploadLimits) -> tuple[int, int]:
    """Width and height; kept, since Gradio names an upload after its content."""
    return read_upload(path, limits).size


def source_card(picture: LoadedPicture) -> str:
    """The upload as the model will see it, with what the loader decided."""
    height, width = picture.pixels.shape[:2]
    small = base64.b64encode(encode_preview(thumbnail(picture.pixels, CARD_PX))).decode()
    notices = "".join(f"<p class='note'>{escape(notice)}</p>" for notice in picture.notices)
    return (
        f"<figure class='source'><img alt='Source picture' src='data:image/jpeg;base64,{small}'>"
        f"<figcaption>{width} × {height} px</figcaption></figure>{notices}"
    )
