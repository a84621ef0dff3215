"""HTML fragments: whatever a person, a file or an engine says is text, never markup."""

from dataclasses import replace
from html.parser import HTMLParser

import gradio as gr
import pytest
from starlette.requests import Request

from pipelines.cache_rules import PRESETS, CacheRule, resolve
from studio.engine.protocol import EngineStatus
from studio.errors import BadRequest
from studio.job import JobView, Picture, Status
from studio.request import Draft, Notice
from studio.settle import settle
from studio.step_cache import CACHE_NAMES, UNSET, CacheChoice, CacheSetting, rule_from_dict
from studio.ui.notes import plan_line, problem, seed_note, strength_words, told, warnings
from studio.ui.owner import owner_of
from studio.ui.paths import places
from studio.ui.shots import file_name, shown_settings, strip
from studio.ui.stage import done_stage, idle_stage, job_stage, progress_words, status_words
from studio.ui.step_cache import choice_of, choices, own_rule
from studio.ui.step_cache import note as cache_note
from studio.ui.topbar import topbar
from tests.studio.conftest import SPEC

EVIL = """<script>alert(1)</script>"><img src=x onerror='alert(2)'>&lt;"""
READY = EngineStatus("ready")
REQUEST = settle(Draft(EVIL, seed=5, count=2), SPEC, max_images=4)[0]
PICTURE = Picture(
    "id-1", "job-1", "me", 0, 5, 256, 192, "png", 6, 0, 0.0, replace(REQUEST, output_format="png")
)


def view(status: Status, **values: object) -> JobView:
    base = JobView("job-1", "me", "page", status, REQUEST, 0.0, steps=6)
    return replace(base, **values)  # type: ignore[arg-type]


