"""Pictures with a cache do not depend on who shares their forwards, and off is off."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import denoise
from pipelines.cache_rules import OFF, resolve
from pipelines.denoise import step_groups, step_rows
from pipelines.engine import PictureEngine
from pipelines.failures import Failure
from pipelines.first_block import SequenceCache
from pipelines.flux import Flux
from pipelines.flux1 import Flux1
from pipelines.requests import PictureDone, RenderRequest, RequestFailed, StepDone, Warned
from pipelines.row import Row, group_rows
from tests.pipelines.conftest import load_exact
from tests.pipelines.reference import distance, photo, row_of, run
from tests.pipelines.test_engine import finish, pictures

TOLERANCE = 1e-5  # relative L2 of latents, and how close to its threshold a miss may not be

RULES = {
    "off": OFF,
    "line": resolve("balanced", residual_threshold=0.12, warmup_steps=1),
    "curve": resolve("fast", residual_threshold=0.12, taylor_order=2, warmup_steps=2, max_skips=2),
    "reuse": resolve("first_block_caching", residual_threshold=0.16),
    "interval": resolve("taylorseer", warmup_steps=2, cache_interval=3, taylor_order=2),
}
TEXT = RenderRequest("text", "a red apple", 48, 32, 7, (7,))
KINDS = {
    "text": TEXT,
    "negative": replace(TEXT, steps=6, negative_prompt="a green frog", true_cfg_scale=2.0),
    "photo": replace(TEXT, steps=9, source=photo(48, 32), strength=0.7),
    "small": replace(TEXT, width=32, steps=5),
}
POOL = [
    replace(KINDS[kind], id=f"{kind} {name}", seeds=(seed,), cache=RULES[name])
    for seed, (kind, name) in enumerate(product(KINDS, RULES))
]


@pytest.fixture(scope="module")
def calm(tiny) -> Flux:
    """Random weights whose residuals change little in a step, as those of trained ones do.

    Time runs from 8 to 0 instead of 1000 to 0: its embedding turns less from step to step.
    """
    calm = copy.copy(tiny)
    calm.scheduler_config = {**tiny.scheduler_config, "num_train_timesteps": 8}
    return calm


@dataclass(slots=True)
class Record:
    """How a row was made: for each step, whether each sequence was predicted."""

    row: Row
    steps: list[tuple[bool, ...]]


def tick(model: Flux, records: Sequence[Record], max_tokens: int = 10**9) -> None:
    """One step of all, as the engine does it."""
    before = [record.row.caches for record in records]
    groups = group_rows([record.row for record in records], max_tokens)
    with torch.inference_mode():
        assert step_groups(model, groups) == [[] for _ in groups]
    for record, old in zip(records, before, strict=True):
        pairs = zip(old, record.row.caches, strict=True)
        record.steps.append(tuple(new.predicted > was.predicted for was, new in pairs))


def alone(model: Flux, request: RenderRequest) -> Record:
    record = Record(row_of(model, request), [])
    while not record.row.is_finished:
        tick(model, [record])
    return record


@pytest.fixture(scope="module")
def solos(calm) -> dict[str, Record]:
    """Every request of the pool, alone."""
    return {request.id: alone(calm, request) for request in POOL}


def test_the_pool_has_what_the_schedules_are_to_mix(calm, solos):
    """Predicted and computed steps in turn, and no decision that rounding could turn."""
    for request in POOL:
        steps = [any(step) for step in solos[request.id].steps]
        assert not (steps[0] or steps[-1])
        assert any(steps) == (request.cache != OFF)
        assert smallest_margin(calm, request) > TOLERANCE


def smallest_margin(model: Flux, request: RenderRequest) -> float:
    """How close a miss comes to the threshold."""
    row, margins = row_of(model, request), [1.0]
    while not row.is_finished:
        with torch.inference_mode():
            begun = denoise.begin(model, [row])
            (computes,) = denoise.choose([begun])
            denoise.settle([denoise.finish(model, begun, computes)])
        if request.cache.cache_interval is None:
            threshold = request.cache.residual_threshold
            margins += [abs(float(each.miss) - threshold) for each in begun.outlooks.values()]
    return min(margins)


# Schedules


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of the pool: when it joins, and after how many steps it is cancelled."""

    request: RenderRequest
    joins: int
    steps: int | None


