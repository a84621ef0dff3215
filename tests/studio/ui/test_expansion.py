"""Expand on the page: the button's states, and the words before an expansion in the form."""

import json
from dataclasses import replace

import pytest

from studio.engine.protocol import EngineState, EngineStatus
from studio.settle import settle
from studio.step_cache import UNSET
from studio.ui.expansion import expand_button, expansion_panel
from studio.ui.form import Offer, checked, defaults, draft_of, from_settings
from studio.ui.original import keep_expansion, original_of
from studio.ui.paths import Place
from tests.studio.conftest import SPEC

OFFER = Offer(SPEC, 4, UNSET)
KEPT = keep_expansion({"original_prompt": "a cat", "prompt": "a cat, soft light"})


def test_the_button_works_when_the_text_model_is_ready() -> None:
    button = expand_button(EngineStatus("ready"))
    assert "data-expand='start'" in button and "aria-disabled" not in button


@pytest.mark.parametrize("state", ["starting", "loading", "restarting"])
def test_a_text_model_on_its_way_is_told_with_its_progress(state: EngineState) -> None:
    button = expand_button(EngineStatus(state, fraction=0.45))
    assert "aria-disabled='true'" in button and "data-expand='start'" not in button
    assert "text model is </span>coming… · 45 %" in button


def test_a_text_model_that_failed_says_why_as_text() -> None:
    button = expand_button(EngineStatus("failed", "No <weights> 'here'."))
    assert "aria-disabled='true'" in button and "no text model" in button
    assert "No &lt;weights&gt; &#x27;here&#x27;." in button


def test_the_panel_knows_its_model_and_the_way_to_the_studio() -> None:
    panel = expansion_panel(replace(SPEC, name="a'b"), Place("/models/b", "../../"))
    assert "data-model='a&#x27;b'" in panel and "data-base='../../'" in panel
    assert "hidden" in panel.partition(">")[0]


def test_the_words_before_an_expansion_go_with_the_request() -> None:
    form = replace(defaults(OFFER), prompt="a cat, soft light ", expanded=KEPT)
    request, _ = settle(draft_of(form, SPEC), SPEC, max_images=4)
    assert (request.original_prompt, request.prompt) == ("a cat", "a cat, soft light ")
    again = from_settings(request.to_dict(), OFFER)
    assert settle(draft_of(again, SPEC), SPEC, max_images=4)[0].original_prompt == "a cat"


EDITED = [
    "a cat, hard light",
    "two cats, soft light, at night",
    "A CAT,  soft LIGHT.",
    "an old cat, soft grey light, and much more that a person thought of afterwards",
]


@pytest.mark.parametrize("prompt", EDITED)
def test_an_edited_expansion_keeps_the_words_before_it(prompt: str) -> None:
    form = replace(defaults(OFFER), prompt=prompt, expanded=KEPT)
    assert draft_of(form, SPEC).original_prompt == "a cat"


@pytest.mark.parametrize("prompt", ["", "a cat", "something else", "a dog, on a red sofa"])
def test_a_prompt_emptied_or_replaced_has_no_words_before_it(prompt: str) -> None:
    form = replace(defaults(OFFER), prompt=prompt, expanded=KEPT)
    assert draft_of(form, SPEC).original_prompt is None


def test_settings_without_an_expansion_leave_none_behind() -> None:
    for settings in ({}, {"original_prompt": None}, {"original_prompt": 5}, {"prompt": "a"}):
        assert from_settings({"prompt": "a cat"} | settings, OFFER).expanded == ""


@pytest.mark.parametrize(
    "kept",
    ["", "null", "5", "[", "[" * 100_000, "{}", '{"original": 5, "expanded": "x"}', '{"a": 1}'],
)
def test_a_kept_expansion_that_is_none_does_no_harm(kept: str) -> None:
    assert original_of("x", kept) is None
    values = checked({"prompt": "x", "expanded": kept}, OFFER)
    assert draft_of(values, SPEC).original_prompt is None


def test_words_that_are_the_prompt_are_no_original() -> None:
    same = json.dumps({"original": "a cat ", "expanded": "a cat"})
    form = replace(defaults(OFFER), prompt="a cat", expanded=same)
    assert settle(draft_of(form, SPEC), SPEC, max_images=4)[0].original_prompt is None