class Tags(HTMLParser):
    """The tags of a fragment, and whether any attribute is a handler."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.handlers: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.handlers += [name for name, _ in attrs if name.startswith("on")]


@pytest.mark.parametrize(
    "html",
    [
        job_stage(view("failed", error_message=EVIL), READY, 0),
        job_stage(view("running", step=2, warnings=(Notice("x", None, EVIL),)), READY, 1),
        job_stage(view("queued"), EngineStatus("loading", EVIL, 0.5), 0),
        done_stage([PICTURE], 1),
        idle_stage(EngineStatus("failed", EVIL), [], [EVIL], EVIL),
        idle_stage(READY, [], [EVIL], EVIL),
        idle_stage(EngineStatus("loading", EVIL), [], [], EVIL),
        topbar(EngineStatus("restarting", EVIL), replace(SPEC, name=EVIL, licence=EVIL)),
        strip((PICTURE,), has_more=True),
        problem(BadRequest(EVIL, param=EVIL)),
        told(EVIL),
        seed_note(EVIL),
        warnings((Notice("x", None, EVIL),)),
    ],
)
def test_nothing_said_becomes_markup(html: str) -> None:
    tags = Tags(html)
    assert "script" not in tags.seen
    assert not tags.handlers
    assert "<img src=x" not in html


def test_progress_says_what_is_awaited() -> None:
    assert progress_words(view("running", step=2), READY) == "Step 2 of 6"
    assert progress_words(view("running", step=6), READY) == "Developing the picture"
    assert progress_words(view("queued", position=3), READY) == "In the queue, 3 before you"
    assert "45 %" in progress_words(view("queued"), EngineStatus("loading", "weights", 0.45))


def test_pictures_are_shown_by_relative_addresses_of_the_studio() -> None:
    assert "src='v1/images/id-1/thumbnail'" in strip((PICTURE,), has_more=False)
    assert "src='v1/images/id-1/content'" in done_stage([PICTURE], 1)


def test_copied_settings_name_only_what_acted() -> None:
    settings = shown_settings(PICTURE)
    assert settings["seed"] == 5 and settings["count"] == 1
    assert "strength" not in settings and "quality" not in settings


def with_cache(picture: Picture, rule: CacheRule, predicted: int) -> Picture:
    request = replace(picture.request, cache=rule)
    return replace(picture, request=request, steps_predicted=predicted)


def test_the_caption_says_how_many_steps_were_predicted() -> None:
    calm, lively = (with_cache(PICTURE, PRESETS["balanced"], count) for count in (4, 1))
    assert "6 steps, 2 computed, 4 predicted<" in done_stage([calm], 1)
    assert "6 steps, 2 to 5 computed, 1 to 4 predicted<" in done_stage([calm, lively], 2)
    assert "6 steps<" in done_stage([PICTURE], 1)


def test_the_large_view_and_copied_settings_name_the_cache() -> None:
    fast = with_cache(PICTURE, resolve("fast", max_skips=9), 4)
    assert "data-cache='Fast, 2 computed, 4 predicted'" in strip((fast,), has_more=False)
    assert "data-cache='Off (exact)'" in strip((PICTURE,), has_more=False)
    settings = shown_settings(fast)
    assert rule_from_dict(settings) == fast.request.cache
    assert (settings["steps_computed"], settings["steps_predicted"]) == (2, 4)


def test_every_cache_has_a_label_and_a_note() -> None:
    assert [name for _, name in choices()] == list(CACHE_NAMES)
    notes = {cache_note(CacheChoice(name), UNSET) for name in CACHE_NAMES}
    assert len(notes) == len(CACHE_NAMES)


def test_the_note_names_values_that_are_not_the_studios() -> None:
    rule = resolve("balanced", max_skips=9)
    choice = choice_of("balanced", own_rule(rule, UNSET))
    assert "max_skips 9." in cache_note(choice, UNSET)
    assert "max_skips" not in cache_note(choice, CacheSetting(rule))
    assert own_rule(rule, CacheSetting(rule)) == ""


def test_a_download_has_a_plain_name() -> None:
    assert file_name(PICTURE) == "script-alert-1-script-img-src-x-onerror-5.png"
    emoji = replace(PICTURE, request=replace(REQUEST, prompt="🍎 りんご"), format="jpeg")
    assert file_name(emoji) == "picture-5.jpg"


def test_the_plan_says_what_was_changed() -> None:
    assert "256 × 192 px" in plan_line(REQUEST, None, None, 16)
    assert "multiples of 16 px" in plan_line(REQUEST, (260.0, 200.0), None, 16)
    assert "multiples" not in plan_line(REQUEST, (256.0, 192.0), None, 16)
    started = replace(REQUEST, has_source=True)
    assert "cropped" in plan_line(started, None, (1000, 200), 16)
    # A picture to look at keeps its own shape.
    assert "cropped" not in plan_line(replace(REQUEST, references=1), None, (1000, 200), 16)


def test_strength_ends_are_named() -> None:
    assert strength_words(0.1).startswith("Subtle")
    assert strength_words(1.0) == "Only the prompt"


def test_no_owner_is_an_error_and_never_somebody() -> None:
    scope = {"type": "http", "headers": [], "state": {"owner": "me"}}
    assert owner_of(gr.Request(Request(scope))) == "me"
    for state in ({}, {"owner": ""}, {"owner": None}):
        with pytest.raises(RuntimeError):
            owner_of(gr.Request(Request(scope | {"state": state})))


def test_another_model_on_its_way_is_said_above_and_at_the_job_that_waits_for_it() -> None:
    status = EngineStatus("ready", "FLUX.2-dev: Loading transformer (3.10 of 64.40 GB)", 0.4)
    assert status_words(status) == "FLUX.2-dev: Loading transformer (3.10 of 64.40 GB) · 40 %"
    assert "Loading transformer" in job_stage(view("loading"), status, 0)
    assert "Step 2 of" in job_stage(view("running", step=2), status, 0)
    assert status_words(EngineStatus("ready")) == "Ready"


def test_the_bar_names_all_models_and_leads_to_the_others() -> None:
    ways = (("first", "./"), ("a<b", "models/a-b/"))
    first = replace(SPEC, name="first", weights_gb=33.8)
    bar = topbar(READY, first, ways)
    assert "aria-current='page' title='Apache-2.0; 34 GB of weights'>first</span>" in bar
    assert "<a class='engine-model' href='models/a-b/'>a&lt;b</a>" in bar
    assert "href" not in topbar(READY, first, ways[:1])


@pytest.mark.parametrize(("size", "shown"), [(100.4, "100"), (14.4, "14"), (0.0228, "0.023")])
def test_the_bar_tells_the_weights(size: float, shown: str) -> None:
    assert f"; {shown} GB of weights" in topbar(READY, replace(SPEC, weights_gb=size))


def test_pictures_are_found_from_the_page_of_another_model() -> None:
    page = places(["first", "someone/second"])["someone/second"]
    assert (page.path, page.base) == ("/models/second", "../../")
    made = strip((PICTURE,), has_more=False, base=page.base)
    assert "src='../../v1/images/id-1/thumbnail'" in made
    assert "data-content='../../v1/images/id-1/content'" in made
    done = job_stage(view("done", pictures=(PICTURE,)), READY, 0, page.base)
    assert "src='../../v1/images/id-1/content'" in done


def test_pages_have_different_paths_and_know_the_way_to_each_other() -> None:
    found = places(["first", "a/x y", "b/x y", "…"])
    assert [page.path for page in found.values()] == [
        "/",
        "/models/x-y",
        "/models/x-y-2",
        "/models/model",
    ]
    assert dict(found["first"].models) == {
        "first": "./",
        "a/x y": "models/x-y/",
        "b/x y": "models/x-y-2/",
        "…": "models/model/",
    }
    assert dict(found["a/x y"].models)["first"] == "../../"
    assert dict(found["a/x y"].models)["b/x y"] == "../../models/x-y-2/"
