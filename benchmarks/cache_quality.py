"""What step caches save and what they cost: ours, diffusers' and cache-dit's on the same pictures.

`python -m benchmarks.cache_quality` draws held-out prompts of the embedded model by every cache and
compares each picture with diffusers' own without a cache. The saving is the share of the
transformer's operations that were computed, counted call by call. A predicted step of ours
(by the residual), of FirstBlockCache and of cache-dit costs the first block, which is a twelfth of
this model and a fifty-seventh of FLUX.1: the share of steps that ran all blocks stands beside it.

Each peer gets a setting near 60, 45 and 30 % by its threshold, or by its schedule where it has
none, the best of a few on eight prompts of their own, the tuning prompts. Ours are then tuned on
those prompts to no more than what the peer computed, and both are scored on 32 other prompts.
`--quick` is a trial of the commands.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from benchmarks.contestants import our_settings, peers
from benchmarks.fidelity import Gallery, Score
from benchmarks.peers import TaylorSeer, missing_peers
from benchmarks.report import Claim, json_line
from benchmarks.tuning import Contestant, Window
from benchmarks.ways import Bench, Ours, Plain, Way, load_bench
from pipelines.cache_rules import PRESETS
from pipelines.requests import RenderRequest
from pipelines.specs import EMBEDDED, ModelSpec, find_spec
from training.prompts import AXES, held_out_wishes

STEPS = 28
TARGETS = (0.60, 0.45, 0.30)
NEAR = 0.02  # of a target: schedules have no setting in between
CLOSE = 0.02  # below a peer's fraction
TUNING_SEED, SCORING_SEED = 2001, 1001
TIMED = 3  # pictures of each way, the ways taking turns
COMPARED = 12  # of off and balanced
BALANCED, OFF = Ours(PRESETS["balanced"]), Ours(PRESETS["off"])
Requests = tuple[RenderRequest, ...]
ScoreOf = Callable[[Way], Score]


@dataclass(frozen=True, slots=True)
class Duel:
    """A peer's setting, and ours that computes as much; None where there is no such setting."""

    peer: str
    target: float
    theirs: Way | None
    ours: Way | None


class Contest:
    """All peers against ours, on the pictures of a gallery."""

    def __init__(self, gallery: Gallery, tuning: Requests, scoring: Requests) -> None:
        self._gallery = gallery
        self._tuning = tuning
        self._scoring = scoring
        self._ours = our_settings()

    def tuned(self, way: Way) -> Score:
        return self._gallery.score(way, self._tuning)

    def score(self, way: Way) -> Score:
        return self._gallery.score(way, self._scoring)

    def duel(self, peer: Contestant[Way], target: float) -> Duel:
        window = Window(target - NEAR, target + NEAR)
        theirs = peer.best(window, self.tuned)
        return Duel(peer.name, target, theirs, None if theirs is None else self.match(theirs))

    def match(self, theirs: Way) -> Way | None:
        """Our best setting on the tuning prompts of those that compute no more."""
        fraction = self.score(theirs).fraction
        return self._ours.best(Window(fraction - CLOSE, fraction), self.tuned)

    def tuning_rows(self) -> list[dict[str, Any]]:
        """Our settings that were tried, as rows of the JSON line."""
        return [
            {"name": way.name, "prompts": "tuning", **asdict(score)}
            for (way, requests), score in self._gallery.scores.items()
            if requests == self._tuning and isinstance(way, Ours)
        ]


def hold(contest: Contest, targets: Sequence[float]) -> list[Duel]:
    """Every peer at every target, and attention-only TaylorSeer where it can be, at its default."""
    missing = missing_peers()
    present = [peer for peer in peers() if peer.name not in missing]
    duels = [contest.duel(peer, target) for target in targets for peer in present]
    default = TaylorSeer()
    fraction = contest.score(default).fraction
    return [Duel("diffusers TaylorSeer", fraction, default, contest.match(default)), *duels]


# Time


def time_ways(bench: Bench, ways: Sequence[Way], requests: Requests) -> dict[Way, list[float]]:
    """Seconds a picture from the prompt to 8 bits, after one of each way that does not count."""
    seconds: dict[Way, list[float]] = {way: [] for way in ways}
    for request in (requests[0], *requests):
        for way in ways:
            with way.open(bench) as draw:
                began = time.perf_counter()
                draw(request)
                seconds[way].append(time.perf_counter() - began)
    return {way: each[1:] for way, each in seconds.items()}


# Report


def claims_of(duels: Sequence[Duel], score: ScoreOf, speed: float) -> list[Claim]:
    """`speed`: time of balanced over off's."""
    balanced = score(BALANCED)
    claims = [
        Claim("balanced: share of the operations", balanced.fraction, 0.5),
        Claim("balanced: median PSNR below 30 dB by", 30 - balanced.psnr, 0.0),
        Claim("balanced: median SSIM below 1 by", 1 - balanced.ssim, 0.05),
        Claim("balanced: time over off's", speed, 1 / 1.5),
    ]
    for duel in duels:
        if duel.theirs is not None:
            name = f"{duel.peer} at {duel.target:.0%}: median PSNR above ours by, dB"
            claims.append(Claim(name, lead(duel, score), 0.0))
    share = max((extra_share(duel, score) for duel in duels if duel.ours), default=0.0)
    return [*claims, Claim("our share of the operations above a peer's by", share, 0.02)]


