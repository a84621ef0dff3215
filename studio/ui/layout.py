"""The components of the page and where they stand. No behaviour: `wiring` adds that."""

from dataclasses import dataclass

import gradio as gr

from pipelines.specs import ModelSpec
from studio.ui.controls import (
    CacheControls,
    GuidanceControls,
    OutputControls,
    SeedControls,
    ShapeControls,
    SourceControls,
    build_cache,
    build_guidance,
    build_output,
    build_seed,
    build_shape,
    build_source,
)
from studio.ui.form import MAX_PICTURES, Offer, defaults
from studio.ui.world import world_tray
from studio.world import World

Control = gr.Textbox | gr.Radio | gr.Number | gr.Slider | gr.Dropdown

_BRIDGE_JS = "window.studioTell = (event, data) => trigger(event, data);"


@dataclass(frozen=True, slots=True)
class Page:
    """Every component that a handler reads or writes."""

    topbar: gr.HTML
    stage: gr.HTML
    problem: gr.HTML
    prompt: gr.Textbox
    generate: gr.Button
    stop: gr.Button
    plan: gr.HTML
    expand: gr.HTML | None  # the button, in a studio with a text model
    expanded: gr.Textbox  # hidden: the words before an expansion
    strip: gr.HTML
    source: SourceControls
    shape: ShapeControls
    count: gr.Radio
    steps: gr.Slider
    seed: SeedControls
    output: OutputControls
    guidance: GuidanceControls
    cache: CacheControls
    bridge: gr.HTML  # what a click inside an HTML fragment asks for
    submitted: gr.Textbox  # id of the job handed in by this page last
    reported: gr.Textbox  # the same, once the stage has shown it
    seen: gr.Textbox  # what the stage shows: a job's id, or `idle:…`
    away: gr.Checkbox  # whether the tab is hidden; filled by the browser
    shown: gr.Number  # pictures in the strip
    stored: gr.BrowserState  # the form, kept by the browser over a reload

    def form(self) -> list[Control]:
        """The controls in the order of `FormValues`."""
        return [
            self.prompt,
            self.shape.shape,
            self.shape.area,
            self.shape.width,
            self.shape.height,
            self.count,
            self.source.strength,
            self.steps,
            self.seed.mode,
            self.seed.seed,
            self.output.output_format,
            self.output.quality,
            self.guidance.guidance_scale,
            self.guidance.negative_prompt,
            self.guidance.true_cfg_scale,
            self.cache.name,
            self.cache.rule,
            self.expanded,
        ]


def build_layout(
    offer: Offer, *, world: World | None, page_size: int, expansion: str | None = None
) -> Page:
    """All components, inside the current `gr.Blocks`. `expansion` is the panel's HTML, where the
    studio can expand prompts."""
    spec, expand = offer.spec, None
    with gr.Column(elem_id="studio"):
        topbar = gr.HTML(elem_id="topbar", apply_default_css=False, js_on_load=None)
        with gr.Column(elem_id="main"):
            stage = gr.HTML(
                "<div class='message'></div>",
                elem_id="stage",
                apply_default_css=False,
                js_on_load=None,
            )
            with gr.Column(elem_id="dock"):
                problem = gr.HTML(elem_id="problem", apply_default_css=False, js_on_load=None)
                if world is not None:
                    gr.HTML(
                        world_tray(world), elem_id="world", apply_default_css=False, js_on_load=None
                    )
                with gr.Row(elem_id="dock-row"):
                    prompt = _prompt()
                    with gr.Column(elem_id="dock-buttons", scale=0, min_width=0):
                        if expansion is not None:
                            expand = _fragment("expand")
                        generate = gr.Button("Generate", variant="primary", elem_id="generate")
                        stop = gr.Button("Stop", variant="stop", elem_id="stop", visible=False)
                if expansion is not None:
                    _fragment("expansion", expansion)
                plan = gr.HTML(elem_id="plan", apply_default_css=False, js_on_load=None)
            strip = gr.HTML(elem_id="strip", apply_default_css=False, js_on_load=None)
        with gr.Column(elem_id="panel"):
            source = build_source(spec)
            shape = build_shape(spec)
            count = _count(min(MAX_PICTURES, offer.max_images))
            steps = _steps(spec)
            seed = build_seed()
            output = build_output()
            with gr.Accordion("Advanced", open=False, elem_id="advanced"):
                cache = build_cache(defaults(offer).cache)
                guidance = build_guidance(spec)
        bridge = gr.HTML(elem_id="bridge", apply_default_css=False, js_on_load=_BRIDGE_JS)
        expanded = gr.Textbox("", elem_id="expanded", visible="hidden", show_label=False)
        submitted = gr.Textbox("", elem_id="submitted", visible="hidden", show_label=False)
        reported = gr.Textbox("", elem_id="reported", visible="hidden", show_label=False)
        seen = gr.Textbox("", elem_id="seen", visible="hidden", show_label=False)
        away = gr.Checkbox(elem_id="away", visible="hidden", show_label=False)
        # In the page and not a `gr.State`, for which Gradio keeps a connection open in every tab.
        shown = gr.Number(
            page_size, precision=0, elem_id="shown", visible="hidden", show_label=False
        )
    return Page(
        topbar=topbar,
        stage=stage,
        problem=problem,
        prompt=prompt,
        generate=generate,
        stop=stop,
        plan=plan,
        expand=expand,
        expanded=expanded,
        strip=strip,
        source=source,
        shape=shape,
        count=count,
        steps=steps,
        seed=seed,
        output=output,
        guidance=guidance,
        cache=cache,
        bridge=bridge,
        submitted=submitted,
        reported=reported,
        seen=seen,
        away=away,
        shown=shown,
        # Not a secret: without a fixed key, Gradio draws one at each start and forgets the form.
        stored=gr.BrowserState(
            None, storage_key=f"flux-studio-form {spec.name}", secret="flux-studio-form"
        ),
    )


def _fragment(name: str, html: str = "") -> gr.HTML:
    return gr.HTML(html, elem_id=name, apply_default_css=False, js_on_load=None)


def _prompt() -> gr.Textbox:
    return gr.Textbox(
        value="",
        label="Prompt",
        show_label=False,
        placeholder="Describe a picture…",
        lines=2,
        max_lines=6,
        elem_id="prompt",
        html_attributes=gr.InputHTMLAttributes(spellcheck=True, enterkeyhint="enter"),
        scale=1,
    )


def _count(most: int) -> gr.Radio:
    return gr.Radio(
        [(str(number), number) for number in range(1, most + 1)],
        value=1,
        label="Pictures",
        elem_id="count",
        elem_classes="segmented",
        visible=most > 1,
    )


def _steps(spec: ModelSpec) -> gr.Slider:
    return gr.Slider(
        1, spec.max_steps, value=spec.default_steps, step=1, label="Steps", elem_id="steps"
    )
