"""The groups of controls in the side panel. A control that does nothing on this model is disabled,
with the reason beside it."""

from dataclasses import dataclass

import gradio as gr

from pipelines.specs import ModelSpec
from studio.request import DEFAULT_QUALITY, DEFAULT_STRENGTH, MAX_GUIDANCE
from studio.roles import starts_from_uploads
from studio.ui.form import DEFAULT_TRUE_CFG, FIXED, MIN_STRENGTH, MIN_TRUE_CFG, RANDOM
from studio.ui.sizes import (
    CUSTOM,
    MATCH,
    RATIOS,
    STANDARD,
    areas,
    largest_side,
    shape_of,
    smallest_side,
)
from studio.ui.step_cache import choices

NO_GUIDANCE = "Off: this model takes no guidance, so the value would do nothing."
GUIDANCE_IS_CFG = "Off: on this model guidance itself does it."
LOOKS_ONLY = "Off: this model looks at what you show it and draws a new picture."
LOSSLESS = "Off: PNG is lossless."
NO_NEGATIVE = "Off: it acts only with something to avoid."
DOUBLE_TIME = "Every step runs twice, so a picture takes twice the time."
WHEN_RANDOM = "new each time"


@dataclass(frozen=True, slots=True)
class SourceControls:
    """The picture to start from."""

    upload: gr.UploadButton
    present: gr.Checkbox  # hidden: an emptied upload goes on sending its old value
    empty: gr.Column  # shown without a picture
    filled: gr.Column  # shown with one
    card: gr.HTML
    use_settings: gr.Button
    remove: gr.Button
    strength: gr.Slider
    strength_note: gr.HTML


@dataclass(frozen=True, slots=True)
class ShapeControls:
    """Ratio, area, and width and height as numbers."""

    shape: gr.Radio
    area: gr.Radio
    custom: gr.Row
    width: gr.Number
    height: gr.Number


@dataclass(frozen=True, slots=True)
class SeedControls:
    """Which noise to start from."""

    mode: gr.Radio
    seed: gr.Textbox  # text: a browser's numbers round above 2^53
    note: gr.HTML
    last: gr.Textbox
    reuse: gr.Button


@dataclass(frozen=True, slots=True)
class OutputControls:
    """The file that is kept."""

    output_format: gr.Radio
    quality: gr.Slider


@dataclass(frozen=True, slots=True)
class CacheControls:
    """Which steps may be predicted."""

    name: gr.Dropdown
    note: gr.HTML
    rule: gr.Textbox  # hidden: values that settings brought along and the page does not offer


@dataclass(frozen=True, slots=True)
class GuidanceControls:
    """How closely the prompt is followed, and what to avoid."""

    guidance_scale: gr.Slider
    negative_prompt: gr.Textbox
    true_cfg_scale: gr.Slider


def add_picture(spec: ModelSpec) -> str:
    """The upload button's words while there is no picture."""
    if starts_from_uploads(spec):
        return "Start from a picture"
    return "Show it pictures" if spec.max_references > 1 else "Show it a picture"


def other_picture(spec: ModelSpec) -> str:
    """The same while there is one."""
    return "Other pictures" if spec.max_references > 1 else "Another picture"


def _how_to_add(spec: ModelSpec) -> str:
    if spec.max_references > 1:
        return f"Choose or drop up to {spec.max_references}, or paste one"
    return "Choose, drop or paste one"


def build_source(spec: ModelSpec) -> SourceControls:
    """An upload tile, or the picture with its strength, where the model starts from it."""
    acts = starts_from_uploads(spec)
    with gr.Column(elem_id="source", elem_classes="group"):
        upload = gr.UploadButton(
            add_picture(spec),
            file_types=["image"],
            file_count="multiple" if spec.max_references > 1 else "single",
            type="filepath",
            elem_id="upload",
            variant="secondary",
        )
        present = gr.Checkbox(elem_id="source-present", visible="hidden", show_label=False)
        with gr.Column(elem_id="source-empty") as empty:
            gr.HTML(
                f"<p class='note'>{_how_to_add(spec)}</p>",
                apply_default_css=False,
                js_on_load=None,
            )
        with gr.Column(elem_id="source-filled", visible=False) as filled:
            with gr.Row(elem_id="source-row"):
                card = gr.HTML(elem_id="source-card", apply_default_css=False, js_on_load=None)
                with gr.Column(elem_id="source-buttons", min_width=0):
                    use_settings = gr.Button("Use its settings", size="sm", visible=False)
                    remove = gr.Button("Remove", size="sm", elem_id="source-remove")
            strength = gr.Slider(
                MIN_STRENGTH,
                1.0,
                value=DEFAULT_STRENGTH,
                step=0.01,
                label="Strength",
                info=None if acts else LOOKS_ONLY,
                interactive=acts,
                elem_id="strength",
            )
            strength_note = gr.HTML(
                elem_id="strength-note", apply_default_css=False, js_on_load=None
            )
    return SourceControls(
        upload, present, empty, filled, card, use_settings, remove, strength, strength_note
    )


