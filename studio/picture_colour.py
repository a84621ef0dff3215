"""Any mode that Pillow knows as opaque sRGB: 16-bit and float grey, alpha, palettes, profiles."""

from io import BytesIO
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

from studio.picture_metadata import DECODE_ERRORS

_WHITE: Final = (255, 255, 255, 255)


def opaque_srgb(image: Image.Image, notices: list[str]) -> Image.Image:
    """The picture as 8-bit RGB, alpha over white; what had to be decided goes to `notices`."""
    image = _to_srgb(_to_eight_bits(image, notices), notices)
    if image.mode not in ("LA", "RGBA"):
        return image.convert("RGB")
    white = Image.new("RGBA", image.size, _WHITE)
    return Image.alpha_composite(white, image.convert("RGBA")).convert("RGB")


def _to_eight_bits(image: Image.Image, notices: list[str]) -> Image.Image:
    """Modes that Pillow would clip become 8-bit grey, scaled; the profile stays in `info`."""
    if image.mode not in ("I", "F") and not image.mode.startswith("I;16"):
        return image
    if image.mode.startswith("I;16"):
        return _from_16_bits(image)
    values = np.nan_to_num(np.asarray(image).astype(np.float64), posinf=0.0, neginf=0.0)
    top = _white_level(image.mode, float(values.max()))
    if image.mode == "F":
        notices.append(f"The picture has float values: 0 is taken as black, {top:g} as white.")
    eight = np.rint(np.clip(values / top, 0, 1) * 255).astype(np.uint8)
    return _grey_like(image, values, eight)


def _from_16_bits(image: Image.Image) -> Image.Image:
    """The usual case without float copies; 65535 is 255 times 257."""
    values = np.asarray(image)
    eight = (values.astype(np.uint32) + 128) // 257
    return _grey_like(image, values, eight.astype(np.uint8))


def _grey_like(image: Image.Image, values: NDArray[Any], eight: NDArray[np.uint8]) -> Image.Image:
    """8-bit grey with the profile of `image`, and with the transparency of one of `values`."""
    grey = Image.fromarray(eight)
    grey.info = {name: image.info[name] for name in ("icc_profile",) if name in image.info}
    clear = image.info.get("transparency")
    if isinstance(clear, int):  # a 16-bit PNG names one grey level as transparent
        grey.putalpha(Image.fromarray(np.where(values == clear, 0, 255).astype(np.uint8)))
    return grey


def _white_level(mode: str, largest: float) -> float:
    """What counts as white: the range of the type, or for floats the usual range that fits."""
    ranges = (65535.0, 2.0**31 - 1) if mode == "I" else (1.0, 255.0, 65535.0)
    return next((top for top in ranges if largest <= top), largest)


def _to_srgb(image: Image.Image, notices: list[str]) -> Image.Image:
    profile = image.info.get("icc_profile")
    image = _to_plain_mode(image)
    if not profile:
        return image
    converted = _through_profile(image, profile)
    if converted is None:
        notices.append("The colour profile in the file cannot be used: colours may differ.")
    return converted or image


def _to_plain_mode(image: Image.Image) -> Image.Image:
    """L, LA, RGB, RGBA, CMYK or LAB: modes that a profile can be read for."""
    if image.mode in ("P", "PA", "La", "RGBa") or "transparency" in image.info:
        has_alpha = image.mode != "P" or "transparency" in image.info
        return image.convert("RGBA" if has_alpha else "RGB")
    if image.mode in ("L", "LA", "RGB", "RGBA", "CMYK", "LAB"):
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def _through_profile(image: Image.Image, profile: bytes) -> Image.Image | None:
    """The picture in sRGB by way of its ICC profile; None when the profile does not fit it."""
    has_alpha = image.mode in ("LA", "RGBA")
    alpha = image.getchannel("A") if has_alpha else None
    colour = image.convert(image.mode.removesuffix("A")) if has_alpha else image
    try:
        source = ImageCms.ImageCmsProfile(BytesIO(profile))
        if image.mode in ("RGB", "RGBA") and _is_srgb(source):
            return image
        converted = ImageCms.profileToProfile(
            colour,
            source,
            ImageCms.createProfile("sRGB"),
            renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
            outputMode="RGB",
            flags=ImageCms.Flags.BLACKPOINTCOMPENSATION,
        )
    except (ImageCms.PyCMSError, *DECODE_ERRORS):
        return None
    if converted is not None and alpha is not None:
        converted.putalpha(alpha)
    return converted


def _is_srgb(profile: ImageCms.ImageCmsProfile) -> bool:
    return ImageCms.getProfileDescription(profile).startswith("sRGB")
