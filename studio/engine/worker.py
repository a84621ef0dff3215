"""The worker process: loads the model, then ticks the engine as long as there is work.

Started as `python -m studio.engine.worker FD`. Commands are read on a thread of their own, so that
a cancel is seen before the next step; when the socket closes, the server is gone, and the worker
follows.
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
from typing import TYPE_CHECKING

from pipelines.errors import PipelineError
from pipelines.requests import RenderRequest
from studio.engine.messages import Cancel, LastWords, Message, WorkerConfig
from studio.engine.protocol import EngineEvent, EngineStatus

if TYPE_CHECKING:
    from pipelines.engine import PictureEngine

log = logging.getLogger(__name__)

OOM_SCORE_ADJ = "800"  # of 1000: before nearly everything else


def main() -> None:
    """Serve one connection until it closes."""
    connection = Connection(int(sys.argv[1]))
    config = connection.recv()
    _offer_to_the_oom_killer()
    inbox: SimpleQueue[Message] = SimpleQueue()
    threading.Thread(target=_read, args=(connection, inbox), daemon=True).start()
    try:
        _serve(config, connection, inbox)
    except (BrokenPipeError, ConnectionResetError):
        _leave()


def _offer_to_the_oom_killer() -> None:
    """When memory runs out, the kernel ends this process and not the server, which goes on."""
    with suppress(OSError):  # not every system has the file
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE_ADJ)


def _read(connection: Connection, inbox: "SimpleQueue[Message]") -> None:
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        _leave()


def _leave() -> None:
    # No clean-up is wanted: nothing here outlives the process, and a step may be running.
    os._exit(0)


def _serve(config: WorkerConfig, connection: Connection, inbox: "SimpleQueue[Message]") -> None:
    def tell(event: EngineEvent) -> None:
        connection.send(event)

    tell(EngineStatus("loading", "importing PyTorch", 0.0))
    try:
        import torch

        from pipelines.engine import PictureEngine
        from pipelines.loading import load

        if config.debug_poison:
            from pipelines.devices import poison_fresh_memory

            poison_fresh_memory()

        def on_progress(detail: str, fraction: float) -> None:
            tell(EngineStatus("loading", detail, fraction))

        model = load(
            config.spec,
            device=config.device,
            dtype=None if config.dtype == "auto" else getattr(torch, config.dtype),
            token=config.hf_token,
            memory=config.memory,
            compiles=config.compiles,
            on_progress=on_progress,
        )
        engine = PictureEngine(model, max_tokens=config.max_tokens)
    except Exception as error:  # whatever it is, the page and /health/ready must name it
        known = isinstance(error, PipelineError)
        tell(EngineStatus("failed", str(error) if known else f"{type(error).__name__}: {error}"))
        return
    tell(EngineStatus("ready"))
    try:
        _work(engine, inbox, tell)
    except ConnectionError:
        raise
    except Exception as error:  # the device is unusable: a new process is the only way on
        log.exception("the worker has to end")
        connection.send(LastWords(f"{type(error).__name__}: {error}"))


def _work(
    engine: "PictureEngine", inbox: "SimpleQueue[Message]", tell: Callable[[EngineEvent], None]
) -> None:
    while True:
        if engine.is_idle:
            _obey(engine, inbox.get())
        while not inbox.empty():
            _obey(engine, inbox.get())
        for event in engine.tick():
            tell(event)


def _obey(engine: "PictureEngine", message: Message) -> None:
    match message:
        case RenderRequest():
            engine.submit(message)
        case Cancel(request_id):
            engine.cancel(request_id)


if __name__ == "__main__":
    main()
