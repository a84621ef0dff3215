"""The engine as a child process on this machine, started again when it ends.

The server process never imports torch: a crash, an exhausted memory or a kill takes the child
alone. Both ends share one socket. The child ends by itself when the socket closes, which the
kernel does even for a server that was killed.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pipelines.requests import RenderRequest
from pipelines.text.requests import TextRequest
from studio.engine.messages import Cancel, LastWords, Message, TextWorkerConfig, WorkerConfig
from studio.engine.protocol import EngineStatus, WorkerLost

log = logging.getLogger(__name__)

MAX_FAILED_STARTS = 3  # deaths in a row before the model was ready
RESTART_DELAY_S = 0.5
CLOSE_TIMEOUT_S = 5.0
ROOT = Path(__file__).resolve().parents[2]


class LocalEngine:
    """Supervises one worker process, for pictures or for text.

    `on_event` is called on the supervisor's thread, with what the worker tells.
    """

    def __init__(
        self,
        config: WorkerConfig | TextWorkerConfig,
        *,
        command: tuple[str, ...] = ("-m", "studio.engine.worker"),
    ) -> None:
        self._config = config
        self._command = command
        self._status = EngineStatus("starting", "starting the worker")
        self._on_event: Callable[[Any], None] = lambda event: None
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._sending = threading.Lock()
        self._closing = threading.Event()
        self._failed_starts = 0
        self._has_served = False
        self._last_words: str | None = None
        self._thread = threading.Thread(target=self._supervise, name="engine", daemon=True)

    @property
    def status(self) -> EngineStatus:
        """The latest status; never blocks."""
        return self._status

    @property
    def pid(self) -> int | None:
        """The worker's process, for tests and for people who look at their machine."""
        return self._process.pid if self._process else None

    def start(self, on_event: Callable[[Any], None]) -> None:
        """Start the worker; returns at once."""
        self._on_event = on_event
        self._spawn()
        self._thread.start()

    def submit(self, request: RenderRequest | TextRequest, *, restarts: int) -> None:
        """Hand in one request for the worker after `restarts`; a later one must not see it."""
        with self._sending:
            if restarts == self._status.restarts:  # else `WorkerLost` is on its way
                self._send_now(request)

    def cancel(self, request_id: str) -> None:
        """Stop a request before its next step."""
        self._send(Cancel(request_id))

    def close(self) -> None:
        """End the worker and wait for it."""
        self._closing.set()
        self._set_status(EngineStatus("closed"), tell=False)
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(CLOSE_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if self._thread.is_alive():
            self._thread.join(CLOSE_TIMEOUT_S)

    def _send(self, message: Message) -> None:
        with self._sending:
            self._send_now(message)

    def _send_now(self, message: Message) -> None:
        try:
            if self._connection is not None:
                self._connection.send(message)
        except OSError:
            log.warning("the worker is gone; its jobs go back to the queue")

    def _supervise(self) -> None:
        """One worker after the other, until one is closed on purpose or given up."""
        while True:
            failure = self._listen()
            if self._closing.is_set():
                return
            cause = failure or self._cause_of_end()
            if self._is_hopeless(failure):
                detail = f"{cause} Start the studio again once that is mended."
                self._set_status(replace(self._status, state="failed", detail=detail))
                return
            log.error("%s The worker is started again.", cause)
            self._last_words = None
            restarts = self._status.restarts + 1
            self._set_status(EngineStatus("restarting", cause, restarts=restarts))
            self._on_event(WorkerLost(cause))
            while not self._closing.wait(RESTART_DELAY_S) and not self._has_spawned():
                if self._status.state == "failed":
                    return

    def _is_hopeless(self, failure: str | None) -> bool:
        """A model that never loaded will not load now; one that did may need a second try."""
        self._failed_starts += self._status.state != "ready"
        is_broken = failure is not None and not self._has_served
        return is_broken or self._failed_starts >= MAX_FAILED_STARTS

    def _has_spawned(self) -> bool:
        try:
            self._spawn()
        except OSError as error:  # no memory or no process to be had just now
            self._failed_starts += 1
            log.error("the worker could not be started: %s", error)
            if self._failed_starts >= MAX_FAILED_STARTS:
                detail = f"The worker could not be started: {error}. Start the studio again."
                self._set_status(replace(self._status, state="failed", detail=detail))
            return False
        return True

    def _spawn(self) -> None:
        ours, theirs = socket.socketpair()
        environment = os.environ | {
            # Spinning OpenMP barriers stall every other process on a small machine.
            "OMP_WAIT_POLICY": "PASSIVE",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        }
        with ours, theirs:
            self._process = subprocess.Popen(
                [sys.executable, *self._command, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # Ctrl-C in a terminal is for the server, which ends us
            )
            with self._sending:
                self._connection = Connection(ours.detach())
                self._send_now(self._config)

    def _listen(self) -> str | None:
        """Hand on what the worker tells until it ends; why its model did not load, or None."""
        connection = self._connection
        assert connection is not None
        failure = None
        try:
            while True:
                event = connection.recv()
                if isinstance(event, LastWords):
                    self._last_words = event.cause
                elif isinstance(event, EngineStatus) and event.state == "failed":
                    failure = event.detail
                elif isinstance(event, EngineStatus):
                    self._set_status(replace(event, restarts=self._status.restarts))
                else:
                    self._on_event(event)
        except (EOFError, OSError):
            with self._sending:
                self._connection = None
            connection.close()
        return failure

    def _set_status(self, status: EngineStatus, *, tell: bool = True) -> None:
        if self._status.state == "closed":
            return
        if status.state == "ready":
            self._failed_starts = 0
            self._has_served = True
        self._status = status
        if tell:
            self._on_event(status)

    def _cause_of_end(self) -> str:
        assert self._process is not None
        code = self._wait_for_end(self._process)
        if self._last_words is not None:
            return f"The worker had to end: {self._last_words}."
        if code >= 0:
            return f"The worker ended with exit code {code}."
        name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
        hint = " The machine may have run out of memory." if -code == signal.SIGKILL else ""
        return f"The worker was ended by {name}.{hint}"

    def _wait_for_end(self, process: "subprocess.Popen[bytes]") -> int:
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        while time.monotonic() < deadline:
            try:
                return process.wait(0.5)
            except subprocess.TimeoutExpired:
                continue
        process.kill()  # it closed its socket and lives on: it can do nothing useful any more
        return process.wait()
