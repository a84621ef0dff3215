"""The loader is tried with real files made by Pillow, the profiles with ICC files built here."""

import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import ExifTags, Image

from studio.errors import BadRequest, StudioError, TooLarge
from studio.pictures import (
    LoadedPicture,
    fit_picture,
    load_picture,
    read_settings,
    thumbnail,
)

RED, GREEN, BLUE, WHITE = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255, 255, 255)


def encoded(image: Image.Image, fmt: str, **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, fmt, **options)
    return file.getvalue()


def load(data: bytes, max_bytes: int = 10**7, max_pixels: int = 10**6) -> LoadedPicture:
    return load_picture(data, max_bytes=max_bytes, max_pixels=max_pixels)


def colour(picture: LoadedPicture, x: int = 0, y: int = 0) -> tuple[int, ...]:
    return tuple(int(value) for value in picture.pixels[y, x])


def near(a: tuple[int, ...], b: tuple[int, ...], tolerance: int = 6) -> bool:
    return all(abs(x - y) <= tolerance for x, y in zip(a, b, strict=True))


# --- reading ---------------------------------------------------------------------------------


@pytest.mark.parametrize("fmt", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_each_format_is_read(fmt: str) -> None:
    picture = load(encoded(Image.new("RGB", (48, 32), (200, 30, 60)), fmt))
    assert picture.pixels.shape == (32, 48, 3)
    assert picture.pixels.dtype == np.uint8
    assert near(colour(picture, 20, 20), (200, 30, 60))
    assert picture.notices == ()
    assert picture.settings is None


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("fmt", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_orientation_turns_the_picture_upright(fmt: str, orientation: int) -> None:
    # Upright: red left half, blue right half, 64 × 32. Stored the other way round.
    upright = Image.new("RGB", (64, 32), RED)
    upright.paste(BLUE, (32, 0, 64, 32))
    stored = {
        1: upright,
        2: upright.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        3: upright.transpose(Image.Transpose.ROTATE_180),
        4: upright.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
        5: upright.transpose(Image.Transpose.TRANSPOSE),
        6: upright.transpose(Image.Transpose.ROTATE_90),
        7: upright.transpose(Image.Transpose.TRANSVERSE),
        8: upright.transpose(Image.Transpose.ROTATE_270),
    }[orientation]
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    picture = load(encoded(stored, fmt, exif=exif))
    assert picture.pixels.shape == (32, 64, 3)
    assert near(colour(picture, 4, 16), RED, 12)
    assert near(colour(picture, 60, 16), BLUE, 12)


def test_alpha_goes_over_white() -> None:
    clear_red = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    half_black = Image.new("RGBA", (8, 8), (0, 0, 0, 128))
    assert colour(load(encoded(clear_red, "PNG"))) == WHITE
    assert near(colour(load(encoded(half_black, "PNG"))), (127, 127, 127), 1)
    assert colour(load(encoded(clear_red, "WEBP", lossless=True, exact=True))) == WHITE
    assert colour(load(encoded(Image.new("LA", (8, 8), (0, 0)), "PNG"))) == WHITE
    assert colour(load(encoded(Image.new("RGB", (8, 8), RED), "PNG", transparency=RED))) == WHITE
    assert colour(load(encoded(Image.new("L", (8, 8), 9), "PNG", transparency=9))) == WHITE


def test_palette_with_transparency_does_not_show_the_hidden_colour() -> None:
    palette = Image.new("P", (8, 8), 1)
    palette.putpalette([*GREEN, *RED, *BLUE])
    palette.putpixel((7, 7), 2)
    for fmt in ("PNG", "GIF"):
        picture = load(encoded(palette, fmt, transparency=1))
        assert colour(picture) == WHITE
        assert colour(picture, 7, 7) == BLUE


def test_sixteen_bit_grey_is_scaled_and_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 64, dtype=np.uint16).reshape(1, 64).repeat(4, axis=0)
    for fmt in ("PNG", "TIFF"):
        picture = load(encoded(Image.fromarray(ramp), fmt))
        assert len(np.unique(picture.pixels)) == 64
        assert np.abs(picture.pixels[..., 0] - ramp / 257).max() <= 0.5
    wide = Image.fromarray(ramp.astype(np.int32))
    assert wide.mode == "I"
    assert len(np.unique(load(encoded(wide, "TIFF")).pixels)) == 64


def test_transparent_level_of_a_sixteen_bit_grey_png() -> None:
    grey = Image.fromarray(np.full((4, 4), 300, np.uint16))
    assert colour(load(encoded(grey, "PNG", transparency=300))) == WHITE


def test_float_grey_says_how_it_was_read() -> None:
    values = np.array([[0.0, 0.5, 1.0, np.nan]], np.float32)
    picture = load(encoded(Image.fromarray(values), "TIFF"))
    assert picture.pixels[0, :, 0].tolist() == [0, 128, 255, 0]
    assert "1 as white" in picture.notices[0]


@pytest.mark.parametrize(("mode", "value"), [("1", 1), ("L", 255), ("LA", (255, 255))])
def test_grey_modes(mode: str, value: Any) -> None:
    assert colour(load(encoded(Image.new(mode, (8, 8), value), "PNG"))) == WHITE


@pytest.mark.parametrize("fmt", ["GIF", "WEBP", "PNG"])
def test_an_animation_gives_its_first_frame_and_says_so(fmt: str) -> None:
    frames = [Image.new("RGB", (16, 16), tone) for tone in (RED, GREEN, BLUE)]
    picture = load(encoded(frames[0], fmt, save_all=True, append_images=frames[1:], duration=50))
    assert near(colour(picture, 8, 8), RED)
    assert "animation" in picture.notices[0]


def test_pages_of_a_tiff() -> None:
    pages = [Image.new("RGB", (16, 16), tone) for tone in (RED, GREEN)]
    picture = load(encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:]))
    assert colour(picture) == RED
    assert "pages" in picture.notices[0]


