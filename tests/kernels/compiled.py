"""Kernels compiled for GPUs that are not here: PTX, cubin, and what they use."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
# Architecture -> bytes of shared memory that a block may have (CUDA programming guide, table of
# compute capabilities).
SHARED = {80: 163 * 1024, 89: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024}


@dataclass(frozen=True)
class Compiled:
    ptx: str
    stack_bytes: int  # registers that did not fit
    shared_bytes: int


def compiled(
    kernel: Any,
    architecture: int,
    types: Mapping[str, str],
    constants: Mapping[str, Any],
    *,
    divisible: Sequence[str] = (),
    warps: int,
    stages: int = 3,
) -> Compiled:
    """``types``: of arguments that are no int32; ``divisible``: those that are multiples of 16."""
    names = kernel.arg_names
    signature = {
        name: "constexpr" if name in constants else types.get(name, "i32") for name in names
    }
    source = ASTSource(
        fn=kernel,
        signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", 16]] for name in divisible},
    )
    target = GPUTarget("cuda", architecture, 32)
    made = triton.compile(source, target=target, options={"num_warps": warps, "num_stages": stages})
    return Compiled(made.asm["ptx"], _stack_bytes(made.asm["cubin"]), made.metadata.shared)


def _stack_bytes(cubin: bytes) -> int:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [str(CUOBJDUMP), "-res-usage", str(path)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"STACK:(\d+)", told)
    assert found, told
    return int(found[1])
