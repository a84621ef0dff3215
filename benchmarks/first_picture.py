"""What a newcomer waits for: the page, the first preview, the picture.

`python -m benchmarks.first_picture` starts the studio as `make run` does, with a warm environment,
and then submits single pictures of the embedded model at its native size and 20 steps.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from benchmarks.report import Claim, json_line
from pipelines.specs import EMBEDDED, find_spec
from studio.engine.local import LocalEngine
from studio.engine.messages import WorkerConfig
from studio.jobs import Jobs
from studio.library import Library
from studio.request import Draft

STARTS = 3
PICTURES = 7
STEPS = 20
PROMPT = "a red apple on a blue background"
ROOT = Path(__file__).resolve().parents[1]


def time_start(folder: str) -> tuple[float, float]:
    """Seconds from the command to an answered page, and to a loaded model."""
    began = time.monotonic()
    command = [sys.executable, "app.py", "--port", "0", "--data-dir", folder]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    url = next(line for line in process.stdout if line.startswith("Page")).split()[1]
    httpx.get(url, trust_env=False).raise_for_status()
    page_s = time.monotonic() - began
    while httpx.get(f"{url}health/ready", trust_env=False).status_code != 200:
        time.sleep(0.05)
    ready_s = time.monotonic() - began
    process.terminate()
    process.wait()
    return page_s, ready_s


async def time_picture(jobs: Jobs, seed: int) -> tuple[float, float]:
    """Seconds from the submit to the first preview and to the saved picture."""
    draft = Draft(PROMPT, steps=STEPS, seed=seed)
    began = time.monotonic()
    job = jobs.submit(draft, owner="benchmark", origin="page")
    preview_s = None
    async for view in jobs.watch(job.id, "benchmark"):
        if view.preview and preview_s is None:
            preview_s = time.monotonic() - began
        assert view.status != "failed", view.error_message
    assert preview_s is not None
    return preview_s, time.monotonic() - began


def time_pictures(folder: str) -> list[tuple[float, float]]:
    """The first picture warms the worker up; it counts, since a newcomer waits for it too."""
    spec = find_spec(EMBEDDED)
    jobs = Jobs([spec], Library(Path(folder)), LocalEngine(WorkerConfig((spec,))))
    jobs.start()
    while jobs.engine_status.state != "ready":
        time.sleep(0.05)
    times = [asyncio.run(time_picture(jobs, seed)) for seed in range(PICTURES)]
    jobs.close()
    return times


def main() -> None:
    """Print medians with extremes, then the JSON line."""
    with tempfile.TemporaryDirectory() as folder:
        starts = [time_start(folder) for _ in range(STARTS)]
    with tempfile.TemporaryDirectory() as folder:
        pictures = time_pictures(folder)
    columns = {
        "start to open page": ([page for page, _ in starts], 8.0),
        "start to loaded model": ([ready for _, ready in starts], None),
        "submit to first preview": ([preview for preview, _ in pictures], 1.5),
        f"submit to saved picture, {STEPS} steps": ([done for _, done in pictures], 5.0),
    }
    rows = []
    for name, (seconds, _) in columns.items():
        low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
        print(f"{name:40} {middle:6.2f} s  ({low:.2f} to {high:.2f}, n = {len(seconds)})")
        rows.append({"name": name, "median_s": middle, "min_s": low, "max_s": high})
    claims = [
        Claim(name, max(seconds), bar)
        for name, (seconds, bar) in columns.items()
        if bar is not None
    ]
    print(json_line("first_picture", claims, rows))


if __name__ == "__main__":
    main()
