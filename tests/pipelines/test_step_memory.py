"""The bound on tokens follows the memory that a step of a picture with a full cache takes."""

from collections.abc import Callable

import pytest
import torch

from pipelines import step_memory
from pipelines.denoise import step_rows
from pipelines.engine import PictureEngine
from pipelines.requests import RenderRequest, StepDone
from pipelines.step_memory import CPU_MAX_TOKENS, CUDA_MAX_TOKENS, SHARE, measure_max_tokens

TOKENS = 16 + 24  # of the tiny model's own picture of 64 x 64, with its text


class Memory:
    """A device where a token takes `a_token` bytes."""

    def __init__(self, free: int, a_token: int) -> None:
        self.free, self.a_token = free, a_token

    def free_bytes(self) -> int:
        return self.free

    def peak_bytes(self, work: Callable[[], object]) -> int:
        work()
        return TOKENS * self.a_token


class NoMemory(Memory):
    def peak_bytes(self, work: Callable[[], object]) -> int:
        raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.mark.parametrize("free, a_token, expected", [(10_000, 10, 600), (10_000, 20, 300)])
def test_the_bound_is_a_share_of_what_is_free(tiny, free, a_token, expected):
    assert SHARE == 0.6
    assert measure_max_tokens(tiny, Memory(free, a_token)) == expected


def test_much_memory_does_not_make_everybody_wait(tiny):
    assert measure_max_tokens(tiny, Memory(10**15, 1)) == CUDA_MAX_TOKENS


def test_pictures_go_one_by_one_where_there_is_no_room_for_more(tiny):
    for memory in (Memory(0, 1), NoMemory(0, 1)):
        assert measure_max_tokens(tiny, memory) == 1


def test_a_cpu_is_not_asked(tiny):
    assert measure_max_tokens(tiny) == CPU_MAX_TOKENS


def test_what_is_measured_has_the_most_that_a_picture_remembers(tiny, monkeypatch):
    kept = []

    def step(model, rows):
        step_rows(model, rows)
        kept.append(rows[0].caches[0])

    monkeypatch.setattr(step_memory, "step_rows", step)
    measure_max_tokens(tiny, Memory(10_000, 10))
    for cache in kept[-2:]:  # of the last step both its old and its new one are held
        assert len(cache.residuals.differences) == len(cache.velocities.differences) == 3


def test_the_engine_admits_by_what_was_measured(tiny, monkeypatch):
    room = Memory(free=1000, a_token=10)  # 60 tokens: two pictures of 6 + 24
    monkeypatch.setattr(
        "pipelines.engine.measure_max_tokens", lambda m: measure_max_tokens(m, room)
    )
    engine = PictureEngine(tiny)
    engine.submit(RenderRequest("r", "a red apple", 48, 32, 2, (1, 2, 3)))
    running = [sum(isinstance(e, StepDone) for e in engine.tick()) for _ in range(3)]
    assert running == [0, 2, 2]
