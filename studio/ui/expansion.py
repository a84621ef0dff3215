"""The Expand button and its panel as HTML. `assets/expand.js` opens, fills and closes the panel."""

from html import escape

from pipelines.specs import ModelSpec
from studio.engine.protocol import EngineStatus
from studio.ui.paths import Place
from studio.ui.stage import is_opening, percent

_ICON = (
    "<svg viewBox='0 0 24 24' aria-hidden='true'><path d='M4 6.5h7M4 12h16M4 17.5h12M18 3v7"
    "M14.5 6.5h7' fill='none' stroke='currentColor' stroke-width='2' stroke-linecap='round'/></svg>"
)
COMING = "The text model is still on its way. The button works as soon as it is here."
MEANING = "Write the prompt out in more words; you see it before it is used"


def expand_button(status: EngineStatus) -> str:
    """The button; where the text model is not ready it says why, and what a click explains."""
    if status.state == "ready":
        return (
            "<button type='button' class='expand' data-expand='start' data-state='ready' "
            f"title='{MEANING}'>{_ICON}<span class='expand-label'>Expand</span></button>"
        )
    if is_opening(status):
        state, note, why = "opening", _coming(status), COMING
    else:
        cause = status.detail or "The cause is in the server's log."
        note, why = "<small>no text model</small>", f"The text model cannot be used: {cause}"
        state = "failed"
    return (
        f"<button type='button' class='expand' data-expand='explain' data-state='{state}' "
        f"aria-disabled='true' data-why='{escape(why, quote=True)}'>{_ICON}"
        f"<span class='expand-label'>Expand{note}</span></button>"
    )


def _coming(status: EngineStatus) -> str:
    return f"<small><span>text model is </span>coming…{escape(percent(status))}</small>"


def expansion_panel(spec: ModelSpec, place: Place) -> str:
    """Closed and empty. Both prompts are side by side; what was added is marked."""
    model, base = (escape(text, quote=True) for text in (spec.name, place.base))
    buttons = "".join(
        f"<button type='button' data-expand='{name}'{kind}>{label}</button>"
        for name, label, kind in (
            ("accept", "Accept", " class='main'"),
            ("again", "Try again", ""),
            ("dismiss", "Dismiss", ""),
            ("cancel", "Cancel", ""),
        )
    )
    return (
        f"<section id='expansion-panel' aria-label='Expanded prompt' data-model='{model}' "
        f"data-base='{base}' hidden><div class='expansion-pair'>"
        "<div class='expansion-old'><h2>Your words</h2><p></p></div>"
        "<div class='expansion-new'><h2><span>Expanded</span><i aria-hidden='true'></i></h2>"
        "<p></p></div></div>"
        "<p class='expansion-problem problem' hidden></p>"
        f"<div class='expansion-buttons'>{buttons}</div></section>"
        "<p id='expanded-from' hidden><span>Expanded from <q></q><i hidden>, then edited</i></span>"
        "<button type='button' data-expand='undo'>Undo</button></p>"
        "<p class='expansion-said' role='status' aria-live='polite'></p>"
    )
