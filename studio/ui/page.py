"""The pages, one for each model: built once and mounted on the application.

Mount them last: Starlette asks its routes in order, and a mount at `/` takes every path that no
route before it has taken.
"""

import json
import os
from pathlib import Path

import gradio as gr
from fastapi import FastAPI
from fastapi.responses import RedirectResponse

from pipelines.specs import ModelSpec
from studio.expansion.expand import Expander
from studio.jobs import Jobs
from studio.ui.editing import Editing
from studio.ui.expansion import expansion_panel
from studio.ui.form import offer_of
from studio.ui.history import PAGE_SIZE, History
from studio.ui.layout import build_layout
from studio.ui.making import Making
from studio.ui.paths import Place, places
from studio.ui.source import UploadLimits
from studio.ui.theme import studio_theme
from studio.ui.wiring import wire

TITLE = "Flux Studio"
MAX_UPLOAD_PIXELS = 64_000_000  # a phone's largest photo; 190 MB once decoded
UPLOADS_SWEPT_EVERY_S = 3600
UPLOADS_KEPT_S = 24 * 3600

_ASSET_NAMES = ("studio", "world", "expand")
_ASSETS = Path(__file__).resolve().parents[2] / "assets"


def build_page(
    jobs: Jobs,
    spec: ModelSpec,
    place: Place,
    *,
    max_upload_bytes: int,
    max_upload_pixels: int = MAX_UPLOAD_PIXELS,
    expander: Expander | None = None,
) -> gr.Blocks:
    """Components and handlers for one model, which speak to `jobs` and to nothing else."""
    offer = offer_of(jobs, spec)
    limits = UploadLimits(max_upload_bytes, max_upload_pixels)
    demo = gr.Blocks(
        title=TITLE,
        analytics_enabled=False,
        fill_width=True,
        delete_cache=(UPLOADS_SWEPT_EVERY_S, UPLOADS_KEPT_S),
    )
    with demo:
        page = build_layout(
            offer,
            world=jobs.worlds.get(spec.name),
            page_size=PAGE_SIZE,
            expansion=None if expander is None else expansion_panel(spec, place),
        )
        wire(
            demo,
            page,
            making=Making(
                jobs,
                page,
                offer,
                limits=limits,
                examples=_examples(),
                place=place,
                expander=expander,
            ),
            editing=Editing(jobs, page, offer, limits=limits),
            history=History(jobs, page, offer, place),
        )
    # Gradio would build a pandas table of its last 10,000 events at the end of each event.
    os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", str(10**9))
    # No limit: watchers of many tabs must never keep a submit or a Stop waiting.
    demo.queue(api_open=False, default_concurrency_limit=None)
    return demo


def mount_pages(
    app: FastAPI,
    jobs: Jobs,
    *,
    max_upload_bytes: int,
    max_upload_pixels: int = MAX_UPLOAD_PIXELS,
    root_path: str | None = None,
    expander: Expander | None = None,
) -> FastAPI:
    """Serve a page for each model, the default's at `/`, after the routes that `app` has."""
    # The one at `/` takes every path that is left, so it is the last.
    for name, place in reversed(places(list(jobs.specs)).items()):
        page = build_page(
            jobs,
            jobs.specs[name],
            place,
            max_upload_bytes=max_upload_bytes,
            max_upload_pixels=max_upload_pixels,
            expander=expander,
        )
        _mount(app, page, place.path, max_upload_bytes, root_path)
    return app


def _mount(
    app: FastAPI, page: gr.Blocks, path: str, max_upload_bytes: int, root_path: str | None
) -> None:
    if path != "/":
        # Its files are found from an address that ends in a slash.
        app.add_route(path, lambda request: RedirectResponse(f"{root_path or ''}{path}/"))
    gr.mount_gradio_app(
        app,
        page,
        path=path,
        root_path=root_path and f"{root_path}{path.rstrip('/')}",
        theme=studio_theme(),
        head=_head(),
        favicon_path=str(_ASSETS / "favicon.png") if path == "/" else None,
        max_file_size=max_upload_bytes,
        show_error=True,
        run_history=False,
        enable_monitoring=False,
        footer_links=[],
        pwa=False,
        ssr_mode=False,
        mcp_server=False,
    )


def _head() -> str:
    """Style and script. Gradio's own `css` would repeat every rule under a prefix of its own, and
    would keep only the prefixed copy of a media query, which then misses the dialogs."""
    styles, scripts = (
        [(_ASSETS / f"{name}.{kind}").read_text(encoding="utf-8") for name in _ASSET_NAMES]
        for kind in ("css", "js")
    )
    return "".join(
        [f"<style>{text}</style>" for text in styles]
        + [f"<script>{text}</script>" for text in scripts]
    )


def _examples() -> tuple[str, ...]:
    return tuple(json.loads((_ASSETS / "prompts.json").read_text(encoding="utf-8")))
