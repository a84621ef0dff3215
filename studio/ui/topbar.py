"""The bar over the page as HTML: name, model, what the engine is doing, two small buttons."""

from html import escape

from pipelines.specs import ModelSpec
from studio.engine.protocol import EngineStatus
from studio.ui.stage import is_opening, status_words

_MARK = (
    "<svg viewBox='0 0 24 24' aria-hidden='true'>"
    "<path d='M12 2.5a9.5 9.5 0 1 0 9.5 9.5' fill='none' stroke='currentColor' "
    "stroke-width='2.6' stroke-linecap='round'/>"
    "<circle cx='12' cy='12' r='3.6' fill='currentColor'/></svg>"
)
Ways = tuple[tuple[str, str], ...]  # each model and the way to its page
_THEME = (
    "<svg viewBox='0 0 24 24' aria-hidden='true'><circle cx='12' cy='12' r='7.5' fill='none' "
    "stroke='currentColor' stroke-width='2'/><path d='M12 4.5a7.5 7.5 0 0 1 0 15z' "
    "fill='currentColor'/></svg>"
)


def topbar(status: EngineStatus, spec: ModelSpec, models: Ways = ()) -> str:
    """The whole bar; only the state changes from one rendering to the next."""
    kind = "opening" if is_opening(status) else status.state
    return (
        f"<header class='topbar'><h1>{_MARK}<span>Flux Studio</span></h1>"
        f"<p class='engine' data-engine='{kind}' role='status'><i></i>"
        f"{_names(spec, models)}"
        f"<span class='engine-state'>{escape(status_words(status))}</span></p>"
        f"<div class='topbar-buttons'><button type='button' data-do='theme' "
        f"aria-label='Light or dark' title='Light or dark'>{_THEME}</button>"
        f"<button type='button' data-do='help' aria-label='Keyboard shortcuts' "
        f"title='Keyboard shortcuts (?)'>?</button></div></header>"
    )


def _names(spec: ModelSpec, models: Ways) -> str:
    """The model, or all of them with a way to the others' pages."""
    if len(models) < 2:
        return _here(spec)
    return "".join(_here(spec) if name == spec.name else _way(name, to) for name, to in models)


def _here(spec: ModelSpec) -> str:
    size = f"{spec.weights_gb:.0f}" if spec.weights_gb >= 10 else f"{spec.weights_gb:.2g}"
    about = f"{spec.licence}; {size} GB of weights"
    return (
        f"<span class='engine-model' aria-current='page' title='{escape(about, quote=True)}'>"
        f"{escape(spec.name)}</span>"
    )


def _way(name: str, href: str) -> str:
    return f"<a class='engine-model' href='{escape(href, quote=True)}'>{escape(name)}</a>"
