"""The worker process: loads the model, then ticks the engine as long as there is work.

Started as `python -m studio.engine.worker FD`; `child` reads the socket.
"""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from pipelines.requests import RenderRequest
from pipelines.specs import ModelSpec
from studio.engine.child import Inbox, Tell, run
from studio.engine.messages import Cancel, Message, WorkerConfig
from studio.engine.protocol import EngineStatus

if TYPE_CHECKING:
    from pipelines.model_set import ModelSet


def _open_models(config: WorkerConfig, tell: Tell) -> "ModelSet":
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


def _work(models: "ModelSet", inbox: Inbox, tell: Tell) -> None:
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
    run(_open_models, _work)
