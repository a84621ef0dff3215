"""The one loader and the one writer of pictures, for the page and the API alike.

A file's content decides what it is, never its name. Pixels are uint8 arrays `[height, width, 3]`
in sRGB. `studio.picture_colour` turns any mode into that; `studio.picture_metadata` knows where
the settings stand in a file.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, features

from studio.errors import BadRequest, TooLarge
from studio.picture_colour import opaque_srgb
from studio.picture_metadata import (
    DECODE_ERRORS,
    exif_block,
    png_info,
    read_settings,
    settings_of,
)

__all__ = [
    "LoadedPicture",
    "Pixels",
    "fit_picture",
    "load_picture",
    "media_type",
    "read_settings",
    "thumbnail",
    "write_picture",
]

Pixels = NDArray[np.uint8]  # [height, width, 3], sRGB
PictureFormat = Literal["png", "jpeg", "webp"]

DEFAULT_QUALITY: Final = 90

# A 50-megapixel picture takes hundreds of megabytes for a moment, and this is the server process.
_DECODING: Final = threading.BoundedSemaphore(2)

_FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF") + (
    ("AVIF",) if features.check("avif") else ()
)
_FORMAT_NAMES: Final = "PNG, JPEG, WebP, GIF, BMP, TIFF" + (
    " or AVIF" if "AVIF" in _FORMATS else ""
)
_ANIMATED_FORMATS: Final = frozenset({"PNG", "WEBP", "GIF", "AVIF"})
_MEDIA_TYPES: Final = {"png": "image/png", "jpeg": "image/jpeg", "webp": "image/webp"}

# EXIF orientation → what turns the stored picture upright (Exif 2.32, tag 0x0112).
_UPRIGHT: Final = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True, slots=True)
class LoadedPicture:
    """Upright sRGB pixels, what the loader had to decide, and the settings found in the file."""

    pixels: Pixels  # [height, width, 3]
    notices: tuple[str, ...]
    settings: dict[str, Any] | None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        height, width = self.pixels.shape[:2]
        return width, height


def load_picture(
    data: bytes, *, max_bytes: int, max_pixels: int, param: str = "image"
) -> LoadedPicture:
    """Decode an untrusted file.

    Raises BadRequest when it is no whole picture and TooLarge when the file has more than
    `max_bytes` or its header announces more than `max_pixels`; both name `param`.
    """
    if not data:
        raise BadRequest("The picture file is empty. Send it again.", param=param)
    if len(data) > max_bytes:
        raise TooLarge(
            f"The picture file has {len(data):,} bytes; the limit is {max_bytes:,}. "
            "Send a smaller file, a JPEG for instance.",
            param=param,
        )
    try:
        image = Image.open(BytesIO(data), formats=_FORMATS)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise _too_many_pixels(max_pixels, param) from error
    except DECODE_ERRORS as error:
        raise _not_a_picture(data, param) from error
    with image, _DECODING:
        return _decoded(image, max_pixels, param)


def fit_picture(pixels: Pixels, width: int, height: int) -> Pixels:
    """Scale to cover width × height, then crop around the centre. Never stretches."""
    if pixels.shape[:2] == (height, width):
        return pixels
    fitted = ImageOps.fit(Image.fromarray(pixels), (width, height), Image.Resampling.LANCZOS)
    return np.array(fitted, dtype=np.uint8)


def thumbnail(pixels: Pixels, side: int) -> Pixels:
    """The picture with its longer side at most `side` px. Never enlarges."""
    if max(pixels.shape[:2]) <= side:
        return pixels
    small = Image.fromarray(pixels)
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    return np.array(small, dtype=np.uint8)


def write_picture(
    pixels: Pixels,
    fmt: PictureFormat,
    *,
    quality: int = DEFAULT_QUALITY,
    settings: Mapping[str, Any],
) -> bytes:
    """A file that carries its settings; `quality` (1 to 100) acts on JPEG and WebP."""
    image = Image.fromarray(pixels)
    file = BytesIO()
    if fmt == "png":
        image.save(file, "PNG", pnginfo=png_info(settings))
    elif fmt == "jpeg":
        # 4:4:4: halved colour resolution smears the flat, saturated edges of drawn pictures.
        exif = exif_block(settings, is_jpeg=True)
        image.save(file, "JPEG", quality=quality, subsampling=0, exif=exif)
    elif fmt == "webp":
        image.save(file, "WEBP", quality=quality, exif=exif_block(settings, is_jpeg=False))
    else:
        raise ValueError(f"no writer for {fmt!r}; formats are {', '.join(_MEDIA_TYPES)}")
    return file.getvalue()


def media_type(fmt: str) -> str:
    """`image/…` of a format that `write_picture` writes."""
    return _MEDIA_TYPES[fmt]


def _decoded(image: Image.Image, max_pixels: int, param: str) -> LoadedPicture:
    width, height = image.size
    if width * height > max_pixels:
        raise _too_many_pixels(max_pixels, param, f"{width} × {height}")
    settings = settings_of(image)
    notices: list[str] = []
    try:
        image.load()
        orientation = _orientation(image)
        rgb = opaque_srgb(image, notices)
        notices += _frame_notices(image)
    except DECODE_ERRORS as error:
        raise BadRequest(
            "The picture file is damaged or cut off. Save or export it again, then resend it.",
            param=param,
            code="damaged_picture",
        ) from error
    if orientation in _UPRIGHT:
        rgb = rgb.transpose(_UPRIGHT[orientation])
    return LoadedPicture(np.array(rgb, dtype=np.uint8), tuple(notices), settings)


def _orientation(image: Image.Image) -> object:
    """Read after decoding, since Pillow turns TIFF itself, and before conversions, which drop it.

    Broken EXIF does not spoil a picture.
    """
    try:
        return image.getexif().get(ExifTags.Base.Orientation)
    except DECODE_ERRORS:
        return None


def _frame_notices(image: Image.Image) -> list[str]:
    # Looked up after the pixels are taken: it moves on to the second frame.
    if not getattr(image, "is_animated", False):
        return []
    if image.format in _ANIMATED_FORMATS:
        return ["The picture is an animation: only its first frame is used."]
    if image.format == "TIFF":
        return ["The file has several pages: only the first is used."]
    return []  # MPO: a phone's JPEG with a depth or gain map behind it


def _too_many_pixels(max_pixels: int, param: str, size: str = "too large a size") -> TooLarge:
    return TooLarge(
        f"The picture file announces {size}; the limit is {max_pixels / 1e6:g} megapixels. "
        "Scale it down before sending it.",
        param=param,
        code="too_many_pixels",
    )


def _not_a_picture(data: bytes, param: str) -> BadRequest:
    if data[4:8] == b"ftyp" and data[8:12] in (b"heic", b"heix", b"mif1"):
        what = "This is a HEIC photo, which the studio does not read."
    elif b"<svg" in data[:1024].lower():
        what = "This is an SVG drawing, which the studio does not read."
    else:
        what = "The file is not a picture, whatever its name says, or its header is damaged."
    return BadRequest(f"{what} Send {_FORMAT_NAMES}.", param=param, code="not_a_picture")
