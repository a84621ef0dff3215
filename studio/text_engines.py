"""The text engine that the settings ask for."""

from pipelines.text.embedded import NAME as EMBEDDED_TEXT
from studio.engine.messages import TextWorkerConfig
from studio.engine.text_http.engine import HttpTextEngine
from studio.engine.text_local import LocalTextEngine
from studio.engine.text_protocol import TextEngine
from studio.settings import Settings


def open_text_engine(settings: Settings) -> TextEngine | None:
    """Not started; None where the studio writes no text."""
    if settings.text_engine == "off":
        return None
    if settings.text_engine == "http":
        assert settings.text_url is not None
        return HttpTextEngine(
            settings.text_url,
            api_key=settings.text_key,
            model=settings.text_model,
            dialect=settings.text_dialect,
        )
    return LocalTextEngine(
        TextWorkerConfig(
            model=settings.text_model or EMBEDDED_TEXT,
            folder=settings.data_dir / "text",
            device=settings.device,
            hf_token=settings.hf_token,
            kv_format=settings.kv_cache_format,
            priority=settings.text_batch_priority,
            speculation=settings.speculation,
            draft_model=settings.draft_model,
            rule=settings.rejection_sampling_strategy,
        )
    )