VISITS = st.builds(Visit, st.sampled_from(POOL), st.integers(0, 5), st.none() | st.integers(1, 5))


def in_company(model: Flux, visits: Sequence[Visit], max_tokens: int) -> list[Record]:
    """All rows of a schedule; those of a group share forwards, as in the engine."""
    records = [Record(row_of(model, visit.request), []) for visit in visits]
    for now in range(30):
        present = [
            record
            for record, visit in zip(records, visits, strict=True)
            if visit.joins <= now
            and not record.row.is_finished
            and len(record.steps) != visit.steps
        ]
        if present:
            tick(model, present, max_tokens)
    return records


def differs(ours: Record, solo: Record) -> bool:
    if ours.steps != solo.steps[: len(ours.steps)]:
        return True
    return ours.row.is_finished and distance(ours.row.latents, solo.row.latents) > TOLERANCE


def has_mixed_tick(records: Sequence[Record], visits: Sequence[Visit]) -> bool:
    """Whether in some tick one sequence was computed while another was predicted."""
    kinds: dict[int, set[bool]] = {}
    for record, visit in zip(records, visits, strict=True):
        for step, predicted in enumerate(record.steps):
            kinds.setdefault(visit.joins + step, set()).update(predicted)
    return any(len(kind) == 2 for kind in kinds.values())


def test_every_row_is_made_as_if_it_were_alone(calm, solos):
    mixed = 0

    @settings(max_examples=200, deadline=None, derandomize=True, database=None)
    @given(st.lists(VISITS, min_size=1, max_size=4), st.sampled_from([70, 10**9]))
    def check(visits, max_tokens):
        nonlocal mixed
        records = in_company(calm, visits, max_tokens)
        for record in records:
            assert not differs(record, solos[record.row.request.id])
        mixed += has_mixed_tick(records, visits)

    check()
    assert mixed > 50


COMPANY = [
    Visit(POOL[1], 0, None),  # text line
    Visit(POOL[3], 1, None),  # text reuse
    Visit(POOL[11], 2, None),  # photo line
    Visit(POOL[7], 2, None),  # negative curve
]


def _one_decision_a_group(monkeypatch):
    """As the caches of diffusers, cache-dit and ParaAttention: computed where anybody needs it."""
    real = denoise.choose
    monkeypatch.setattr(
        denoise, "choose", lambda steps: [[any(group)] * len(group) for group in real(steps)]
    )


def _state_of_the_group(monkeypatch):
    """Everybody is given what the first sequence remembers."""

    def foreseen(begun, sequence):
        cache = next(each for each in begun.caches if each.velocities is not None)
        outlook = begun.outlooks.get(sequence)
        reach = None if outlook is None else outlook.reach
        return cache.foreseen_velocity(begun.sequences[sequence].sigma, reach)

    monkeypatch.setattr(denoise, "_foreseen", foreseen)


def _compared_with_the_step_before(monkeypatch):
    """A slow drift is never seen where each predicted step moves what the next compares with."""
    real = denoise._caches

    def caches(begun, velocities, computes):
        for i, cache in enumerate(real(begun, velocities, computes)):
            if computes[i] or cache.residuals is None:
                yield cache
            else:
                residual = begun.state.residual[begun.places[i]]
                sigma = begun.sequences[i].sigma
                moved = replace(cache.residuals, differences=(residual,), sigmas=(sigma,))
                yield replace(cache, residuals=moved)

    monkeypatch.setattr(denoise, "_caches", caches)


