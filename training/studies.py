"""What the evaluation varies, one thing a function: steps, guidance, negatives, sizes, words.

Each gives numbers by name: shares of 0 to 1 where nothing else is said.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice

import numpy as np

from pipelines.specs import ModelSpec
from studio.ui.sizes import RATIOS, areas, size_of
from training.compositions import COLOURS, Scene, place
from training.drawing import draw
from training.emoji import COUNTABLE
from training.finding import background_rows
from training.measures import background_of
from training.prompts import Wish, strangers, with_unknown_words
from training.rendering import Renderer, Settings
from training.scoring import Critic, Verdict, shares

Numbers = dict[str, float]
GUIDANCE = (1.0, 2.0, 3.5, 6.0)
EVERY = 5  # wish in so many is drawn at other guidance scales
TRUE_CFG = 3.0
NEGATIVES = 12  # prompts of each kind
PLAIN_COLOURS = [colour for colour in COLOURS if colour != "orange"]  # "a orange background"
AT_EACH_SIZE = 6  # prompts
ALIKE = 8  # seeds of one prompt
SINGLE = ("plain", "setting", "position", "size")


@dataclass(frozen=True, slots=True)
class Bench:
    """The model and who judges it. Picture i of a study has its noise from seed ``seed`` + i."""

    renderer: Renderer
    critic: Critic
    spec: ModelSpec
    settings: Settings
    seed: int

    def paint(
        self,
        texts: Sequence[str],
        settings: Settings | None = None,
        numbers: Sequence[int] | None = None,
    ) -> list[np.ndarray]:
        """``numbers``: those of the pictures, where they are not 0, 1, 2 ..."""
        seeds = [self.seed + i for i in numbers or range(len(texts))]
        return self.renderer.render(texts, seeds, settings or self.settings)

    def judged(
        self,
        wishes: Sequence[Wish],
        settings: Settings | None = None,
        numbers: Sequence[int] | None = None,
    ) -> list[Verdict]:
        pictures = self.paint([wish.text for wish in wishes], settings, numbers)
        return self.critic.verdicts(wishes, pictures)


def half_steps(bench: Bench, wishes: Sequence[Wish], full: Sequence[Verdict]) -> Numbers:
    """Every score at half the steps, and how far their mean falls."""
    settings = replace(bench.settings, steps=bench.settings.steps // 2)
    before, after = shares(full), shares(bench.judged(wishes, settings))
    fall = float(np.mean([before[name][0] - after[name][0] for name in before]))
    return {f"{name}_half_steps": share for name, (share, _) in after.items()} | {
        "steps_half_fall": fall
    }


def guidance(bench: Bench, wishes: Sequence[Wish], full: Sequence[Verdict]) -> Numbers:
    """Object and background at each guidance scale, for one wish in five."""
    numbers = {}
    for scale in sorted({*GUIDANCE, bench.settings.guidance_scale}):
        is_default = scale == bench.settings.guidance_scale
        settings = replace(bench.settings, guidance_scale=scale)
        some = range(0, len(wishes), EVERY)
        if is_default:
            found = shares([full[i] for i in some])
        else:
            found = shares(bench.judged([wishes[i] for i in some], settings, some))
        for name in ("object", "background"):
            numbers[f"{name}_guidance_{scale:g}"] = found[name][0]
    return numbers


def negatives(bench: Bench) -> Numbers:
    """True CFG: whether what a seed drew unasked goes when it is named as unwanted.

    Colours behind things whose prompt names none, and things whose prompt names a background alone.
    "spared": it stays when another one is named, so that the word acts and not the guidance.
    """
    rng = random.Random(bench.seed)
    names = [emoji.name for emoji in COUNTABLE if emoji.name[0] not in "aeiou"]
    things = [f"a {name}" for name in rng.sample(names, NEGATIVES)]
    colours = [f"a {rng.choice(PLAIN_COLOURS)} background" for _ in range(NEGATIVES)]
    of_colour = _acting(bench, things, _background_words, "{} background", PLAIN_COLOURS)
    of_thing = _acting(bench, colours, bench.critic.name, "a {}", names)
    return {f"negative_colour_{name}": share for name, share in of_colour.items()} | {
        f"negative_thing_{name}": share for name, share in of_thing.items()
    }


def _acting(
    bench: Bench,
    texts: Sequence[str],
    shown: Callable[[np.ndarray], str],
    words: str,
    others: Sequence[str],
) -> Numbers:
    """``shown``: what a picture shows unasked, or ""; ``words``: the negative that names it."""
    rng = random.Random(bench.seed)
    before = {i: shown(pixels) for i, pixels in enumerate(bench.paint(texts)) if shown(pixels)}
    others_of = {i: rng.choice([o for o in others if o not in was]) for i, was in before.items()}

    def kept(unwanted: Mapping[int, str]) -> float:
        """Share of the pictures that show what they did."""
        settings = replace(bench.settings, true_cfg_scale=TRUE_CFG)
        seeds = [bench.seed + i for i in before]
        negatives = [words.format(word) for word in unwanted.values()]
        pictures = bench.renderer.render([texts[i] for i in before], seeds, settings, negatives)
        marks = [
            shown(pixels) == was for pixels, was in zip(pictures, before.values(), strict=True)
        ]
        return float(np.mean(marks))

    if not before:
        return {"vanished": 0.0, "spared": 0.0}
    return {"vanished": 1 - kept(before), "spared": kept(others_of)}


def _background_words(pixels: np.ndarray) -> str:
    return " to ".join(background_of(background_rows(pixels)))


def variety(bench: Bench, wishes: Sequence[Wish]) -> Numbers:
    """How far eight seeds of a prompt lie apart, as a share of eight drawings' distance.

    A model that draws one picture whatever the seed has 0; the drawings' places and sizes differ as
    in training. Beside it the share that is the right object.
    """
    rng, ratios, right = random.Random(bench.seed), [], []
    plain = [wish for wish in wishes if wish.axis == "plain"]
    for wish in islice(plain, 5):
        pictures = bench.paint([wish.text] * ALIKE)
        scenes = [_again(wish.scene, rng) for _ in range(ALIKE)]
        drawn = [draw(scene, bench.critic.sprites) for scene in scenes]
        ratios.append(spread(pictures) / spread(drawn))
        right += bench.critic.verdicts([wish] * ALIKE, pictures)
    return {"variety": float(np.mean(ratios)), "variety_object": shares(right)["object"][0]}


def _again(scene: Scene, rng: random.Random) -> Scene:
    """The scene's one thing at another place and size that the same words allow."""
    thing = scene.things[0]
    return replace(scene, things=(place(rng, thing.name, thing.position, thing.size),))


