"""The child process: kills, failed starts, no orphans; with a worker that has no model."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.requests import RenderRequest, RequestDone
from studio.engine.local import ROOT, LocalEngine
from studio.engine.messages import WorkerConfig
from studio.jobs import Jobs
from studio.library import Library
from studio.request import Draft
from tests.studio.conftest import SPEC, ended, wait_until

Start = Callable[..., tuple[Jobs, LocalEngine]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Jobs] = []

    def begin(name: str = "tiny") -> tuple[Jobs, LocalEngine]:
        spec = replace(SPEC, name=name)
        engine = LocalEngine(WorkerConfig((spec,)), command=("-m", "tests.studio.fake_worker"))
        jobs = Jobs([spec], Library(tmp_path), engine)
        jobs.start()
        made.append(jobs)
        return jobs, engine

    yield begin
    for jobs in made:
        jobs.close()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_a_picture_comes_from_the_child(start: Start) -> None:
    jobs, engine = start()
    done = ended(jobs, jobs.submit(Draft("a"), owner="me", origin="page").id)
    assert done.status == "done"
    assert engine.pid != os.getpid()


def test_kill_9_in_mid_picture_costs_nobody_else_a_picture(start: Start) -> None:
    jobs, _ = start()
    deadly = jobs.submit(Draft("die"), owner="me", origin="page")
    others = [jobs.submit(Draft("a"), owner="me", origin="page") for _ in range(3)]
    failed = ended(jobs, deadly.id)
    assert failed.error_code == "worker_lost"
    assert "SIGKILL" in (failed.error_message or "")
    assert {ended(jobs, job.id).status for job in others} == {"done"}
    assert jobs.engine_status.restarts == 2


def test_an_idle_worker_that_is_killed_comes_back(start: Start) -> None:
    jobs, engine = start()
    wait_until(lambda: engine.status.state == "ready", "the worker is ready")
    assert engine.pid
    os.kill(engine.pid, signal.SIGKILL)
    wait_until(lambda: engine.status.restarts == 1, "the loss was seen")
    done = ended(jobs, jobs.submit(Draft("a"), owner="me", origin="page").id)
    assert done.status == "done"


def test_a_start_that_fails_says_why_and_is_not_repeated(start: Start) -> None:
    jobs, engine = start("broken")
    wait_until(lambda: engine.status.state == "failed", "the failure is known")
    assert jobs.engine_status.detail.startswith("vae/config.json is missing.")
    assert engine.status.restarts == 0


def test_a_worker_that_dies_at_every_start_ends_in_failure(start: Start) -> None:
    _, engine = start("dies")
    wait_until(lambda: engine.status.state == "failed", "it was given up")
    assert "exit code 3" in engine.status.detail


def test_a_spawn_that_fails_once_is_tried_again(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, engine = start()
    wait_until(lambda: engine.status.state == "ready", "the worker is ready")
    spawn, failures = engine._spawn, [OSError("Cannot allocate memory")]

    def failing() -> None:
        if failures:
            raise failures.pop()
        spawn()

    monkeypatch.setattr(engine, "_spawn", failing)
    assert engine.pid
    os.kill(engine.pid, signal.SIGKILL)
    wait_until(lambda: engine.status.restarts == 1, "the loss was seen")
    done = ended(jobs, jobs.submit(Draft("a"), owner="me", origin="page").id)
    assert done.status == "done"
    assert not failures


def test_a_request_for_an_earlier_worker_is_dropped(start: Start) -> None:
    """`WorkerLost` brings it back; sent to the next worker too, it would be made twice."""
    _, engine = start()
    wait_until(lambda: engine.status.state == "ready", "the worker is ready")
    heard: list[object] = []
    engine._on_event = heard.append
    engine.submit(RenderRequest("early", "a", 64, 64, 1, (1,)), restarts=engine.status.restarts - 1)
    engine.submit(RenderRequest("now", "a", 64, 64, 1, (1,)), restarts=engine.status.restarts)
    wait_until(lambda: RequestDone("now") in heard, "the second is made")
    assert RequestDone("early") not in heard


def test_ctrl_c_in_the_terminal_does_not_reach_the_worker(start: Start) -> None:
    _, engine = start()
    assert engine.pid
    assert os.getsid(engine.pid) != os.getsid(0)


def test_close_ends_the_worker(start: Start) -> None:
    jobs, engine = start()
    wait_until(lambda: engine.status.state == "ready", "the worker is ready")
    pid = engine.pid
    jobs.close()
    assert pid
    assert not is_alive(pid)


def test_kill_9_of_the_server_leaves_no_orphan(tmp_path: Path) -> None:
    server = textwrap.dedent(
        """
        import sys, time
        from studio.engine.local import LocalEngine
        from studio.engine.messages import WorkerConfig
        from tests.studio.conftest import SPEC
        engine = LocalEngine(WorkerConfig((SPEC,)), command=("-m", "tests.studio.fake_worker"))
        engine.start(lambda event: None)
        print(engine.pid, flush=True)
        time.sleep(60)
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", server], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout
    worker = int(process.stdout.readline())
    assert is_alive(worker)
    process.kill()
    process.wait()
    wait_until(lambda: not is_alive(worker), "the worker ended with its server")