@pytest.mark.parametrize(
    "break_it", [_one_decision_a_group, _state_of_the_group, _compared_with_the_step_before]
)
def test_a_broken_cache_is_noticed(calm, solos, monkeypatch, break_it):
    def differ() -> int:
        records = in_company(calm, COMPANY, 10**9)
        return sum(differs(record, solos[record.row.request.id]) for record in records)

    assert differ() == 0
    break_it(monkeypatch)
    assert differ() > 0


def test_a_row_that_takes_a_place_sees_nothing_of_who_had_it(calm, solos):
    leaves, stays, joins = (Record(row_of(calm, POOL[i]), []) for i in (1, 3, 2))
    for _ in range(4):
        tick(calm, [leaves, stays])
    assert leaves.row.caches[0].velocities is not None  # there was something to see
    while not joins.row.is_finished:
        tick(calm, [joins, *([] if stays.row.is_finished else [stays])])
    assert joins.steps[0] == (False,)
    assert not differs(joins, solos[POOL[2].id]) and not differs(stays, solos[POOL[3].id])


def test_the_two_prompts_of_true_guidance_decide_apart(calm):
    request = replace(KINDS["negative"], cache=replace(RULES["line"], taylor_order=0))
    row = row_of(calm, request)
    with torch.inference_mode():
        step_rows(calm, [row])
        begun = denoise.begin(calm, [row])
        low, high = sorted(float(outlook.miss) for outlook in begun.outlooks.values())
    between = replace(request.cache, residual_threshold=(low + high) / 2)
    record = alone(calm, replace(request, cache=between))
    assert sorted(record.steps[1]) == [False, True]
    tails = sum(not predicted for step in record.steps for predicted in step)
    assert record.row.steps_predicted == (2 * request.steps - tails) // 2


# Failures


@pytest.mark.parametrize(
    "owner, name",
    [(Flux1, "head"), (Flux1, "tail"), (Flux1, "out"), (SequenceCache, "after_computed")],
)
@pytest.mark.parametrize("after", [0, 2, 5])
def test_a_step_that_raises_leaves_all_as_it_was(calm, solos, monkeypatch, owner, name, after):
    requests = [POOL[i] for i in (1, 3, 7)]
    rows = [row_of(calm, request) for request in requests]
    records = [Record(row, []) for row in rows]
    for _ in range(after):
        tick(calm, records)
    before = [(row.position, row.caches, row.latents, row.velocity) for row in rows]

    def broken(*arguments, **options):
        raise RuntimeError("out of luck")

    with monkeypatch.context() as patched, torch.inference_mode():
        patched.setattr(owner, name, broken)
        with pytest.raises(RuntimeError, match="out of luck"):
            step_rows(calm, rows)
    after_it = [(row.position, row.caches, row.latents, row.velocity) for row in rows]
    assert all(
        a is b
        for old, new in zip(before, after_it, strict=True)
        for a, b in zip(old, new, strict=True)
    )
    while unfinished := [record for record in records if not record.row.is_finished]:
        tick(calm, unfinished)
    assert not any(differs(record, solos[record.row.request.id]) for record in records)


def test_one_group_that_raises_leaves_the_others(calm, solos, monkeypatch):
    """The first blocks of both ran before it did."""
    wide, small = (Record(row_of(calm, POOL[i]), []) for i in (1, 16))
    real = Flux1.tail

    def tail(self, state):
        if state.picture.shape[1] == wide.row.grid.tokens:
            raise RuntimeError("out of luck")
        return real(self, state)

    monkeypatch.setattr(Flux1, "tail", tail)
    with torch.inference_mode():
        failure, broken = step_groups(calm, [[wide.row], [small.row]])
    assert isinstance(failure, Failure) and "out of luck" in failure.message
    assert broken == []
    assert (wide.row.steps_done, small.row.steps_done) == (0, 1)


