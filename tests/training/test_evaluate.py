"""The studies and the report, on painters whose faults are known: they draw the blocks."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from pipelines.specs import EMBEDDED, find_spec
from studio.ui.sizes import RATIOS
from tests.training.blocks import BlockJudge, blocks, picture_of, square
from training import edits, evaluate, studies
from training.compositions import COLOURS, Scene
from training.drawing import draw
from training.edits import Edits, Source, is_near
from training.evaluate import PARTS, entry_of
from training.finding import Box
from training.prompts import AXES, UNKNOWN, Wish, held_out_wishes
from training.rendering import Edit, Settings
from training.report import BARS, LIMITS, Score, json_line, table
from training.scoring import Critic, Verdict
from training.sheet import COLUMNS, Entry, contact_sheet
from training.studies import Bench, page_sizes, spread

CRITIC = Critic(BlockJudge(), blocks())
Drawing = Callable[[str, int, Settings, str | None], np.ndarray]


@cache
def wishes() -> list[Wish]:
    """Those whose block is told from its background: painters are judged here, not blocks."""
    some = held_out_wishes(7)[::5]
    return [w for w in some if not CRITIC.verdict(w, draw(w.scene, blocks())).wrong]


@dataclass
class FakeRenderer:
    """Stands in for diffusers: ``draws`` makes each picture; ``asked`` is what it was asked."""

    draws: Drawing
    asked: list[tuple[str, int, Settings, str | None]] = field(default_factory=list)

    def render(
        self,
        texts: Sequence[str],
        seeds: Sequence[int],
        settings: Settings,
        negatives: Sequence[str] | None = None,
    ) -> list[np.ndarray]:
        unwanted: Sequence[str | None] = negatives or [None] * len(texts)
        rows = zip(texts, seeds, unwanted, strict=True)
        calls = [(text, seed, settings, negative) for text, seed, negative in rows]
        self.asked += calls
        return [self.draws(*call) for call in calls]


def scene_of(text: str) -> Scene:
    known = {wish.text: wish.scene for wish in wishes()}
    return known[" ".join(word for word in text.split() if word not in UNKNOWN)]


def perfect(text: str, seed: int, settings: Settings, negative: str | None) -> np.ndarray:
    return draw(scene_of(text), blocks(), settings.width, settings.height)


def bench_of(draws: Drawing) -> Bench:
    renderer: Any = FakeRenderer(draws)
    return Bench(renderer, CRITIC, find_spec(EMBEDDED), Settings(), 100)


def calls_of(bench: Bench) -> list[tuple[str, int, Settings, str | None]]:
    renderer: Any = bench.renderer
    calls: list[tuple[str, int, Settings, str | None]] = renderer.asked
    return calls


def test_there_are_wishes_of_every_axis() -> None:
    # A painted block is another colour's block: the block judge does not know it.
    assert len(wishes()) > 40 and {wish.axis for wish in wishes()} == set(AXES) - {"paint"}


def test_half_the_steps_cost_nothing_where_they_change_nothing() -> None:
    bench = bench_of(perfect)
    numbers = studies.half_steps(bench, wishes(), bench.judged(wishes()))
    assert numbers["steps_half_fall"] == 0 and numbers["object_half_steps"] == 1
    assert {call[2].steps for call in calls_of(bench)} == {20, 10}


def test_half_the_steps_cost_what_they_spoil() -> None:
    def hasty(text: str, seed: int, settings: Settings, negative: str | None) -> np.ndarray:
        scene = scene_of(text)
        kept = scene if settings.steps == 20 or seed % 2 else replace(scene, things=())
        return draw(kept, blocks())

    bench = bench_of(hasty)
    numbers = studies.half_steps(bench, wishes(), bench.judged(wishes()))
    assert numbers["background_half_steps"] == 1
    assert 0.3 < numbers["steps_half_fall"] < 0.6
    assert 0.3 < numbers["object_half_steps"] < 0.7


def test_each_guidance_is_drawn_for_the_same_wishes_and_seeds() -> None:
    def needs_guidance(
        text: str, seed: int, settings: Settings, negative: str | None
    ) -> np.ndarray:
        scene = scene_of(text)
        return draw(scene if settings.guidance_scale > 1 else replace(scene, things=()), blocks())

    bench = bench_of(needs_guidance)
    numbers = studies.guidance(bench, wishes(), bench.judged(wishes()))
    assert [numbers[f"object_guidance_{scale}"] for scale in ("1", "2", "3.5", "6")] == [0, 1, 1, 1]
    calls = calls_of(bench)[len(wishes()) :]
    seeds = [{call[:2] for call in calls if call[2].guidance_scale == g} for g in (1.0, 2.0, 6.0)]
    assert seeds[0] == seeds[1] == seeds[2] and len(seeds[0]) == -(-len(wishes()) // studies.EVERY)
    first = calls_of(bench)[0]
    assert first[:2] in seeds[0]


def by_negative(is_obedient: bool, is_nervous: bool) -> Drawing:
    """The seed chooses what is not asked for; a negative changes it as the flags say."""

    def chosen(choices: list[str], words: str, seed: int, negative: str | None) -> str:
        choice = choices[seed % len(choices)]
        is_named = negative == words.format(choice)
        is_other = negative is not None and (is_nervous or (is_named and is_obedient))
        return choices[(seed + 1) % len(choices)] if is_other else choice

    def drawing(text: str, seed: int, settings: Settings, negative: str | None) -> np.ndarray:
        assert (settings.true_cfg_scale > 1) == (negative is not None)
        if text.endswith("background"):
            name = chosen(["robot", "dolphin", "corn"], "a {}", seed, negative)
            return picture_of(square(name, 0.5, 0.5, 0.6))
        colour = chosen(list(COLOURS), "{} background", seed, negative)
        return picture_of(background=(colour,))

    return drawing


@pytest.mark.parametrize(
    ("is_obedient", "is_nervous", "vanished", "spared"),
    [(True, False, 1, 1), (False, False, 0, 1), (True, True, 1, 0)],
)
def test_a_negative_is_to_act_by_its_word(
    is_obedient: bool, is_nervous: bool, vanished: float, spared: float
) -> None:
    numbers = studies.negatives(bench_of(by_negative(is_obedient, is_nervous)))
    for kind in ("colour", "thing"):
        assert numbers[f"negative_{kind}_vanished"] == vanished
        assert numbers[f"negative_{kind}_spared"] == spared


def test_a_model_that_draws_nothing_has_no_thing_to_vanish() -> None:
    numbers = studies.negatives(bench_of(lambda *call: picture_of()))
    assert numbers["negative_thing_vanished"] == numbers["negative_thing_spared"] == 0


def test_variety_is_that_of_drawings_for_one_who_draws_and_none_for_one_who_repeats() -> None:
    def varied(text: str, seed: int, settings: Settings, negative: str | None) -> np.ndarray:
        return draw(studies._again(scene_of(text), random.Random(seed)), blocks())

    numbers = studies.variety(bench_of(varied), wishes())
    assert 0.7 < numbers["variety"] < 1.4 and numbers["variety_object"] == 1
    numbers = studies.variety(bench_of(perfect), wishes())
    assert numbers == {"variety": 0, "variety_object": 1}


def test_spread_is_the_mean_distance_of_pairs() -> None:
    pictures = [np.full((4, 4, 3), value, np.uint8) for value in (0, 10, 40)]
    assert spread(pictures) == pytest.approx((10 + 30 + 40) / 3)


def test_every_size_of_the_page_is_tried() -> None:
    spec = find_spec(EMBEDDED)
    sizes = page_sizes(spec)
    assert (256, 256) in sizes and len(set(sizes)) == len(sizes) >= 2 * len(RATIOS)
    assert all(w % 32 == h % 32 == 0 and w * h <= spec.max_pixels for w, h in sizes)


def test_sizes_are_scored_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "page_sizes", lambda spec: [(256, 256), (128, 256)])

    def lost_when_narrow(
        text: str, seed: int, settings: Settings, negative: str | None
    ) -> np.ndarray:
        scene = scene_of(text) if settings.width == 256 else Scene((), ("white",))
        return draw(scene, blocks(), settings.width, settings.height)

    numbers = studies.sizes(bench_of(lost_when_narrow), wishes())
    assert numbers["object_256x256"] == numbers["position_256x256"] == 1
    assert numbers["object_128x256"] == numbers["position_128x256"] == 0
    assert numbers["object_all_sizes"] == 0.5


def test_unknown_words_cost_what_they_spoil() -> None:
    bench = bench_of(perfect)
    numbers = studies.unknown_words(bench, wishes(), bench.judged(wishes()))
    assert numbers == {"unknown_words_object": 1, "unknown_words_fall": 0}
    calls = calls_of(bench)
    strange = [call for call in calls if set(UNKNOWN) & set(call[0].split())]
    plain = [call for call in calls if call not in strange]
    assert strange and {seed for _, seed, _, _ in strange} < {seed for _, seed, _, _ in plain}

    def confused(text: str, seed: int, settings: Settings, negative: str | None) -> np.ndarray:
        if set(UNKNOWN) & set(text.split()):
            return picture_of(square("robot", 0.5, 0.5, 0.6))
        return perfect(text, seed, settings, negative)

    bench = bench_of(confused)
    numbers = studies.unknown_words(bench, wishes(), bench.judged(wishes()))
    assert numbers["unknown_words_fall"] > 0.9


# Edits


@dataclass
class FakeEditor:
    """Changes the background from a strength on; ``is_drifting``: moves the thing, too."""

    from_strength: float = 0.6
    is_drifting: bool = False

    def edit(self, edits: Sequence[Edit], settings: Settings) -> list[np.ndarray]:
        return [self._edited(edit) for edit in edits]

    def _edited(self, edit: Edit) -> np.ndarray:
        colour = edit.text.removeprefix("a cat on ")
        if edit.strength < self.from_strength:
            return edit.source
        x = 0.75 if self.is_drifting else 0.3
        return picture_of(square("cat", x, 0.5, 0.4), background=(colour,))


def started() -> list[Source]:
    pixels = picture_of(square("cat", 0.3, 0.5, 0.4), background=("white",))
    return [Source(pixels, "a cat on white", f"a cat on {c}", c) for c in ("teal", "blue", "grey")]


def edits_by(editor: FakeEditor) -> Edits:
    stand_in: Any = editor
    return Edits(bench_of(perfect), stand_in, started())


def test_following_and_place_are_seen() -> None:
    assert edits_by(FakeEditor()).followed(0.7) == [(True, True)] * 3
    assert edits_by(FakeEditor()).followed(0.3) == [(False, True)] * 3
    assert edits_by(FakeEditor(is_drifting=True)).followed(0.7) == [(True, False)] * 3


def test_scores_of_edits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edits, "sources", lambda bench: started())
    monkeypatch.setattr(edits, "full_difference", lambda *args: 0.0)
    editor: Any = FakeEditor()
    numbers = edits.scores(bench_of(perfect), editor)
    assert numbers["edit_gentle_ssim"] == pytest.approx(1) and numbers["edit_follows"] == 1
    assert numbers["edit_following_fall"] == 0 and numbers["edit_gentle_colour_shift"] == 0
    reluctant: Any = FakeEditor(from_strength=0.2)
    numbers = edits.scores(bench_of(perfect), reluctant)
    assert numbers["edit_follows_0.3"] == 1
    assert numbers["edit_gentle_ssim"] == pytest.approx(1, abs=0.01)  # the words were the same


def test_a_fall_between_strengths_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Fading(FakeEditor):
        def _edited(self, edit: Edit) -> np.ndarray:
            return edit.source if edit.strength > 0.8 else super()._edited(edit)

    monkeypatch.setattr(edits, "sources", lambda bench: started())
    monkeypatch.setattr(edits, "full_difference", lambda *args: 0.0)
    editor: Any = Fading()
    assert edits.scores(bench_of(perfect), editor)["edit_following_fall"] == 1


def test_near_is_within_its_share_of_each_side() -> None:
    box = Box(40, 40, 60, 60)
    assert is_near(box, Box(54, 40, 74, 60), (100, 100))
    assert not is_near(box, Box(56, 40, 76, 60), (100, 100))
    assert is_near(box, Box(56, 40, 76, 60), (100, 200))


def test_sources_are_drawn_and_made_and_change_their_background() -> None:
    def anything(text: str, seed: int, settings: Settings, negative: str | None) -> np.ndarray:
        return picture_of(square("cat", 0.5, 0.5, 0.5))

    made = edits.sources(bench_of(anything))
    assert len(made) == 2 * edits.SOURCES
    drawn, rest = made[: edits.SOURCES], made[edits.SOURCES :]
    assert [s.text for s in drawn] == [s.text for s in rest]
    assert all(source.text != source.changed for source in made)
    assert np.array_equal(rest[0].pixels, rest[1].pixels) and len(drawn[0].text) > 3


# The report


def test_a_bar_is_reached_from_below_and_a_limit_from_above() -> None:
    assert Score("object", BARS["object"]).holds and not Score("object", 0.1).holds
    assert Score("steps_half_fall", -0.1).holds and not Score("steps_half_fall", 0.2).holds
    assert not set(BARS) & set(LIMITS) and Score("count", 0.5).bar is None


def test_the_line_holds_a_claim_for_each_bar() -> None:
    scores = [Score("object", 0.95, 260, 0.99), Score("count", 0.9, 300), Score("size", 0.5)]
    mistake = Verdict("a cat", "plain", "cat on white", "dog on white", {"object": False})
    line = json.loads(json_line(scores, Settings(), [mistake], 12.3))
    assert {"benchmark", "machine", "claims", "rows"} <= set(line)
    claims = {claim["name"]: claim["holds"] for claim in line["claims"]}
    assert claims == {"object": True, "size": False}
    assert line["mistakes"][0]["seen"] == "dog on white"
    assert line["rows"][0] == {"name": "object", "value": 0.95, "count": 260, "ceiling": 0.99}


def test_the_table_names_what_is_missed() -> None:
    lines = table([Score("object", 0.95, 260, 0.99), Score("size", 0.5, 40)]).splitlines()
    assert "holds" in lines[1] and "0.990" in lines[1] and "MISSED" in lines[2]


def test_every_part_can_be_asked_for() -> None:
    args = evaluate.parser().parse_args(["--parts", "sizes", "--steps", "10"])
    assert args.parts == ["sizes"] and args.steps == 10
    assert evaluate.parser().parse_args([]).parts == PARTS


def test_a_mistake_is_framed_on_the_sheet() -> None:
    white = np.full((64, 96, 3), 255, np.uint8)
    verdict = Verdict("a cat on white", "plain", "cat on white", "dog on white", {"object": False})
    entries = [Entry(white, "a cat on white " * 20), entry_of(verdict, white)]
    sheet = np.asarray(contact_sheet([("plain", entries), ("paint", entries * COLUMNS)]))
    red = (np.abs(sheet.astype(int) - (190, 30, 30)).max(-1) < 5).sum()
    assert red > 200
    right = entry_of(replace(verdict, marks={"object": True}), white)
    assert right.fault == ""
