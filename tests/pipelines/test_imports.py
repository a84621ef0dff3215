"""The server reads sizes, limits and events without torch; nothing here knows the studio."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pipelines

FOLDER = Path(pipelines.__file__).parent


@pytest.mark.parametrize("module", ["specs", "schedule", "requests", "errors", "cache_rules"])
def test_the_server_may_import_it_without_torch(module):
    code = (
        f"import sys, pipelines.{module}; "
        "heavy = {'torch', 'diffusers', 'transformers', 'huggingface_hub'} & set(sys.modules); "
        "print(*sorted(heavy))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=FOLDER.parent, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == []


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.stem)
def test_nothing_points_back_to_the_studio(path):
    outer = {"studio", "app", "fastapi", "gradio", "tests", "training", "benchmarks"}
    assert not {name.split(".")[0] for name in imported(path)} & outer
