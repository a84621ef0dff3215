"""Runs the application on a socket that is bound first: a taken port costs no model load."""

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import uvicorn
from fastapi import FastAPI
from filelock import FileLock, Timeout

from studio.errors import CannotStart

log = logging.getLogger(__name__)

GRACEFUL_SHUTDOWN_S = 5


class Server(uvicorn.Server):
    """uvicorn, that says when it listens."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then tell."""
        await super().startup(sockets)
        if self.started:
            # A share tunnel takes seconds to open; the page must not wait for it.
            threading.Thread(target=self._on_started, name="started", daemon=True).start()


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket; port 0 takes a free one. Raises `CannotStart`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
    except OSError as error:
        sock.close()
        raise CannotStart(
            f"Cannot listen on {host}:{port} ({error.strerror}). Is a studio running already? "
            "Choose another port with --port."
        ) from error
    return sock


def lock_folder(folder: Path) -> FileLock:
    """One studio a data folder: two would run each other's jobs. Raises `CannotStart`."""
    lock = FileLock(folder / "studio.lock")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=2)  # the kernel frees the lock of a killed studio at once
    except Timeout as error:
        raise CannotStart(
            f"Another studio uses {folder} already. Stop it, or choose another with --data-dir."
        ) from error
    except OSError as error:
        raise CannotStart(
            f"{folder} cannot be used ({error.strerror}). Choose another folder with --data-dir."
        ) from error
    return lock


def run(
    app: FastAPI,
    sock: socket.socket,
    *,
    log_level: str,
    root_path: str,
    on_started: Callable[[], None],
) -> None:
    """Serve until SIGINT or SIGTERM."""
    config = uvicorn.Config(
        app,
        log_level="warning" if log_level == "info" else log_level,
        timeout_graceful_shutdown=GRACEFUL_SHUTDOWN_S,
        root_path=root_path,
        ws="none",
    )
    with suppress(KeyboardInterrupt):  # uvicorn raises it again after an orderly stop
        Server(config, on_started).run(sockets=[sock])


def address(sock: socket.socket) -> str:
    """The URL that a person on this machine types."""
    host, port = sock.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
