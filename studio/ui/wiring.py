"""Which event calls which handler. Every listener is private: this is no second public API."""

from functools import partial

import gradio as gr

from studio.ui.editing import KEEP_JS, RESTORE_PROMPT_JS, Editing
from studio.ui.history import History
from studio.ui.layout import Page
from studio.ui.making import Making

# Browsers open six connections to a server; a hidden tab must not keep one of them.
AWAY_JS = (
    "(seen, submitted, reported, shown) => [seen, submitted, reported, shown, document.hidden]"
)
# Whether the prompt is still the expansion, so that its Undo is shown.
EXPANDED_JS = "(prompt, expanded) => { window.studioExpanded?.(prompt, expanded); }"
FOLLOW_EVERY_S = 3.0  # how soon a page notices a job of another tab, or a server that came back


def wire(
    demo: gr.Blocks, page: Page, *, making: Making, editing: Editing, history: History
) -> None:
    """Connect the page's components. Called inside the `gr.Blocks` of the page."""
    _wire_making(demo, page, making)
    _wire_form(demo, page, editing)
    _wire_source(page, editing)
    _wire_history(page, history)


# Gradio's browser client can lose the messages of an event when two are in the queue at once: both
# were ready before it knew of the second (1 page load in 40 on a busy machine). So only `follow`
# takes the queue, one event at a time; all others are plain requests, and faster for it.
_on = partial(gr.on, api_visibility="private", show_progress="hidden", queue=False)


def _wire_making(demo: gr.Blocks, page: Page, making: Making) -> None:
    seed = page.seed
    _on(
        page.generate.click,
        making.submit,
        inputs=[*page.form(), page.source.upload, page.source.present],
        outputs=[page.problem, page.submitted, page.stop, seed.note, seed.last, seed.reuse],
    )
    _on(page.stop.click, making.stop, inputs=page.seen, outputs=[page.stop, page.stage])
    timer = gr.Timer(FOLLOW_EVERY_S)
    _on(
        [demo.load, page.submitted.change, timer.tick],
        making.follow,
        inputs=[page.seen, page.submitted, page.reported, page.shown, page.away],
        js=AWAY_JS,
        outputs=[
            page.reported,
            page.topbar,
            page.stage,
            page.stop,
            page.seen,
            page.strip,
            seed.note,
            seed.last,
            seed.reuse,
            *([page.expand] if page.expand is not None else []),
        ],
        # One follower a page; a tick that comes meanwhile lets the next begin as soon as it ends.
        # Over all pages there may be any number, since each only waits: with Gradio's default of
        # one they would block each other.
        trigger_mode="always_last",
        concurrency_limit=None,
        queue=True,
    )


def _wire_form(demo: gr.Blocks, page: Page, editing: Editing) -> None:
    form, seed = page.form(), page.seed
    _on(demo.load, None, inputs=page.stored, outputs=page.prompt, js=RESTORE_PROMPT_JS)
    _on(demo.load, editing.restore, inputs=page.stored, outputs=form[1:])
    _on(
        # All but the prompt: no words change the size.
        [
            demo.load,
            page.source.upload.change,
            page.source.present.change,
            *(control.change for control in form[1:] if control is not page.expanded),
        ],
        editing.plan,
        inputs=[*form, page.source.upload, page.source.present],
        outputs=[
            page.plan,
            page.source.strength_note,
            page.shape.custom,
            page.shape.area,
            seed.seed,
            page.output.quality,
            page.guidance.true_cfg_scale,
            page.cache.note,
        ],
        trigger_mode="always_last",
    )
    # Values that settings brought along are gone once a person chooses a cache.
    _on(page.cache.name.input, None, outputs=page.cache.rule, js="() => ''")
    _on(page.prompt.input, None, outputs=page.problem, js="() => ''")
    _on([control.change for control in form], None, inputs=form, outputs=page.stored, js=KEEP_JS)
    if page.expand is not None:
        both = [page.prompt, page.expanded]
        _on([demo.load, *(text.change for text in both)], None, inputs=both, js=EXPANDED_JS)
    _on(seed.reuse.click, editing.reuse_seed, inputs=seed.last, outputs=[seed.mode, seed.seed])


def _wire_source(page: Page, editing: Editing) -> None:
    source, shape = page.source, page.shape.shape
    card = [page.problem, source.card, source.filled, source.empty, source.upload, source.present]
    _on(
        source.upload.upload,
        editing.take_source,
        inputs=source.upload,
        outputs=[*card, source.use_settings, shape],
    )
    _on(source.remove.click, editing.drop_source, inputs=shape, outputs=[*card, shape])
    _on(
        source.use_settings.click,
        editing.use_source_settings,
        inputs=source.upload,
        outputs=[*card, *page.form()],
    )


def _wire_history(page: Page, history: History) -> None:
    strip = [page.shown, page.strip]
    _on(page.bridge.submit, history.more, inputs=page.shown, outputs=strip)
    _on(page.bridge.delete, history.delete, inputs=page.shown, outputs=[page.problem, *strip])
    _on(page.bridge.select, history.use, outputs=[page.problem, *page.form()])
