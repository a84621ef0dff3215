"""Handlers of the form: what it would make, what it keeps, and the source picture."""

from dataclasses import replace
from typing import Any

import gradio as gr
from gradio.blocks import Block

from studio.errors import StudioError
from studio.jobs import Jobs
from studio.request import PictureRequest
from studio.roles import Size, roles_of, starts_from_uploads
from studio.ui.controls import (
    DOUBLE_TIME,
    GUIDANCE_IS_CFG,
    LOSSLESS,
    NO_NEGATIVE,
    WHEN_RANDOM,
    add_picture,
    other_picture,
)
from studio.ui.form import (
    FIELDS,
    FIXED,
    RANDOM,
    FormValues,
    Offer,
    asked_size,
    checked,
    defaults,
    draft_of,
    from_settings,
    has_own_cfg,
    received,
)
from studio.ui.history import form_updates
from studio.ui.layout import Page
from studio.ui.notes import plan_line, plan_problem, problem, strength_note, told
from studio.ui.sizes import CUSTOM, MATCH, areas
from studio.ui.source import Upload, UploadLimits, read_uploads, source_cards, upload_sizes
from studio.ui.step_cache import choice_of
from studio.ui.step_cache import note as cache_note

Updates = dict[Block, Any]

# In the browser and at once: a person may type before the server has answered.
RESTORE_PROMPT_JS = "(stored) => stored?.prompt ?? ''"
# Runs in the browser: the form goes into its storage without a way over the server.
KEEP_JS = f"(...values) => Object.fromEntries({list(FIELDS)}.map((name, i) => [name, values[i]]))"


class Editing:
    """Plan, restore and source, for the components of one page."""

    def __init__(self, jobs: Jobs, page: Page, offer: Offer, *, limits: UploadLimits) -> None:
        self._jobs = jobs
        self._page = page
        self._limits = limits
        self._offer = offer
        self._has_areas = len(areas(offer.spec)) > 1

    def restore(self, stored: object) -> Updates:
        """The form as this browser left it, all but the prompt (`RESTORE_PROMPT_JS`)."""
        kept = stored if isinstance(stored, dict) else {}
        values = checked(kept, self._offer)
        updates = form_updates(self._page, values)
        del updates[self._page.prompt]
        return updates

    def plan(self, *inputs: Any) -> Updates:
        """What Generate would make, and which controls act; `inputs` as for submit."""
        *raw, upload, is_present = inputs
        values = received(raw, self._offer)
        line, request = self._plan(values, upload if is_present else None)
        return {self._page.plan: line} | self._acting(values, request)

    def take_source(self, upload: Upload) -> Updates:
        """Show an upload as the model will see it, or say why it cannot be used."""
        page, source = self._page, self._page.source
        if not upload:
            return self._without_source()
        try:
            pictures = read_uploads(upload, self._limits)
            roles_of(len(pictures), self._offer.spec, None)
        except StudioError as error:
            return self._without_source() | {page.problem: problem(error)}
        has_settings = len(pictures) == 1 and pictures[0].settings is not None
        return {
            page.problem: "",
            source.present: True,
            source.card: source_cards(pictures),
            source.filled: gr.update(visible=True),
            source.empty: gr.update(visible=False),
            source.upload: gr.update(label=other_picture(self._offer.spec)),
            source.use_settings: gr.update(visible=has_settings),
            page.shape.shape: MATCH,
        }

    def drop_source(self, shape: str) -> Updates:
        """Back to a picture from the prompt alone; there is nothing to match any more."""
        updates = self._without_source() | {self._page.problem: ""}
        base = defaults(self._offer).shape
        return updates | ({self._page.shape.shape: base} if shape == MATCH else {})

    def use_source_settings(self, upload: Upload) -> Updates:
        """Fill the form with the settings inside the upload, and let the upload go."""
        page = self._page
        try:
            pictures = read_uploads(upload, self._limits)
        except StudioError as error:
            return self._without_source() | {page.problem: problem(error)}
        if not pictures or pictures[0].settings is None:
            return self._without_source()
        values = from_settings(pictures[0].settings, self._offer)
        said = told("The settings from that file are in the form now.")
        return self._without_source() | form_updates(page, values) | {page.problem: said}

    def reuse_seed(self, last: str) -> Updates:
        """Keep the seed of the latest request for the next ones."""
        return {self._page.seed.mode: FIXED, self._page.seed.seed: last}

    def _without_source(self) -> Updates:
        source = self._page.source
        return {
            source.present: False,
            source.upload: gr.update(value=None, label=add_picture(self._offer.spec)),
            source.card: "",
            source.filled: gr.update(visible=False),
            source.empty: gr.update(visible=True),
        }

    def _plan(self, values: FormValues, upload: Upload) -> tuple[str, PictureRequest | None]:
        spec = self._offer.spec
        try:
            sizes = self._source_sizes(upload)
            prompt = values.prompt.strip() or "…"  # the size is planned before there is a prompt
            # A seed changes nothing here; a wrong one is said when it is handed in.
            asked = replace(values, prompt=prompt, seed_mode=RANDOM)
            draft = draft_of(asked, spec, sizes)
            request, _ = self._jobs.plan(draft)
        except StudioError as error:
            return plan_problem(error), None
        first = sizes[0] if sizes else None
        return plan_line(request, asked_size(values), first, spec.size_multiple), request

    def _source_sizes(self, upload: Upload) -> tuple[Size, ...]:
        """None for files that `take_source` refuses: it says so, and there is no source."""
        try:
            return upload_sizes(upload, self._limits)
        except StudioError:
            return ()

    def _acting(self, values: FormValues, request: PictureRequest | None) -> Updates:
        page = self._page
        is_png = values.output_format == "png"
        avoids = bool(values.negative_prompt.strip())
        is_fixed = values.seed_mode == FIXED
        return {
            page.source.strength_note: strength_note(values.strength, request)
            if starts_from_uploads(self._offer.spec)
            else "",
            page.shape.custom: gr.update(visible=values.shape == CUSTOM),
            page.shape.area: gr.update(visible=self._has_areas and values.shape != CUSTOM),
            page.seed.seed: gr.update(
                interactive=is_fixed, placeholder="a number" if is_fixed else WHEN_RANDOM
            ),
            page.output.quality: gr.update(
                interactive=not is_png, info=LOSSLESS if is_png else None
            ),
            page.guidance.true_cfg_scale: self._true_cfg(avoids),
            page.cache.note: cache_note(
                choice_of(values.cache, values.cache_rule), self._offer.cache
            ),
        }

    def _true_cfg(self, avoids: bool) -> Any:
        if not has_own_cfg(self._offer.spec):
            return gr.update(interactive=False, info=GUIDANCE_IS_CFG)
        return gr.update(interactive=avoids, info=DOUBLE_TIME if avoids else NO_NEGATIVE)
