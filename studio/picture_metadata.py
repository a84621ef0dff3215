"""Settings inside a picture file: one JSON document for PNG, JPEG and WebP.

The document is `{"studio": 1, …}`; 1 is the version of the format. A PNG carries it as the `iTXt`
chunk `studio` (UTF-8). JPEG and WebP carry it as the EXIF field UserComment (0x9286), whose first
eight bytes name the character set (Exif 2.32, table 9): `ASCII` when the document is ASCII, else
`UNICODE`, which is UTF-16 in the byte order of the EXIF block.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from struct import error as StructError
from typing import Any, Final

from PIL import ExifTags, Image
from PIL.PngImagePlugin import PngInfo

SETTINGS_VERSION: Final = 1
PNG_KEYWORD: Final = "studio"

# What Pillow raises on files that are damaged or made to hurt.
DECODE_ERRORS: Final = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    SyntaxError,  # Pillow's word for a broken PNG chunk
    EOFError,
    AssertionError,
    MemoryError,
    RuntimeError,  # AVIF, and JSON nested too deep
    StructError,
    zlib.error,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)

_ASCII: Final = b"ASCII\0\0\0"
_UNICODE: Final = b"UNICODE\0"
_UNDEFINED: Final = b"\0" * 8
# A JPEG segment holds 65,533 bytes; the EXIF frame around the comment takes under 200 of them.
_JPEG_COMMENT_BYTES: Final = 65_000
_SHORTENED_CHARS: Final = 2_000
_LONGEST_DOCUMENT_BYTES: Final = 4 * 1024 * 1024


def png_info(settings: Mapping[str, Any]) -> PngInfo:
    """The text chunks of a PNG that carries the settings."""
    info = PngInfo()
    info.add_itxt(PNG_KEYWORD, _document(settings))
    return info


def exif_block(settings: Mapping[str, Any], *, is_jpeg: bool) -> bytes:
    """The EXIF block of a JPEG or WebP that carries the settings.

    A document too long for a JPEG's one EXIF segment is cut: `"shortened": true` says so.
    """
    comment = _user_comment(_document(settings))
    if is_jpeg and len(comment) > _JPEG_COMMENT_BYTES:
        comment = _user_comment(_document(_shortened(settings)))
    if is_jpeg and len(comment) > _JPEG_COMMENT_BYTES:
        comment = _user_comment(_document({"shortened": True}))
    exif = Image.Exif()
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.UserComment] = comment
    return exif.tobytes()


def read_settings(data: bytes) -> dict[str, Any] | None:
    """The document that `write_picture` put into a file, or None. Never raises on bad files."""
    try:
        with Image.open(BytesIO(data), formats=("PNG", "JPEG", "WEBP")) as image:
            return settings_of(image)
    except DECODE_ERRORS:
        return None


def settings_of(image: Image.Image) -> dict[str, Any] | None:
    """The settings document of an opened picture, or None; pixels are not decoded for it."""
    try:
        for text in _candidates(image):
            document = _parsed(text)
            if document is not None:
                return document
    except DECODE_ERRORS:
        return None
    return None


def _document(settings: Mapping[str, Any]) -> str:
    # "studio" comes last: a field of that name in the settings must not pass for the version.
    document = {**settings, "studio": SETTINGS_VERSION}
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair, as JSON bodies may carry
        return json.dumps(document, separators=(",", ":"))
    return text


def _user_comment(text: str) -> bytes:
    if text.isascii():
        return _ASCII + text.encode("ascii")
    # Pillow writes big-endian EXIF, so the comment is big-endian UTF-16.
    return _UNICODE + text.encode("utf-16-be")


def _shortened(settings: Mapping[str, Any]) -> dict[str, Any]:
    cut = {
        name: value[:_SHORTENED_CHARS] if isinstance(value, str) else value
        for name, value in settings.items()
    }
    return {**cut, "shortened": True}


def _candidates(image: Image.Image) -> Iterator[str]:
    text = image.info.get(PNG_KEYWORD)
    if isinstance(text, str):
        yield str(text)
    if image.format == "PNG":
        return  # its getexif would decode all pixels
    comment = image.getexif().get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.UserComment)
    if isinstance(comment, bytes):
        yield from _decoded_comment(comment)


def _decoded_comment(comment: bytes) -> Iterator[str]:
    charset, body = comment[:8], comment[8:]
    if charset == _UNICODE:
        # Writers disagree on the byte order; only one of the two parses as JSON.
        yield body.decode("utf-16-le", errors="replace")
        yield body.decode("utf-16-be", errors="replace")
    elif charset in (_ASCII, _UNDEFINED):
        yield body.decode("utf-8", errors="replace")


def _parsed(text: str) -> dict[str, Any] | None:
    if len(text) > _LONGEST_DOCUMENT_BYTES:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    version = document.get("studio")
    return document if version == SETTINGS_VERSION and version is not True else None
