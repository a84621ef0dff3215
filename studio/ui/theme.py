"""Gradio's theme, pointed at the page's own tokens in `assets/studio.css`.

Light and dark are the tokens' business: every theme variable has the same value for both, so that
the page is dark whatever the system prefers. System fonts only: the page must work offline.
"""

import inspect

import gradio as gr

_FONT = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")

_VALUES: dict[str, str] = {
    # A colour, not a token: it stands before the style sheet is there, and white would flash.
    "body_background_fill": "#0e0f12",
    "body_text_color": "var(--text)",
    "body_text_color_subdued": "var(--dim)",
    "background_fill_primary": "var(--ground)",
    "background_fill_secondary": "var(--surface)",
    "border_color_primary": "var(--line)",
    "border_color_accent": "var(--accent)",
    "border_color_accent_subdued": "var(--line)",
    "color_accent": "var(--accent)",
    "color_accent_soft": "var(--accent-soft)",
    "link_text_color": "var(--accent)",
    "block_background_fill": "transparent",
    "block_border_color": "transparent",
    "block_border_width": "0px",
    "block_info_text_color": "var(--dim)",
    "block_info_text_size": "12px",
    "block_label_background_fill": "transparent",
    "block_label_text_color": "var(--dim)",
    "block_padding": "0px",
    "block_radius": "0px",
    "block_shadow": "none",
    "block_title_background_fill": "transparent",
    "block_title_text_color": "var(--dim)",
    "block_title_text_size": "13px",
    "block_title_text_weight": "500",
    "block_title_padding": "0px",
    "panel_background_fill": "transparent",
    "panel_border_width": "0px",
    "layout_gap": "0px",
    "form_gap_width": "0px",
    "accordion_text_color": "var(--text)",
    "input_background_fill": "var(--field)",
    "input_background_fill_focus": "var(--field)",
    "input_border_color": "var(--line)",
    "input_border_color_focus": "var(--accent)",
    "input_border_color_hover": "var(--line-strong)",
    "input_border_width": "1px",
    "input_padding": "8px 10px",
    "input_placeholder_color": "var(--faint)",
    "input_radius": "8px",
    "input_shadow": "none",
    "input_shadow_focus": "none",
    "input_text_size": "14px",
    "checkbox_label_background_fill": "transparent",
    "checkbox_label_background_fill_hover": "var(--raised)",
    "checkbox_label_background_fill_selected": "var(--raised)",
    "checkbox_label_border_width": "0px",
    "checkbox_label_padding": "0px",
    "checkbox_label_shadow": "none",
    "checkbox_label_text_size": "13px",
    "checkbox_label_text_weight": "500",
    "checkbox_label_text_color": "var(--dim)",
    "checkbox_label_text_color_selected": "var(--text)",
    "error_background_fill": "var(--surface)",
    "error_border_color": "var(--danger)",
    "error_text_color": "var(--danger)",
    "slider_color": "var(--accent)",
    "loader_color": "var(--accent)",
    "button_primary_background_fill": "var(--accent)",
    "button_primary_background_fill_hover": "var(--accent-strong)",
    "button_primary_border_color": "transparent",
    "button_primary_text_color": "var(--on-accent)",
    "button_primary_shadow": "none",
    "button_primary_shadow_hover": "none",
    "button_secondary_background_fill": "var(--raised)",
    "button_secondary_background_fill_hover": "var(--line)",
    "button_secondary_border_color": "transparent",
    "button_secondary_text_color": "var(--text)",
    "button_secondary_shadow": "none",
    "button_border_width": "0px",
    "button_large_radius": "10px",
    "button_medium_radius": "8px",
    "button_small_radius": "8px",
}


def studio_theme() -> gr.themes.Base:
    """Calm surfaces and one accent; no font is fetched from anywhere."""
    theme = gr.themes.Base(font=_FONT, font_mono=_MONO)
    known = inspect.signature(theme.set).parameters
    dark = {f"{name}_dark": value for name, value in _VALUES.items() if f"{name}_dark" in known}
    return theme.set(**_VALUES, **dark)