def test_a_row_that_is_not_finite_fails_alone(calm, solos):
    sick, well = Record(row_of(calm, POOL[1]), []), Record(row_of(calm, POOL[3]), [])
    for _ in range(2):
        tick(calm, [sick, well])
    sick.row.latents = sick.row.latents * torch.nan
    remembered = sick.row.caches
    with torch.inference_mode():
        assert step_rows(calm, [sick.row, well.row]) == [sick.row]
    assert sick.row.caches is remembered and sick.row.steps_done == 2
    while not well.row.is_finished:
        tick(calm, [well])
    assert distance(well.row.latents, solos[POOL[3].id].row.latents) < TOLERANCE


def test_the_next_picture_after_a_failed_one_is_right(calm, monkeypatch):
    request = replace(POOL[1], id="r", seeds=(1,))

    def picture(engine):
        engine.submit(request)
        return pictures(finish(engine))[0].pixels.tobytes()

    expected = picture(PictureEngine(calm))
    engine = PictureEngine(calm)
    engine.submit(replace(request, id="bad"))
    for _ in range(4):
        engine.tick()
    with monkeypatch.context() as patched:
        patched.setattr(Flux1, "head", lambda *arguments, **options: 1 / 0)
        assert isinstance(engine.tick()[-1], RequestFailed)
    assert picture(engine) == expected


# Off


def test_off_is_the_plain_loop_to_the_bit(calm):
    rows = [row_of(calm, replace(POOL[0], seeds=(seed,), steps=4)) for seed in (1, 2)]
    latents = torch.stack([row.latents for row in rows])
    with torch.inference_mode():
        for sigma, after in zip(rows[0].sigmas[:-1], rows[0].sigmas[1:], strict=True):
            prompts, guidance = [row.prompt for row in rows], torch.full((2,), 3.5)
            levels = torch.full((2,), sigma)
            state = calm.head(latents, levels, guidance, prompts, rows[0].grid)
            latents = latents + (after - sigma) * calm.out(calm.tail(state), state.modulation)
    for ours, theirs in zip(run(calm, rows), latents, strict=True):
        assert torch.equal(ours, theirs)


def test_off_is_the_transformer_to_the_bit(tiny):
    row = row_of(tiny, replace(POOL[0], steps=4))
    ids = [(0, y, x) for y in range(row.grid.height) for x in range(row.grid.width)]
    latents = row.latents[None]
    with torch.inference_mode():
        for sigma, after in zip(row.sigmas[:-1], row.sigmas[1:], strict=True):
            (velocity,) = tiny.transformer(
                hidden_states=latents,
                timestep=torch.tensor([sigma]) * 1000 / 1000,
                guidance=torch.tensor([3.5]),
                pooled_projections=row.prompt.pooled[None],
                encoder_hidden_states=row.prompt.text[None],
                txt_ids=torch.zeros(row.prompt.text.shape[0], 3),
                img_ids=torch.tensor(ids, dtype=torch.float32),
                return_dict=False,
            )
            latents = latents + (after - sigma) * velocity
    assert torch.equal(run(tiny, [row])[0], latents[0])


@pytest.mark.parametrize("rule", [OFF, resolve("balanced", warmup_steps=50)])
def test_a_group_that_never_predicts_measures_nothing(calm, rule):
    rows = [row_of(calm, replace(TEXT, cache=rule, seeds=(seed,))) for seed in (1, 2)]
    with torch.inference_mode():
        step_rows(calm, rows)
        begun = denoise.begin(calm, rows)
    assert begun.state is not None and begun.state.residual is None and begun.outlooks == {}
    assert all(cache.velocities is None for cache in begun.caches)


def test_an_interval_runs_no_block_between(calm, monkeypatch):
    """Of two pictures of one group, the other asks the first block."""
    heads: list[int] = []
    real = Flux1.head

    def head(self, latents, *rest, **more):
        heads.append(len(latents))
        return real(self, latents, *rest, **more)

    monkeypatch.setattr(Flux1, "head", head)
    interval = alone(calm, replace(TEXT, cache=RULES["interval"]))
    assert len(heads) == sum(not predicted for (predicted,) in interval.steps) < TEXT.steps
    heads.clear()
    both = [
        Record(row_of(calm, replace(TEXT, cache=RULES[name])), []) for name in ("interval", "line")
    ]
    for _ in range(TEXT.steps):
        tick(calm, both)
    assert heads == [2 - predicted for (predicted,) in interval.steps]