def spread(pictures: Sequence[np.ndarray]) -> float:
    """Mean distance of all pairs: root of the mean squared difference, 0 to 255."""
    pairs = combinations([pixels.astype(float) for pixels in pictures], 2)
    return float(np.mean([np.sqrt(np.square(a - b).mean()) for a, b in pairs]))


def sizes(bench: Bench, wishes: Sequence[Wish]) -> Numbers:
    """Object and place at every size that the page's buttons make."""
    chosen = [wish for wish in wishes if wish.axis == "position"]
    verdicts, numbers = [], {}
    for i, (width, height) in enumerate(page_sizes(bench.spec)):
        first = i * AT_EACH_SIZE
        turn = [chosen[k % len(chosen)] for k in range(first, first + AT_EACH_SIZE)]
        found = bench.judged(turn, replace(bench.settings, width=width, height=height))
        for name in ("object", "position"):
            numbers[f"{name}_{width}x{height}"] = shares(found)[name][0]
        verdicts += found
    in_all = shares(verdicts)
    return numbers | {f"{name}_all_sizes": in_all[name][0] for name in ("object", "position")}


def page_sizes(spec: ModelSpec) -> list[tuple[int, int]]:
    """Width and height of every shape and area, each once."""
    made = [size_of(shape, area.key, spec, None) for area in areas(spec) for shape in RATIOS]
    return list(dict.fromkeys(made))


def unknown_words(bench: Bench, wishes: Sequence[Wish], full: Sequence[Verdict]) -> Numbers:
    """How far the share of right objects falls where words are put in that mean nothing."""
    rng = random.Random(bench.seed)
    chosen = [i for i, wish in enumerate(wishes) if wish.axis in SINGLE]
    texts = [with_unknown_words(wishes[i].text, rng) for i in chosen]
    pictures = bench.paint(texts, numbers=chosen)
    after = shares(bench.critic.verdicts([wishes[i] for i in chosen], pictures))["object"][0]
    before = shares([full[i] for i in chosen])["object"][0]
    return {"unknown_words_object": after, "unknown_words_fall": before - after}


def strangers_prompts(bench: Bench) -> tuple[list[np.ndarray], list[Verdict]]:
    """Prompts that nobody wrote with the captions in view: object, and background where said."""
    asked = strangers()
    pictures = bench.paint([stranger.text for stranger in asked])
    return pictures, [
        bench.critic.stranger_verdict(stranger, pixels)
        for stranger, pixels in zip(asked, pictures, strict=True)
    ]
