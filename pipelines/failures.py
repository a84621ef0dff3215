"""Turns whatever was raised into a failure of one request, so that the others go on."""

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from pipelines.errors import OutOfMemory, PipelineError

ADVICE = (
    "The device ran out of memory for this picture. Ask for a smaller size or fewer pictures at "
    "once, or try again when less is running."
)
ENGINE_ERROR = "engine_error"
log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Failure:
    code: str
    message: str


def attempt(work: Callable[[], T]) -> T | Failure:
    """The result of `work`, or the failure that stands for its exception.

    Raises torch.AcceleratorError: after one, nothing runs on the device in this process.
    """
    try:
        return work()
    except torch.AcceleratorError:
        raise
    except Exception as error:  # the engine's one net: a request's fault must not end the others
        failure = _describe(error)
    # After the handler, because the exception's frames held the tensors until here.
    if failure.code == OutOfMemory.code:
        _free_memory()
    return failure


def _describe(error: Exception) -> Failure:
    if isinstance(error, PipelineError):
        return Failure(error.code, error.message)
    if _is_out_of_memory(error):
        return Failure(OutOfMemory.code, ADVICE)
    log.error("A request failed in the engine", exc_info=error)
    where = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return Failure(ENGINE_ERROR, f"The engine failed: {type(error).__name__}: {error}{where}")


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    # The CPU allocator raises a plain RuntimeError.
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def _free_memory() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
