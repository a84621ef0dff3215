"""A tiny random model on the bench, and what it is asked for."""

import pytest

from benchmarks.ways import Bench, load_bench
from pipelines.requests import RenderRequest
from pipelines.specs import find_spec
from tests.threads import one_thread as one_thread
from tests.tiny_flux import make_tiny_flux

STEPS = 10  # a cache with a warm-up of four has five left to predict


@pytest.fixture(scope="session")
def bench(tmp_path_factory) -> Bench:
    return load_bench(find_spec(str(make_tiny_flux(tmp_path_factory.mktemp("models") / "dev"))))


@pytest.fixture(scope="session")
def requests() -> list[RenderRequest]:
    prompts = ("a red apple on a blue background", "two green frogs")
    return [
        RenderRequest(str(seed), prompt, 64, 64, STEPS, (seed,))
        for seed, prompt in enumerate(prompts)
    ]
