"""The child's side of the socket: load, serve until it closes, say why where that fails.

Commands are read on a thread of their own, so that a cancel is seen before the next step; when the
socket closes, the server is gone, and the child follows.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from pipelines.errors import PipelineError
from studio.engine.messages import LastWords
from studio.engine.protocol import EngineStatus

log = logging.getLogger(__name__)

OOM_SCORE_ADJ = "800"  # of 1000: before nearly everything else

Inbox = SimpleQueue[Any]  # of messages
Tell = Callable[[Any], None]
Served = TypeVar("Served")


def run(
    open_models: Callable[[Any, Tell], Served], work: Callable[[Served, Inbox, Tell], None]
) -> None:
    """Serve the connection whose number is the first argument: its first message is the config.

    `open_models` loads, `work` serves what was loaded until an error ends it.
    """
    connection = Connection(int(sys.argv[1]))
    config = connection.recv()
    _offer_to_the_oom_killer()
    inbox: Inbox = SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    try:
        _serve(open_models, work, config, connection, inbox)
    except (BrokenPipeError, ConnectionResetError):
        _leave()


def _offer_to_the_oom_killer() -> None:
    """When memory runs out, the kernel ends this process and not the server, which goes on."""
    with suppress(OSError):  # not every system has the file
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE_ADJ)


def _read(connection: Connection, inbox: Inbox) -> None:
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        _leave()


def _leave() -> None:
    # No clean-up is wanted: nothing here outlives the process, and a step may be running.
    os._exit(0)


def _serve(
    open_models: Callable[[Any, Tell], Served],
    work: Callable[[Served, Inbox, Tell], None],
    config: object,
    connection: Connection,
    inbox: Inbox,
) -> None:
    tell: Tell = connection.send
    tell(EngineStatus("loading", "importing PyTorch", 0.0))
    try:
        models = open_models(config, tell)
    except Exception as error:  # whatever it is, the page and /health/ready must name it
        known = isinstance(error, PipelineError)
        tell(EngineStatus("failed", str(error) if known else f"{type(error).__name__}: {error}"))
        return
    tell(EngineStatus("ready"))
    try:
        work(models, inbox, tell)
    except ConnectionError:
        raise
    except Exception as error:  # the device is unusable: a new process is the only way on
        log.exception("the worker has to end")
        tell(LastWords(f"{type(error).__name__}: {error}"))
