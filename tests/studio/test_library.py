"""Files and rows: nothing points nowhere, leftovers of a crash go, work under way stays."""

import os
import time
from pathlib import Path

import pytest

from studio.errors import NotFound
from studio.files import LEFTOVER_AGE_S
from studio.job import Picture
from studio.library import EncodedPicture, JobRecord, Library
from studio.request import Draft
from studio.settle import settle
from studio.step_cache import CacheChoice
from tests.studio.conftest import SPEC


def record_of(job_id: str = "job", owner: str = "me") -> JobRecord:
    draft = Draft("🍎 an apple\nwith a leaf", cache=CacheChoice("fast", {"max_skips": 2}))
    request, _ = settle(draft, SPEC, max_images=1)
    return JobRecord(job_id, owner, "page", request, time.time())


def encoded() -> EncodedPicture:
    return EncodedPicture(0, 7, 6, 2, 256, 192, content=b"picture", thumbnail=b"thumbnail")


def keep(library: Library) -> Picture:
    picture = library.store_picture(record_of(), encoded())
    library.add_picture(picture)
    return picture


def age(path: Path) -> None:
    old = time.time() - 2 * LEFTOVER_AGE_S
    os.utime(path, (old, old))


def test_a_job_and_its_picture_come_back_as_they_were(tmp_path: Path) -> None:
    record = record_of()
    before = Library(tmp_path)
    before.add_job(record)
    picture = before.store_picture(record, encoded())
    before.add_picture(picture)
    before.close()
    after = Library(tmp_path)
    assert after.job("job", "me") == record
    assert after.picture(picture.id, "me") == picture
    assert (picture.steps_computed, picture.steps_predicted) == (4, 2)
    assert after.content_path(picture.id, "me").read_bytes() == b"picture"
    assert after.thumbnail_path(picture.id, "me").read_bytes() == b"thumbnail"
    after.close()


def test_the_sweep_takes_old_leftovers_alone(tmp_path: Path) -> None:
    library = Library(tmp_path)
    library.add_job(record_of())
    kept = keep(library)
    library.files.write_source("job", 0, b"source of a waiting job")
    fresh = tmp_path / "pictures" / "fresh.png.part"
    leftovers = [tmp_path / "pictures" / "gone.png", tmp_path / "sources" / "ended.png"]
    for path in [fresh, *leftovers]:
        path.write_bytes(b"x")
    for path in [*leftovers, library.content_path(kept.id, "me"), tmp_path / "sources/job.png"]:
        age(path)
    assert library.sweep(time.time()) == len(leftovers)
    assert not any(path.exists() for path in leftovers)
    assert fresh.exists()
    assert library.content_path(kept.id, "me").is_file()
    assert library.files.read_source("job", 0) == b"source of a waiting job"
    library.close()


@pytest.mark.parametrize("picture_id", ["", "x", "../../studio.db", "%2e%2e", "0" * 5000, "a\0b"])
def test_no_id_reaches_another_file(tmp_path: Path, picture_id: str) -> None:
    library = Library(tmp_path)
    for ask in (library.picture, library.content_path, library.thumbnail_path):
        with pytest.raises(NotFound):
            ask(picture_id, "me")
    library.close()


@pytest.mark.parametrize("cursor", ["", "x", "-1", "9" * 400])
def test_a_damaged_cursor_is_an_empty_or_whole_page(tmp_path: Path, cursor: str) -> None:
    library = Library(tmp_path)
    keep(library)
    assert len(library.history("me", cursor, 10).pictures) <= 1
    library.close()