# --- colour profiles -------------------------------------------------------------------------


def icc_profile(device: bytes, space: bytes, tags: dict[bytes, bytes]) -> bytes:
    """An ICC v2 profile (ICC.1:2001-04, clause 6): header, tag table, tags."""
    illuminant = struct.pack(">3i", 63190, 65536, 54061)  # D50 in s15Fixed16
    start = 128 + 4 + 12 * len(tags)
    table, body = struct.pack(">I", len(tags)), b""
    for name, tag in tags.items():
        table += name + struct.pack(">2I", start + len(body), len(tag))
        body += tag + b"\0" * (-len(tag) % 4)
    size = start + len(body)
    head = struct.pack(">I4sI4s4s4s", size, b"\0" * 4, 0x02100000, b"prtr", device, space)
    head += struct.pack(">6H", 2020, 1, 1, 0, 0, 0) + b"acsp" + b"\0" * 28 + illuminant
    return head.ljust(128, b"\0") + table + body


def cmyk_profile() -> bytes:
    """CMYK to Lab by a table of 2⁴ points: cyan ink alone is a dark green; the rest is white."""
    white, dark_green = (255, 128, 128), (80, 78, 168)
    points = bytearray()
    for corner in range(16):  # C is the slowest channel
        points += bytes(dark_green if corner == 0b1000 else white)
    identity = struct.pack(">9i", 65536, 0, 0, 0, 65536, 0, 0, 0, 65536)
    curve = bytes(range(256))
    lut = b"mft1" + b"\0" * 4 + bytes([4, 3, 2, 0]) + identity + curve * 4 + points + curve * 3
    white_point = b"XYZ \0\0\0\0" + struct.pack(">3i", 63190, 65536, 54061)
    return icc_profile(b"CMYK", b"Lab ", {b"A2B0": lut, b"A2B1": lut, b"wtpt": white_point})


def swapped_rgb_profile() -> bytes:
    """An RGB profile whose red and green primaries changed places: a skipped one is seen."""
    xyz = {b"rXYZ": (0.3851, 0.7169, 0.0971), b"gXYZ": (0.4361, 0.2225, 0.0139)}
    xyz |= {b"bXYZ": (0.1431, 0.0606, 0.7141), b"wtpt": (0.9642, 1.0, 0.8249)}
    tags = {
        name: b"XYZ \0\0\0\0" + struct.pack(">3i", *(round(v * 65536) for v in values))
        for name, values in xyz.items()
    }
    gamma = b"curv\0\0\0\0" + struct.pack(">IH", 1, round(2.2 * 256)) + b"\0\0"
    return icc_profile(b"RGB ", b"XYZ ", tags | dict.fromkeys((b"rTRC", b"gTRC", b"bTRC"), gamma))


def test_cmyk_goes_through_its_profile() -> None:
    cyan = Image.new("CMYK", (16, 16), (255, 0, 0, 0))
    plain = load(encoded(cyan, "JPEG", quality=100))
    assert near(colour(plain, 8, 8), (0, 255, 255), 12)
    for fmt in ("JPEG", "TIFF"):
        picture = load(encoded(cyan, fmt, icc_profile=cmyk_profile()))
        red, green, blue = colour(picture, 8, 8)
        assert green > 60 and red < 40 and blue < 60, (fmt, red, green, blue)
        assert picture.notices == ()


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P"])
def test_rgb_profiles_are_converted(mode: str) -> None:
    image = Image.new("RGB", (8, 8), RED).convert(mode)
    picture = load(encoded(image, "PNG", icc_profile=swapped_rgb_profile()))
    assert near(colour(picture), GREEN, 16)


