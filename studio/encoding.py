"""Pixels from the engine to the bytes that are kept and shown, and a source picture back again."""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pipelines.requests import PictureDone
from studio import __version__
from studio.library import EncodedPicture, JobRecord, Library
from studio.pictures import thumbnail, write_picture
from studio.request import PictureRequest

THUMBNAIL_PX = 256
PREVIEW_QUALITY = 80

Pixels = NDArray[np.uint8]


def encode_finished(event: PictureDone, index: int, request: PictureRequest) -> EncodedPicture:
    """The picture in its output format with its settings inside, and its thumbnail."""
    height, width = event.pixels.shape[:2]
    settings = picture_settings(request, event)
    return EncodedPicture(
        index=index,
        seed=event.seed,
        steps_run=event.steps_run,
        steps_predicted=event.steps_predicted,
        width=width,
        height=height,
        content=write_picture(
            event.pixels, request.output_format, quality=request.quality, settings=settings
        ),
        thumbnail=write_picture(
            thumbnail(event.pixels, THUMBNAIL_PX), "webp", quality=PREVIEW_QUALITY, settings={}
        ),
    )


def picture_settings(request: PictureRequest, event: PictureDone) -> dict[str, object]:
    """What a file says of its making: enough to make it again."""
    return request.to_dict() | {
        "seed": event.seed,
        "count": 1,
        "steps_to_run": event.steps_run,
        "steps_computed": event.steps_computed,
        "steps_predicted": event.steps_predicted,
        "version": __version__,
    }


def encode_preview(pixels: Pixels) -> bytes:
    """A small JPEG without metadata; speed before size."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=PREVIEW_QUALITY)
    return buffer.getvalue()


def encode_source(pixels: Pixels) -> bytes:
    """A lossless PNG, kept until the job has ended."""
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


def read_sources(library: Library, record: JobRecord) -> list[Pixels]:
    """The kept pictures that came with a job. Raises `OSError` when one is gone or damaged."""
    count = record.request.has_source + record.request.references
    return [_decoded(library.files.read_source(record.id, index)) for index in range(count)]


def _decoded(png: bytes) -> Pixels:
    with Image.open(io.BytesIO(png)) as picture:
        return np.asarray(picture.convert("RGB"))
