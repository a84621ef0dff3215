"""Whether Triton runs a tensor, and its names where it is not installed.

``STUDIO_KERNELS``: "auto" measures (`kernels.autotune`), "triton" and "torch" decide. Triton's
interpreter (``TRITON_INTERPRET=1``, read when a kernel is decorated) runs on the CPU.
"""

from __future__ import annotations

import os
from typing import Any, Literal, get_args

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
    from triton.runtime.errors import TritonError

    jit: Any = triton.jit
except ImportError:  # builds of PyTorch for CPUs come without it
    triton = tl = None
    TritonError = RuntimeError

    def jit(function: Any) -> Any:
        return function


Choice = Literal["auto", "triton", "torch"]
VARIABLE = "STUDIO_KERNELS"
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def choice() -> Choice:
    """What ``STUDIO_KERNELS`` says. Raises ValueError for another word."""
    said = os.environ.get(VARIABLE, "auto")
    for known in get_args(Choice):
        if said == known:
            return known  # type: ignore[no-any-return]
    raise ValueError(f"{VARIABLE} is {said!r}; it must be one of {', '.join(get_args(Choice))}.")


def can_run(x: Tensor) -> bool:
    """Whether a kernel can take this tensor."""
    if triton is None or x.dtype not in DTYPES:
        return False
    return x.is_cuda or (x.device.type == "cpu" and is_interpreted())


def runs_kernel(x: Tensor, said: Choice) -> bool:
    """Whether the kernel is to be tried: always by "triton", and where "auto" can measure it."""
    return can_run(x) and (said == "triton" or (said == "auto" and x.is_cuda))


def fits(values: Tensor | None, x: Tensor, count: int) -> bool:
    """Whether a bias or a norm's weight of so many values lies as a kernel reads it."""
    if values is None:
        return True
    return values.shape == (count,) and values.device == x.device and values.is_contiguous()


def is_interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"