def test_alpha_survives_a_profile() -> None:
    clear = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    assert colour(load(encoded(clear, "PNG", icc_profile=swapped_rgb_profile()))) == WHITE


@pytest.mark.parametrize("profile", [b"no profile at all", cmyk_profile()])
def test_a_profile_that_does_not_fit_is_said_and_not_fatal(profile: bytes) -> None:
    picture = load(encoded(Image.new("RGB", (8, 8), RED), "PNG", icc_profile=profile))
    assert colour(picture) == RED
    assert "profile" in picture.notices[0]


# --- refusing --------------------------------------------------------------------------------


def noise(fmt: str, side: int = 64) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return encoded(Image.fromarray(pixels), fmt)


@pytest.mark.parametrize(
    "data", [b"hello, I am photo.png\n" * 40, b"<html></html>", b"\x89PNG\r\n"]
)
def test_a_text_file_is_no_picture(data: bytes) -> None:
    with pytest.raises(BadRequest, match="not a picture") as caught:
        load_picture(data, max_bytes=10**6, max_pixels=10**6, param="source")
    assert caught.value.param == "source"
    assert caught.value.code == "not_a_picture"


def test_svg_and_heic_are_named() -> None:
    with pytest.raises(BadRequest, match="SVG"):
        load(b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>')
    with pytest.raises(BadRequest, match="HEIC"):
        load(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + b"\0" * 64)


def test_an_empty_file() -> None:
    with pytest.raises(BadRequest, match="empty"):
        load(b"")


@pytest.mark.parametrize("fmt", ["PNG", "JPEG", "WEBP", "BMP", "TIFF", "AVIF"])
@pytest.mark.parametrize("part", [0.5, 0.9])
def test_a_truncated_file_is_refused(fmt: str, part: float) -> None:
    data = noise(fmt)
    with pytest.raises(BadRequest):
        load(data[: int(len(data) * part)])


def test_too_many_bytes() -> None:
    with pytest.raises(TooLarge, match="limit is 1,000"):
        load(noise("PNG"), max_bytes=1000)


def test_pixels_are_counted_before_decoding() -> None:
    # 20,000 × 20,000 in 60 bytes of header; there is nothing to decode behind it.
    header = struct.pack(">2I5B", 20_000, 20_000, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", len(header)) + b"IHDR" + header
    bomb = b"\x89PNG\r\n\x1a\n" + chunk + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    bomb += struct.pack(">I", 0) + b"IDAT" + struct.pack(">I", zlib.crc32(b"IDAT"))
    with pytest.raises(TooLarge, match="limit is 1 megapixel") as caught:
        load(bomb)
    assert caught.value.code == "too_many_pixels"
    with pytest.raises(TooLarge, match="64 × 64"):
        load(noise("PNG"), max_pixels=64 * 64 - 1)
    assert load(noise("PNG"), max_pixels=64 * 64).pixels.shape == (64, 64, 3)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")  # from Pillow
@pytest.mark.parametrize("fmt", ["PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_damaged_files_raise_nothing_but_our_own_errors(fmt: str) -> None:
    """Broken bytes, most of them in the headers, give pixels or a StudioError."""
    random = np.random.default_rng(7)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    options = {} if fmt in ("GIF", "BMP") else {"exif": exif, "icc_profile": cmyk_profile()}
    clean = encoded(Image.new("RGB", (16, 16), RED), fmt, **options)
    for _ in range(150):
        data = bytearray(clean)
        for place in random.integers(0, min(len(data), 400), 4):
            data[place] = random.integers(0, 256)
        read_settings(bytes(data))
        try:
            picture = load(bytes(data), max_pixels=100_000)
        except StudioError:
            continue
        assert picture.pixels.ndim == 3


# --- sizes -----------------------------------------------------------------------------------


def test_fit_crops_the_centre_and_never_stretches() -> None:
    # A centred square in a wide picture must stay a square.
    pixels = np.zeros((100, 300, 3), np.uint8)
    pixels[30:70, 130:170] = 255
    fitted = fit_picture(pixels, 200, 200)
    assert fitted.shape == (200, 200, 3)
    rows = int((fitted[:, 100, 0] > 127).sum())
    columns = int((fitted[100, :, 0] > 127).sum())
    assert (rows, columns) == (80, 80)
    assert np.array_equal(fit_picture(pixels, 300, 100), pixels)


def test_thumbnail_keeps_the_shape_and_never_enlarges() -> None:
    pixels = np.zeros((100, 300, 3), np.uint8)
    assert thumbnail(pixels, 60).shape == (20, 60, 3)
    assert thumbnail(pixels, 400).shape == (100, 300, 3)
    assert thumbnail(np.zeros((1, 3000, 3), np.uint8), 60).shape == (1, 60, 3)