def build_shape(spec: ModelSpec) -> ShapeControls:
    """Ratios as small drawings, areas as words, and numbers on demand."""
    choices = [(name, name) for name in RATIOS]
    with gr.Column(elem_classes="group"):
        shape = gr.Radio(
            [*choices, ("Match picture", MATCH), ("Custom", CUSTOM)],
            value=shape_of(spec.native_width, spec.native_height, spec)[0],
            label="Shape",
            elem_id="shape",
        )
        offered = areas(spec)
        area = gr.Radio(
            [(area.label, area.key) for area in offered],
            value=STANDARD,
            label="Size",
            elem_id="area",
            elem_classes="segmented",
            visible=len(offered) > 1,
        )
        with gr.Row(elem_id="custom-size", visible=False) as custom:
            width, height = (
                gr.Number(
                    value=value,
                    label=label,
                    precision=0,
                    step=spec.size_multiple,
                    info=f"{smallest_side(spec)} to {largest_side(spec)} px",
                    min_width=0,
                )
                for label, value in (("Width", spec.native_width), ("Height", spec.native_height))
            )
    return ShapeControls(shape, area, custom, width, height)


def build_seed() -> SeedControls:
    """Random or fixed; the seed that was really used stands below, with a button to keep it."""
    with gr.Column(elem_classes="group", elem_id="seed-group"):
        with gr.Row(elem_id="seed-row"):
            mode = gr.Radio(
                [("Random", RANDOM), ("Fixed", FIXED)],
                value=RANDOM,
                label="Seed",
                elem_id="seed-mode",
                elem_classes="segmented",
                min_width=0,
            )
            seed = gr.Textbox(
                value="",
                label="Seed value",
                show_label=False,
                placeholder=WHEN_RANDOM,
                interactive=False,
                max_lines=1,
                max_length=20,
                elem_id="seed",
                min_width=0,
                html_attributes=gr.InputHTMLAttributes(autocomplete="off"),
            )
        with gr.Row(elem_id="seed-last"):
            note = gr.HTML(elem_id="seed-note", apply_default_css=False, js_on_load=None)
            reuse = gr.Button("Reuse", size="sm", elem_id="reuse", visible=False, min_width=0)
        last = gr.Textbox("", visible="hidden", show_label=False, elem_id="last-seed")
    return SeedControls(mode, seed, note, last, reuse)


def build_output() -> OutputControls:
    """Format and quality of the kept file."""
    with gr.Column(elem_classes="group"):
        output_format = gr.Radio(
            [("JPEG", "jpeg"), ("PNG", "png"), ("WebP", "webp")],
            value="jpeg",
            label="File",
            elem_id="format",
            elem_classes="segmented",
        )
        quality = gr.Slider(
            1, 100, value=DEFAULT_QUALITY, step=1, label="Quality", elem_id="quality"
        )
    return OutputControls(output_format, quality)


def build_cache(name: str) -> CacheControls:
    """The names with their meaning; single values are for programs."""
    with gr.Column(elem_id="cache-group"):
        choice = gr.Dropdown(
            choices(), value=name, label="Step cache", filterable=False, elem_id="cache"
        )
        note = gr.HTML(elem_id="cache-note", apply_default_css=False, js_on_load=None)
        rule = gr.Textbox("", visible="hidden", show_label=False, elem_id="cache-rule")
    return CacheControls(choice, note, rule)


def build_guidance(spec: ModelSpec) -> GuidanceControls:
    """How the prompt acts on a model that takes guidance, and what to avoid."""
    acts = spec.has_guidance
    guidance = gr.Slider(
        0,
        MAX_GUIDANCE,
        value=spec.default_guidance_scale,
        step=0.1,
        label="Guidance",
        info=None if acts else NO_GUIDANCE,
        interactive=acts,
        elem_id="guidance",
    )
    negative = gr.Textbox(
        value="",
        label="Avoid",
        placeholder="What should not be in the picture",
        lines=2,
        max_lines=4,
        elem_id="negative",
    )
    true_cfg = gr.Slider(
        MIN_TRUE_CFG,
        MAX_GUIDANCE,
        value=DEFAULT_TRUE_CFG,
        step=0.1,
        label="How strongly to avoid it",
        info=NO_NEGATIVE,
        interactive=False,
        elem_id="true-cfg",
    )
    return GuidanceControls(guidance, negative, true_cfg)
