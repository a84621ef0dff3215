"""Settings inside PNG, JPEG and WebP files: there and back, and never an exception."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image
from PIL.PngImagePlugin import PngInfo

from studio.pictures import load_picture, media_type, read_settings, write_picture

SETTINGS = {
    "prompt": 'a red 🍎 on "blue"\nsecond line\t苹果 \x00 end',
    "seed": 2**32 - 1,
    "size": [256, 192],
    "cache": {"name": "balanced", "threshold": 0.08},
    "template": None,
}


def encoded(image: Image.Image, fmt: str, **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, fmt, **options)
    return file.getvalue()


@pytest.mark.parametrize("fmt", ["png", "jpeg", "webp"])
def test_settings_round_trip(fmt: Any) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (32, 48, 3), dtype=np.uint8)
    data = write_picture(pixels, fmt, quality=90, settings=SETTINGS)
    assert read_settings(data) == {**SETTINGS, "studio": 1}
    picture = load_picture(data, max_bytes=10**6, max_pixels=10**6)
    assert picture.settings == {**SETTINGS, "studio": 1}
    assert picture.pixels.shape == pixels.shape
    assert media_type(fmt) == f"image/{fmt}"
    with Image.open(BytesIO(data)) as image:
        assert image.format == fmt.upper()
    if fmt == "png":
        assert np.array_equal(picture.pixels, pixels)


@pytest.mark.parametrize("fmt", ["png", "jpeg", "webp"])
@pytest.mark.parametrize("prompt", ["plain ascii", "half a pair \ud83d", "", "ü" * 20_000])
def test_odd_prompts_round_trip(fmt: Any, prompt: str) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    settings = read_settings(write_picture(pixels, fmt, settings={"prompt": prompt}))
    assert settings == {"prompt": prompt, "studio": 1}


def test_settings_longer_than_a_jpeg_segment_are_cut_and_say_so() -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    long = {"prompt": "苹" * 40_000, "seed": 5}
    settings = read_settings(write_picture(pixels, "jpeg", settings=long))
    assert settings == {"prompt": "苹" * 2000, "seed": 5, "shortened": True, "studio": 1}
    huge = {"parts": ["苹" * 40_000]}
    settings = read_settings(write_picture(pixels, "jpeg", settings=huge))
    assert settings == {"shortened": True, "studio": 1}
    for fmt in ("png", "webp"):
        assert read_settings(write_picture(pixels, fmt, settings=long)) == {**long, "studio": 1}


def test_the_comment_names_its_character_set() -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    for prompt, charset in (("apple", b"ASCII\0\0\0"), ("🍎", b"UNICODE\0")):
        data = write_picture(pixels, "jpeg", settings={"prompt": prompt})
        with Image.open(BytesIO(data)) as image:
            comment = image.getexif().get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.UserComment]
            assert image.info["exif"][6:8] == b"MM"
        assert comment.startswith(charset)


def test_jpeg_keeps_colour_at_full_resolution() -> None:
    data = write_picture(np.zeros((16, 16, 3), np.uint8), "jpeg", settings={})
    with Image.open(BytesIO(data)) as image:
        assert [part[1:3] for part in image.layer] == [(1, 1)] * 3  # type: ignore[attr-defined]


def with_png_text(text: str) -> bytes:
    info = PngInfo()
    info.add_text("studio", text)
    return encoded(Image.new("RGB", (4, 4)), "PNG", pnginfo=info)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '"studio"', '{"studio": 2}', '{"studio": true}', "[" * 9000, "{}"],
)
def test_malformed_settings_are_none(text: str) -> None:
    assert read_settings(with_png_text(text)) is None
    data = with_png_text(text)
    assert load_picture(data, max_bytes=10**6, max_pixels=10**6).settings is None


def test_malformed_comments_are_none() -> None:
    for comment in (b"", b"UNICODE\0\xff", b"ASCII\0\0\0{", b"JIS\0\0\0\0\0{}", "a string"):
        exif = Image.Exif()
        exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.UserComment] = comment
        assert read_settings(encoded(Image.new("RGB", (4, 4)), "JPEG", exif=exif)) is None
    assert read_settings(b"") is None
    assert read_settings(b"not a picture") is None


def test_a_little_endian_comment_of_another_writer_is_read() -> None:
    exif = Image.Exif()
    comment = b"UNICODE\0" + '{"studio": 1, "prompt": "🍎"}'.encode("utf-16-le")
    exif.get_ifd(ExifTags.IFD.Exif)[ExifTags.Base.UserComment] = comment
    data = encoded(Image.new("RGB", (4, 4)), "JPEG", exif=exif)
    assert read_settings(data) == {"studio": 1, "prompt": "🍎"}


def test_an_unknown_format_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="bmp"):
        write_picture(np.zeros((4, 4, 3), np.uint8), "bmp", settings={})  # type: ignore[arg-type]
