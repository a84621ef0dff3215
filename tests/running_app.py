"""`python app.py` as a process, for tests that need the real thing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[1]
DEADLINE_S = 120.0


@dataclass
class Studio:
    """One process of `app.py`."""

    process: "subprocess.Popen[str]"
    url: str

    def get(self, path: str) -> dict[str, Any]:
        return dict(httpx.get(self.url + path, timeout=30, trust_env=False).json())

    def post(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = httpx.post(self.url + path, json=body, timeout=DEADLINE_S, trust_env=False)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def status_of(self, response_id: str) -> str:
        return str(self.get(f"/v1/responses/{response_id}")["status"])

    def wait_for(self, response_id: str, status: str) -> None:
        wait_until(lambda: self.status_of(response_id) == status, f"{response_id} is {status}")

    def wait_for_step(self, response_id: str, step: int) -> None:
        path = f"/v1/responses/{response_id}"
        wait_until(lambda: self.get(path)["progress"]["step"] >= step, f"step {step}")

    def worker(self, module: str = "studio.engine.worker") -> int:
        found = subprocess.run(
            ["pgrep", "-P", str(self.process.pid), "-f", module],
            capture_output=True,
            text=True,
            check=True,
        )
        return int(found.stdout)

    def end(self, with_signal: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(with_signal)
        self.process.wait(timeout=30)
        if self.process.stdout:
            self.process.stdout.close()


def start_app(data_dir: Path, *flags: str) -> Studio:
    """Start it on a free port; returns once it has told its address."""
    command = [sys.executable, "app.py", "--port", "0", "--data-dir", str(data_dir), *flags]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=os.environ | {"HF_TOKEN": ""}
    )
    assert process.stdout
    line = next(line for line in process.stdout if line.startswith("Page"))
    return Studio(process, line.split()[1].rstrip("/"))


def wait_until(is_true: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_true():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.05)