def test_a_tick_asks_the_device_twice_whatever_the_groups(calm, monkeypatch):
    """Once what to compute, once what is finite; and once where no residual decides."""
    asked = []
    for name in ("tolist", "item", "cpu", "__bool__", "__float__", "numpy"):
        real = getattr(torch.Tensor, name)

        def counting(self, *arguments, real=real, name=name, **options):
            asked.append(name)
            return real(self, *arguments, **options)

        monkeypatch.setattr(torch.Tensor, name, counting)
    rows = [row_of(calm, POOL[i]) for i in (1, 3, 6, 8, 16)]
    groups = group_rows(rows, 10**9)
    assert len(groups) == 2
    with torch.inference_mode():
        asked.clear()
        step_groups(calm, groups)
        assert asked == ["tolist"]  # nothing is remembered yet
        asked.clear()
        step_groups(calm, groups)
    assert asked == ["tolist", "tolist"]


def test_what_a_row_remembers_is_float32_whatever_the_model_computes_in(tiny_folder):
    coarse = load_exact(str(tiny_folder), torch.bfloat16)
    coarse.scheduler_config = {**coarse.scheduler_config, "num_train_timesteps": 8}
    record = Record(row_of(coarse, POOL[1]), [])
    for _ in range(3):
        tick(coarse, [record])
    cache = record.row.caches[0]
    assert cache.residuals is not None and cache.velocities is not None
    kept = [*cache.residuals.differences, *cache.velocities.differences]
    assert {x.dtype for x in kept} == {torch.float32}
    while not record.row.is_finished:
        tick(coarse, [record])
    assert record.row.steps_predicted > 0 and record.row.latents.isfinite().all()


# What is told


def test_computed_and_predicted_steps_are_told(calm, solos):
    engine = PictureEngine(calm)
    request = replace(POOL[1], seeds=POOL[1].seeds)
    engine.submit(request)
    events = finish(engine)
    done = next(event for event in events if isinstance(event, PictureDone))
    steps = [event for event in events if isinstance(event, StepDone)]
    assert [step.is_predicted for step in steps] == [step[0] for step in solos[request.id].steps]
    assert done.steps_predicted == sum(step.is_predicted for step in steps) > 0
    assert done.steps_computed + done.steps_predicted == done.steps_run == request.steps


def test_off_tells_no_predicted_step(calm):
    engine = PictureEngine(calm)
    engine.submit(POOL[0])
    done = pictures(finish(engine))[0]
    assert (done.steps_run, done.steps_computed, done.steps_predicted) == (7, 7, 0)


@pytest.mark.parametrize(
    "changes, param",
    [
        ({"warmup_steps": 7}, "warmup_steps"),
        ({"warmup_steps": 6}, "warmup_steps"),  # the seventh is the last, which is never predicted
        ({"max_skips": 0}, "max_skips"),
        ({"warmup_steps": 5}, None),
    ],
)
def test_a_cache_that_does_nothing_is_told(calm, changes, param):
    engine = PictureEngine(calm)
    engine.submit(replace(TEXT, cache=resolve("balanced", **changes)))
    events = finish(engine)
    warned = [(event.code, event.param) for event in events if isinstance(event, Warned)]
    assert warned == ([("cache_idle", param)] if param else [])
    assert param is None or pictures(events)[0].steps_predicted == 0


def test_a_finished_row_holds_nothing_while_it_waits_for_its_picture(calm):
    record = alone(calm, POOL[7])
    assert all(cache.residuals is None and cache.velocities is None for cache in record.row.caches)
