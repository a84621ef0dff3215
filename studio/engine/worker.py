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
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from pipelines.errors import PipelineError
from pipelines.requests import RenderRequest
from pipelines.specs import ModelSpec
from studio.engine.messages import Cancel, LastWords, Message, WorkerConfig
from studio.engine.protocol import EngineEvent, EngineStatus

if TYPE_CHECKING:
    from pipelines.model_set import ModelSet

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
        models = _open_models(config, tell)
    except Exception as error:  # whatever it is, the page and /health/ready must name it
        known = isinstance(error, PipelineError)
        tell(EngineStatus("failed", str(error) if known else f"{type(error).__name__}: {error}"))
        return
    tell(EngineStatus("ready"))
    try:
        _work(models, inbox, tell)
    except ConnectionError:
        raise
    except Exception as error:  # the device is unusable: a new process is the only way on
        log.exception("the worker has to end")
        connection.send(LastWords(f"{type(error).__name__}: {error}"))


def _open_models(config: WorkerConfig, tell: Callable[[EngineEvent], None]) -> "ModelSet":
    """The models with the first one loaded."""
    import torch

    from pipelines.devices import find_device, poison_fresh_memory
    from pipelines.engine import PictureEngine
    from pipelines.loading import load, weights_bytes
    from pipelines.model_set import ModelSet
    from pipelines.placement import fits_beside

    if config.debug_poison:
        poison_fresh_memory()
    first = config.specs[0]
    options: dict[str, Any] = {
        "device": config.device,
        "dtype": None if config.dtype == "auto" else getattr(torch, config.dtype),
        "token": config.hf_token,
    }

    def progress_of(spec: ModelSpec) -> Callable[[str, float], None]:
        """For the first model all wait, for a later one those who named it."""
        if not models.loaded:
            return lambda detail, share: tell(EngineStatus("loading", detail, share))
        return lambda detail, share: tell(EngineStatus("ready", f"{spec.name}: {detail}", share))

    def open_engine(spec: ModelSpec) -> PictureEngine:
        model = load(
            spec,
            **options,
            memory=config.memory,
            compiles=config.compiles,
            on_progress=progress_of(spec),
        )
        engine = PictureEngine(model, max_tokens=config.max_tokens)
        if models.loaded:
            tell(EngineStatus("ready"))
        return engine

    @cache  # asked in each tick while drawing models are waited for
    def needed(spec: ModelSpec) -> int:
        return weights_bytes(spec, **options, on_progress=progress_of(spec))

    def fits(spec: ModelSpec) -> bool:
        return fits_beside(needed(spec), find_device(config.device))

    models = ModelSet(config.specs, open_engine, fits)
    models.open(first.name)
    return models


def _work(
    models: "ModelSet", inbox: "SimpleQueue[Message]", tell: Callable[[EngineEvent], None]
) -> None:
    while True:
        if models.is_idle:
            _obey(models, inbox.get())
        while not inbox.empty():
            _obey(models, inbox.get())
        for event in models.tick():
            tell(event)


def _obey(models: "ModelSet", message: Message) -> None:
    match message:
        case RenderRequest():
            models.submit(message)
        case Cancel(request_id):
            models.cancel(request_id)


if __name__ == "__main__":
    main()