def lead(duel: Duel, score: ScoreOf) -> float:
    """Their median PSNR over ours, dB; all of it where ours cannot compute as little."""
    assert duel.theirs is not None
    ours = 0.0 if duel.ours is None else score(duel.ours).psnr
    return score(duel.theirs).psnr - ours


def extra_share(duel: Duel, score: ScoreOf) -> float:
    assert duel.theirs is not None and duel.ours is not None
    return score(duel.ours).fraction - score(duel.theirs).fraction


def rows_of(
    duels: Sequence[Duel], score: ScoreOf, seconds: dict[Way, list[float]]
) -> list[dict[str, Any]]:
    """Presets, then each duel's two; and a row for each peer that could not be had."""
    off = statistics.median(seconds[OFF])

    def row(part: str, way: Way | None) -> dict[str, Any]:
        if way is None:
            return {"part": part, "name": "no setting computes that share"}
        times = seconds[way]
        return {
            "part": part,
            "name": way.name,
            "prompts": "scoring",
            **asdict(score(way)),
            "ratio": statistics.median(times) / off,
            "median_s": statistics.median(times),
            "min_s": min(times),
            "max_s": max(times),
        }

    rows = [row("preset", way) for way in fixed_ways()]
    for duel in duels:
        part = f"{duel.peer} at {duel.target:.0%}"
        rows.append(row(part, duel.theirs))
        if duel.theirs is not None:
            rows.append(row(f"ours against {part}", duel.ours))
    return rows + [
        {"part": name, "name": f"cannot be imported: {why}"}
        for name, why in missing_peers().items()
    ]


def print_table(rows: Sequence[dict[str, Any]]) -> None:
    """Scored rows with the part that they play; the JSON line has what was tried before, too."""
    print(f"{'':62}operations  steps   PSNR  worst    SSIM    time over off's (s, n = {TIMED})")
    for row in rows:
        if row.get("prompts") == "tuning":
            continue
        print(f"{row['part']}\n    {row['name']:60}{measures(row)}")


def measures(row: dict[str, Any]) -> str:
    """Empty for a setting that there is not."""
    if "fraction" not in row:
        return ""
    shares = f"{row['fraction']:7.1%} {row['steps']:7.1%}"
    quality = f"{row['psnr']:7.2f} {row['worst_psnr']:6.2f} {row['ssim']:7.4f}"
    times = f"{row['median_s']:.3f}, {row['min_s']:.3f} to {row['max_s']:.3f}"
    return f"{shares} {quality} {row['ratio']:6.2f} ({times})"


def fixed_ways() -> list[Way]:
    return [Plain(), *(Ours(rule) for rule in PRESETS.values())]


def ways_of(duels: Iterable[Duel]) -> list[Way]:
    """Each once."""
    pairs = [way for duel in duels for way in (duel.theirs, duel.ours) if way is not None]
    return list(dict.fromkeys([*fixed_ways(), *pairs]))


def requests_of(spec: ModelSpec, seed: int, an_axis: int, steps: int) -> Requests:
    """Held-out wishes, `an_axis` of each kind of scene, at the native size."""
    wishes = held_out_wishes(seed)
    chosen = [
        wish for axis in AXES for wish in islice((w for w in wishes if w.axis == axis), an_axis)
    ]
    return tuple(
        RenderRequest(
            id=f"{seed}-{i}",
            prompt=wish.text,
            width=spec.native_width,
            height=spec.native_height,
            steps=steps,
            seeds=(seed + i,),
            guidance_scale=spec.default_guidance_scale,
        )
        for i, wish in enumerate(chosen)
    )


def main() -> None:
    """Print the table, then the JSON line; `--json` prints that alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2, help="processes that draw")
    parser.add_argument("--quick", action="store_true", help="two prompts, fewer steps, one target")
    parser.add_argument("--json", action="store_true", help="print the JSON line alone")
    options = parser.parse_args()
    spec = find_spec(EMBEDDED)
    steps = 12 if options.quick else STEPS
    tuning = requests_of(spec, TUNING_SEED, 1, steps)[: 2 if options.quick else None]
    scoring = requests_of(spec, SCORING_SEED, 4, steps)[: 2 if options.quick else None]
    gallery = Gallery(spec, options.jobs)
    gallery.draw_references(tuning + scoring)
    contest = Contest(gallery, tuning, scoring)
    duels = hold(contest, TARGETS[:1] if options.quick else TARGETS)
    for way in ways_of(duels):
        contest.score(way)
    gallery.close()
    bench = load_bench(spec)
    seconds = time_ways(bench, ways_of(duels), scoring[:TIMED])
    off_s, balanced_s = time_ways(bench, (OFF, BALANCED), scoring[:COMPARED]).values()
    speed = statistics.median(balanced_s) / statistics.median(off_s)
    rows = rows_of(duels, contest.score, seconds) + contest.tuning_rows()
    if not options.json:
        print_table(rows)
    print(json_line("cache_quality", claims_of(duels, contest.score, speed), rows))


if __name__ == "__main__":
    main()
