"""A job's life: progress, cancel, lost workers, restarts. Nothing lost, nothing stuck."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy.exc import OperationalError

from studio.errors import NotFound, QueueFull, Unavailable
from studio.job import JobView, Origin
from studio.jobs import Jobs
from studio.library import EncodedPicture, Library
from studio.pictures import read_settings
from studio.request import Draft
from tests.fake_engine import FakeEngine
from tests.studio.conftest import SPEC, ended, wait_until


def submit(jobs: Jobs, owner: str = "me", origin: Origin = "page", **values: Any) -> JobView:
    merged: dict[str, Any] = {"prompt": "an apple", "seed": 7} | values
    draft = Draft(**merged)
    return jobs.submit(draft, owner=owner, origin=origin)


def has_received(engine: FakeEngine, count: int) -> bool:
    return len(engine.received) == count


def restarted(folder: Path, engine: FakeEngine) -> Jobs:
    jobs = Jobs([SPEC], Library(folder), engine, queue_capacity=8, max_images=4)
    jobs.start()
    return jobs


def test_pictures_have_their_seeds_files_and_settings(jobs: Jobs) -> None:
    done = ended(jobs, submit(jobs, count=3, output_format="png").id)
    assert done.status == "done"
    assert [picture.seed for picture in done.pictures] == [7, 8, 9]
    data = jobs.library.content_path(done.pictures[1].id, "me").read_bytes()
    settings = read_settings(data)
    assert settings is not None
    assert settings["prompt"] == "an apple"
    assert settings["seed"] == 8


def test_progress_is_told_in_order_and_ends_with_the_picture(
    jobs: Jobs, engine: FakeEngine
) -> None:
    engine.hold()
    job = submit(jobs)

    async def follow() -> list[JobView]:
        seen: list[JobView] = []
        async for view in jobs.watch(job.id, "me"):
            if not seen:
                engine.release()
            seen.append(view)
        return seen

    views = asyncio.run(follow())
    assert [view.step for view in views] == sorted(view.step for view in views)
    assert views[-1].status == "done"
    assert len(views[-1].pictures) == 1
    assert any(view.preview for view in views)


def test_the_file_is_there_before_anybody_hears_of_the_picture(jobs: Jobs) -> None:
    async def first_with_picture(job_id: str) -> JobView:
        async for view in jobs.watch(job_id, "me"):
            if view.pictures:
                return view
        raise AssertionError

    view = asyncio.run(first_with_picture(submit(jobs).id))
    assert jobs.library.content_path(view.pictures[0].id, "me").is_file()
    assert jobs.library.thumbnail_path(view.pictures[0].id, "me").is_file()


def test_cancel_while_waiting_and_while_running(jobs: Jobs, engine: FakeEngine) -> None:
    engine.hold()
    running, waiting = submit(jobs), submit(jobs)
    wait_until(lambda: jobs.get(running.id, "me").status == "running", "it runs")
    assert jobs.cancel(running.id, "me").status == "cancelled"
    assert jobs.cancel(waiting.id, "me").status == "cancelled"
    engine.release()
    assert ended(jobs, submit(jobs).id).status == "done"
    assert len(jobs.history("me").pictures) == 1
    assert jobs.cancel(running.id, "me").status == "cancelled"


def test_a_failed_picture_names_its_cause_and_the_next_one_works(jobs: Jobs) -> None:
    failed = ended(jobs, submit(jobs, prompt="fail").id)
    assert (failed.status, failed.error_code) == ("failed", "out_of_memory")
    assert ended(jobs, submit(jobs).id).status == "done"


def test_full_queue_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    jobs = restarted(tmp_path, FakeEngine(ready=False))
    kept = [submit(jobs) for _ in range(8)]
    with pytest.raises(QueueFull):
        submit(jobs)
    assert [job.position for job in jobs.active("me")] == list(range(8))
    assert len(kept) == 8
    jobs.close()


def test_jobs_are_their_owners_alone(jobs: Jobs) -> None:
    done = ended(jobs, submit(jobs).id)
    for ask in (
        lambda: jobs.get(done.id, "other"),
        lambda: jobs.cancel(done.id, "other"),
        lambda: jobs.picture(done.pictures[0].id, "other"),
        lambda: jobs.delete_picture(done.pictures[0].id, "other"),
        lambda: jobs.library.content_path(done.pictures[0].id, "other"),
    ):
        with pytest.raises(NotFound):
            ask()
    assert not jobs.history("other").pictures
    assert not jobs.active("other")


def test_a_lost_worker_costs_one_attempt_and_no_job(jobs: Jobs, engine: FakeEngine) -> None:
    engine.hold()
    running, waiting = submit(jobs), submit(jobs)
    wait_until(lambda: jobs.get(running.id, "me").status == "running", "it runs")
    engine.lose_worker()
    wait_until(lambda: jobs.get(running.id, "me").status == "queued", "it waits again")
    engine.recover()
    assert ended(jobs, running.id).status == "done"
    assert ended(jobs, waiting.id).status == "done"


def test_a_job_that_kills_the_worker_twice_fails_with_the_cause(
    jobs: Jobs, engine: FakeEngine
) -> None:
    engine.hold()
    job = submit(jobs)
    for _ in range(2):
        wait_until(lambda: jobs.get(job.id, "me").status == "running", "it runs")
        engine.lose_worker("The worker was ended by SIGKILL.")
        wait_until(lambda: jobs.get(job.id, "me").status != "running", "it is off the worker")
        engine.hold()
        engine.recover()
    failed = ended(jobs, job.id)
    assert failed.error_code == "worker_lost"
    assert "SIGKILL" in (failed.error_message or "")
    engine.release()
    assert ended(jobs, submit(jobs).id).status == "done"


def test_a_retried_job_runs_alone(jobs: Jobs, engine: FakeEngine) -> None:
    engine.hold()
    suspect, neighbour = submit(jobs), submit(jobs)
    wait_until(lambda: jobs.get(suspect.id, "me").status == "running", "it runs")
    engine.lose_worker()
    wait_until(lambda: jobs.get(suspect.id, "me").status == "queued", "it waits again")
    engine.hold()
    engine.received.clear()
    engine.recover()
    wait_until(lambda: jobs.get(suspect.id, "me").status == "running", "it runs again")
    assert [request.id for request in engine.received] == [suspect.id]
    engine.release()
    assert ended(jobs, neighbour.id).status == "done"


def test_a_restart_goes_on_with_the_page_and_drops_waiting_clients(tmp_path: Path) -> None:
    before = restarted(tmp_path, FakeEngine(ready=False))
    page = submit(before, origin="page")
    background = submit(before, origin="background")
    client = submit(before, origin="api")
    before.close()
    after = restarted(tmp_path, FakeEngine())
    assert ended(after, page.id).status == "done"
    assert ended(after, background.id).status == "done"
    assert ended(after, client.id).status == "cancelled"
    after.close()


def test_a_killed_server_loses_no_job(tmp_path: Path) -> None:
    """No `close` is called: what is on disk is all that a kill -9 leaves."""
    engine = FakeEngine()
    killed = restarted(tmp_path, engine)
    engine.hold()
    pending = [submit(killed) for _ in range(5)]
    wait_until(lambda: killed.get(pending[0].id, "me").status == "running", "one runs")
    after = restarted(tmp_path, FakeEngine())
    assert {ended(after, job.id).status for job in pending} == {"done"}
    assert len(after.history("me").pictures) == 5
    after.close()
    killed.close()


def test_only_missing_pictures_are_made_again(tmp_path: Path) -> None:
    engine = FakeEngine(ready=False)
    before = restarted(tmp_path, engine)
    job = submit(before, count=3)
    record = before.library.job(job.id, "me")
    encoded = EncodedPicture(1, 8, 6, 0, 256, 192, b"x", b"x")
    before.library.add_picture(before.library.store_picture(record, encoded))
    before.close()
    second = FakeEngine()
    after = restarted(tmp_path, second)
    done = ended(after, job.id)
    assert second.received[0].seeds == (7, 9)
    assert [(picture.index, picture.seed) for picture in done.pictures] == [(0, 7), (1, 8), (2, 9)]
    after.close()


def test_a_source_picture_survives_a_restart_and_goes_when_the_job_is_over(tmp_path: Path) -> None:
    before = restarted(tmp_path, FakeEngine(ready=False))
    red = np.full((300, 400, 3), (200, 30, 30), np.uint8)
    draft = Draft("warmer", seed=1, picture_sizes=((400, 300),), strength=0.5)
    job = before.submit(draft, owner="me", origin="page", pictures=[red])
    before.close()
    engine = FakeEngine()
    after = restarted(tmp_path, engine)
    done = ended(after, job.id)
    source = engine.received[0].source
    assert source is not None
    assert source.shape == (done.request.height, done.request.width, 3)
    assert source[0, 0].tolist() == [200, 30, 30]
    wait_until(lambda: not list((tmp_path / "sources").iterdir()), "the source is gone")
    after.close()


def test_a_model_that_cannot_be_loaded_is_said_at_once(tmp_path: Path) -> None:
    engine = FakeEngine(ready=False)
    jobs = restarted(tmp_path, engine)
    waiting = submit(jobs, origin="api")
    engine.become("failed", "vae/config.json is missing.")
    failed = ended(jobs, waiting.id)
    assert failed.error_code == "engine_failed"
    with pytest.raises(Unavailable, match=r"vae/config\.json"):
        submit(jobs)
    jobs.close()


def test_delete_removes_row_and_files(jobs: Jobs, tmp_path: Path) -> None:
    picture = ended(jobs, submit(jobs).id).pictures[0]
    jobs.delete_picture(picture.id, "me")
    assert not jobs.history("me").pictures
    assert not list(tmp_path.rglob(f"{picture.id}*"))
    with pytest.raises(NotFound):
        jobs.delete_picture(picture.id, "me")


def test_history_pages_are_complete_and_without_repeats(jobs: Jobs) -> None:
    for seed in range(3):
        ended(jobs, submit(jobs, count=4, seed=seed * 10).id)
    seen: list[str] = []
    cursor = None
    while True:
        page = jobs.history("me", before=cursor, limit=5)
        seen += [picture.id for picture in page.pictures]
        if (cursor := page.next) is None:
            break
    assert len(seen) == len(set(seen)) == 12
    assert [picture.id for picture in jobs.history("me", limit=50).pictures] == seen


def test_many_jobs_at_once_each_get_their_own_picture(tmp_path: Path) -> None:
    engine = FakeEngine()
    jobs = Jobs([SPEC], Library(tmp_path), engine, queue_capacity=64)
    jobs.start()
    made = [submit(jobs, owner=f"o{n % 5}", seed=n) for n in range(40)]
    for n, job in enumerate(made):
        done = ended(jobs, job.id, f"o{n % 5}")
        assert [picture.seed for picture in done.pictures] == [n]
    jobs.close()


def test_a_job_that_kills_the_worker_before_it_begins_does_not_loop(tmp_path: Path) -> None:
    """It was handed in, the worker died without a word: that must count, or it goes on for ever."""
    engine = FakeEngine()
    jobs = restarted(tmp_path, engine)
    engine.mute = True
    job = submit(jobs)
    for attempt in range(2):
        wait_until(partial(has_received, engine, attempt + 1), "it is handed in")
        engine.lose_worker()
        engine.recover()
    assert ended(jobs, job.id).error_code == "worker_lost"
    jobs.close()


def test_a_picture_that_cannot_be_saved_is_a_failure_that_says_so(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jobs.library, "store_picture", full)
    failed = ended(jobs, submit(jobs).id)
    assert (failed.status, failed.error_code) == ("failed", "save_failed")
    assert "No space left" in (failed.error_message or "")
    monkeypatch.undo()
    assert ended(jobs, submit(jobs).id).status == "done"


def test_an_end_that_cannot_be_written_is_told_and_written_later(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OperationalError("UPDATE", {}, Exception("database or disk is full"))

    monkeypatch.setattr(jobs.library, "end_job", full)
    first = submit(jobs)
    assert ended(jobs, first.id).status == "done"
    monkeypatch.undo()
    assert ended(jobs, submit(jobs).id).status == "done"
    wait_until(lambda: jobs.library.job(first.id, "me").status == "done", "it is written")
    assert len(jobs.get(first.id, "me").pictures) == 1


def test_a_job_that_cannot_be_kept_is_refused_and_leaves_nothing(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    monkeypatch.setattr(jobs.library, "add_job", full)
    draft = Draft("warmer", picture_sizes=((64, 64),))
    with pytest.raises(Unavailable, match="disk is full"):
        jobs.submit(draft, owner="me", origin="page", pictures=[np.zeros((64, 64, 3), np.uint8)])
    assert not jobs.active("me")
    assert not list((tmp_path / "sources").iterdir())
