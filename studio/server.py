"""The server process: one application with API and page, access control before everything."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI

from pipelines.specs import ModelSpec
from studio import __version__
from studio.api.access import AccessMiddleware, AccessPolicy
from studio.api.expansions import expansions_router
from studio.api.failures import add_failure_handlers
from studio.api.head import HeadMiddleware
from studio.api.health import health_router
from studio.api.images import images_router
from studio.api.models import models_router
from studio.api.responses import responses_router
from studio.api.unknown import unknown_router
from studio.engine.protocol import Engine
from studio.expansion.expand import Expander
from studio.jobs import Jobs
from studio.library import Library
from studio.settings import Settings
from studio.texts import Texts
from studio.world import read_world


def make_jobs(settings: Settings, specs: Sequence[ModelSpec], engine: Engine) -> Jobs:
    """The jobs of one studio over `engine`, not started."""
    return Jobs(
        specs,
        Library(settings.data_dir, settings.database_url),
        engine,
        queue_capacity=settings.queue_size,
        max_images=settings.max_images,
        cache=settings.cache_setting,
        worlds={spec.name: world for spec in specs if (world := read_world(spec.source))},
    )


def make_policy(settings: Settings) -> AccessPolicy:
    """Who may come in."""
    return AccessPolicy(
        api_keys=settings.api_key,
        open=settings.open,
        allowed_hosts=(settings.host, *settings.allowed_host),
        max_body_bytes=settings.max_body_bytes,
    )


def create_app(
    settings: Settings,
    jobs: Jobs,
    policy: AccessPolicy,
    texts: Texts | None = None,
) -> FastAPI:
    """The application; `jobs` is started already, `texts` starts with the server's loop.

    Both are closed when the server stops. Without `texts` the studio writes none, and without their
    engine it expands no prompts.
    """
    texts = texts or Texts()
    expander = Expander(texts) if texts.status is not None else None
    from studio.ui.page import (
        mount_pages,
    )  # Gradio takes seconds to import; the engine starts first

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        texts.start()
        yield
        texts.close()
        jobs.close()

    app = FastAPI(title="Flux Studio", version=__version__, lifespan=lifespan)
    add_failure_handlers(app)
    app.include_router(health_router(jobs, texts))
    app.include_router(models_router(jobs, texts))
    app.include_router(responses_router(jobs, texts, settings, expander))
    app.include_router(expansions_router(jobs, expander))
    app.include_router(images_router(jobs))
    app.include_router(unknown_router())
    app = mount_pages(
        app,
        jobs,
        max_upload_bytes=settings.max_upload_bytes,
        max_upload_pixels=settings.max_source_px,
        root_path=settings.root_path or None,
        expander=expander,
    )
    app.add_middleware(HeadMiddleware)
    app.add_middleware(AccessMiddleware, policy=policy)
    return app
