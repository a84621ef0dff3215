"""The kernels' arithmetic, in a process in which Triton interprets them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

FILES = Path(__file__).parent
ROOT = FILES.parents[1]


@pytest.mark.parametrize("file", ["interpreted.py", "interpreted_vae.py"])
def test_interpreted_kernels(file: str) -> None:
    told = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
            FILES / file,
        ],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stdout + told.stderr
