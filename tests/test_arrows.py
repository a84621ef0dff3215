"""app → studio → pipelines → kernels: no import runs back, and the server process has no torch."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ["kernels", "pipelines", "studio", "app"]
WITHOUT_TORCH = {
    f"pipelines.{name}"
    for name in (
        "cache_rules",
        "errors",
        "requests",
        "schedule",
        "specs",
        "text.embedded",
        "text.requests",
        "text.stops",
    )
}

PLAIN_VALUES = ("pipelines.specs", "pipelines.text.requests")  # which page and API may name


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def modules(package: str) -> list[Path]:
    found = sorted((ROOT / package).rglob("*.py")) if package != "app" else [ROOT / "app.py"]
    assert found or package == "kernels", f"{package} has no modules"
    return found


@pytest.mark.parametrize("package", LAYERS)
def test_no_arrow_runs_back(package: str) -> None:
    above = LAYERS[LAYERS.index(package) + 1 :]
    for path in modules(package):
        for name in imports(path):
            assert name.partition(".")[0] not in above, f"{path} imports {name}"


def test_page_and_api_do_not_know_each_other_nor_the_models() -> None:
    for here, other in (("ui", "api"), ("api", "ui")):
        for path in sorted((ROOT / "studio" / here).rglob("*.py")):
            for name in imports(path):
                assert not name.startswith(f"studio.{other}"), f"{path} imports {name}"
                is_model = name.startswith("pipelines") and not name.startswith(PLAIN_VALUES)
                assert not is_model, f"{path} imports {name}"


def test_of_the_studio_only_worker_and_doctor_import_what_needs_torch() -> None:
    for path in modules("studio"):
        if path.name in ("worker.py", "text_worker.py", "doctor.py"):  # processes of their own
            continue
        for name in imports(path):
            if name.startswith("pipelines."):
                parents = [name.rsplit(".", ends)[0] for ends in range(name.count("."))]
                assert WITHOUT_TORCH & set(parents), f"{path} imports {name}"


def test_the_server_process_has_no_torch() -> None:
    code = (
        "import sys, app, studio.ui.page; print(sorted({'torch', 'diffusers'} & set(sys.modules)))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"
