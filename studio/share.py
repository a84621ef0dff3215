"""The public link: Gradio's share tunnel on the port that the studio already serves.

Gradio fetches a tunnel program and a server address from the internet, and then waits for the
program's first words without a limit; this module gives that wait an end and a plain sentence.
The tunnel's visitors arrive from 127.0.0.1 with `Host: <name>.gradio.live`: the caller admits that
host in the `AccessPolicy`, and opens no tunnel without an API key unless told to (`--open`).
"""

import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

# (local host, local port, token, share server or None, its certificate or None) -> address
Setup = Callable[[str, int, str, str | None, str | None], str]

OPEN_TIMEOUT_S: Final = 60.0


class ShareFailed(Exception):
    """No public link: why, and what to do instead. The studio goes on serving locally."""


def open_tunnel(
    port: int,
    *,
    host: str = "127.0.0.1",
    timeout_s: float = OPEN_TIMEOUT_S,
    setup: Setup | None = None,
) -> str:
    """The `https://…` address under which the studio on host:port can be reached from anywhere.

    Blocks for at most `timeout_s`. Raises ShareFailed. Tests put their own `setup` in.
    """
    attempt = _Attempt(setup or _gradio_setup, host, port)
    thread = threading.Thread(target=attempt.run, name="share-tunnel", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        attempt.abandon()
        raise _failed(f"the tunnel did not open within {timeout_s:g} s", port)
    name = urlsplit(attempt.address or "").hostname
    if name is None:
        raise _failed(attempt.cause, port) from attempt.error
    return f"https://{name}"  # frpc prints http, but the share server answers TLS


def close_tunnel(port: int) -> None:
    """End the tunnels to this port. Does nothing when there are none."""
    from gradio.tunneling import CURRENT_TUNNELS

    for tunnel in [tunnel for tunnel in CURRENT_TUNNELS if tunnel.local_port == port]:
        CURRENT_TUNNELS.remove(tunnel)
        tunnel.kill()  # type: ignore[no-untyped-call]


class _Attempt:
    """One try in a thread of its own, since Gradio's wait for the tunnel cannot be given an end."""

    def __init__(self, setup: Setup, host: str, port: int) -> None:
        self._setup = setup
        self._host = host
        self._port = port
        self._lock = threading.Lock()
        self._is_abandoned = False
        self.address: str | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.address = self._setup(
                self._host, self._port, secrets.token_urlsafe(32), None, None
            )
        except (RuntimeError, ValueError, OSError, LookupError, httpx.HTTPError) as error:
            self.error = error
        with self._lock:
            if self._is_abandoned:  # came up after all, but nobody waits for it
                close_tunnel(self._port)

    def abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
        close_tunnel(self._port)

    @property
    def cause(self) -> str:
        if self.error is None:
            return "the tunnel program gave no address"
        words = _first_line(self.error)
        root = self.error.__cause__
        return f"{words} ({_first_line(root)})" if root and str(root) else words


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:") if lines else type(error).__name__


def _gradio_setup(
    host: str, port: int, token: str, server: str | None, certificate: str | None
) -> str:
    # Imported here: Gradio takes a second to import, and most starts share nothing.
    from gradio.exceptions import ChecksumMismatchError
    from gradio.networking import setup_tunnel
    from gradio.tunneling import BINARY_PATH

    try:
        return setup_tunnel(host, port, token, server, certificate)
    except ChecksumMismatchError as error:
        # Gradio leaves the file behind, and would run it unchecked at the next start.
        Path(BINARY_PATH).unlink(missing_ok=True)
        raise RuntimeError("the downloaded tunnel program is not the one it should be") from error


def _failed(cause: str, port: int) -> ShareFailed:
    return ShareFailed(
        f"No public link: {cause}. The studio goes on serving on this machine. To reach it from "
        f"another one, run there: ssh -N -L {port}:127.0.0.1:{port} USER@THIS-MACHINE and open "
        f"http://127.0.0.1:{port}"
    )
