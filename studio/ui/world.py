"""What the model draws, as a tray over the prompt: groups of words, one shown at a time, a search.

`assets/world.js` opens and searches it and writes what is clicked.
"""

import json
from html import escape

from studio.ui.words import Group, Word, groups_of
from studio.world import World


def world_tray(world: World) -> str:
    """The button and the closed tray."""
    groups = groups_of(world)
    tabs = "".join(_tab(group, is_first=group is groups[0]) for group in groups)
    lists = "".join(_list(group, is_first=group is groups[0]) for group in groups)
    styles = escape(json.dumps(world.styles), quote=True)
    return (
        "<button type='button' class='world-toggle' aria-expanded='false' "
        "aria-controls='world-tray'>What this model draws</button>"
        "<section id='world-tray' aria-label='What this model draws' "
        f"data-styles='{styles}' hidden><div class='world-head'>"
        f"<div class='world-tabs' role='radiogroup' aria-label='Show'>{tabs}</div>"
        "<input type='search' placeholder='Find a word' aria-label='Find a word' "
        "autocomplete='off' spellcheck='false'></div>"
        f"<div class='world-lists'>{lists}"
        "<p class='note world-none' hidden>This model does not know that word.</p></div>"
        "<p class='world-said' role='status'></p></section>"
    )


def _tab(group: Group, *, is_first: bool) -> str:
    checked = " checked" if is_first else ""
    return (
        f"<label><input type='radio' name='world-group' value='{group.key}'{checked}>"
        f"<span>{escape(group.title)}</span></label>"
    )


def _list(group: Group, *, is_first: bool) -> str:
    hidden = "" if is_first else " hidden"
    note = f"<p class='note'>{escape(group.note)}</p>" if group.note else ""
    chips = "".join(map(_chip, group.words))
    return (
        f"<div class='world-list' data-group='{group.key}' role='group' "
        f"aria-label='{escape(group.title, quote=True)}'{hidden}>{note}{chips}</div>"
    )


def _chip(word: Word) -> str:
    data = {"kind": word.kind, "text": word.text, "forms": json.dumps(word.forms)}
    if word.kind == "thing":
        data |= {"plural": word.plural, "article": "a" if word.has_article else ""}
    attributes = "".join(f" data-{k}='{escape(v, quote=True)}'" for k, v in data.items() if v)
    title = f" title='{escape(word.text, quote=True)}'" if word.text != word.label else ""
    mark = f"<i style='background:{escape(word.hex, quote=True)}'></i>" if word.hex else ""
    kind = "word paintable" if word.is_paintable else "word"
    return (
        f"<button type='button' class='{kind}'{attributes}{title}>"
        f"{mark}{escape(word.label)}</button>"
    )
