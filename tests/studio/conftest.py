"""A studio over a fake engine: real queue, history, API and access control, no model."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipelines.specs import ModelSpec
from studio.job import JobView
from studio.jobs import Jobs
from studio.library import Library
from tests.fake_engine import FakeEngine

SPEC = ModelSpec(
    name="tiny",
    source="tiny",
    family="flux1",
    licence="Apache-2.0",
    native_width=256,
    native_height=192,
    size_multiple=16,
    min_side_px=128,
    max_pixels=512 * 512,
    max_sequence_length=40,
    default_steps=6,
    max_steps=50,
    default_guidance_scale=3.0,
    guidance="embedded",
    weights_gb=0.02,
)
DEADLINE_S = 10.0


def wait_until(is_true: Callable[[], object], what: str) -> None:
    """Poll until `is_true`, or fail with `what` was waited for."""
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.005)


def ended(jobs: Jobs, job_id: str, owner: str = "me") -> JobView:
    """The job once it is over."""
    wait_until(lambda: jobs.get(job_id, owner).is_final, "the job is over")
    return jobs.get(job_id, owner)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def jobs(tmp_path: Path, engine: FakeEngine) -> Iterator[Jobs]:
    made = Jobs([SPEC], Library(tmp_path), engine, queue_capacity=8, max_images=4)
    made.start()
    yield made
    made.close()
