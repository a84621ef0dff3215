"""The text worker's process: loads the language model, then steps its engine while there is work.

Started as `python -m studio.engine.text_worker FD`; `child` reads the socket. Of the cores one is
left to whoever makes pictures meanwhile.
"""

import os
from typing import TYPE_CHECKING

from pipelines.text.requests import TextRequest
from studio.engine.child import Inbox, Tell, run
from studio.engine.messages import Cancel, Message, TextWorkerConfig
from studio.engine.protocol import EngineStatus
from studio.engine.text_protocol import TextModel

if TYPE_CHECKING:
    from pipelines.text.engine import TextEngine
    from pipelines.text.language_model import LanguageModel


def _open_engine(config: TextWorkerConfig, tell: Tell) -> "TextEngine":
    import torch

    from pipelines.text.drafting import open_drafter
    from pipelines.text.engine import EngineOptions, TextEngine
    from pipelines.text.loading import load_text_model

    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - 1))

    def progress(detail: str, share: float | None = None) -> None:
        tell(EngineStatus("loading", detail, share))

    def load(source: str) -> "LanguageModel":
        return load_text_model(
            source,
            folder=config.folder,
            device=config.device,
            dtype=config.dtype,
            token=config.hf_token,
            progress=progress,
        )

    model = load(config.model)
    options = EngineOptions(
        priority=config.priority,
        rule=config.rule,
        kv_dtype=None if config.kv_format == "auto" else getattr(torch, config.kv_format),
    )
    tell(
        TextModel(
            model.name,
            context_tokens=model.context_tokens,
            chats=model.tokens.chats,
            adapters=model.adapters,
        )
    )
    engine = TextEngine(model, tell, options)
    draft_model = config.draft_model
    engine.drafter = open_drafter(
        config.speculation,
        model,
        engine.cache,
        config.rule,
        None if draft_model is None else lambda: load(draft_model),
    )
    progress("Measuring what a token costs")
    engine.warm_up()
    return engine


def _work(engine: "TextEngine", inbox: Inbox, tell: Tell) -> None:
    while True:
        if not engine.is_busy:
            _obey(engine, inbox.get())
        while not inbox.empty():
            _obey(engine, inbox.get())
        engine.step()


def _obey(engine: "TextEngine", message: Message) -> None:
    match message:
        case TextRequest():
            engine.submit(message)
        case Cancel(request_id):
            engine.cancel(request_id)


if __name__ == "__main__":
    run(_open_engine, _work)
