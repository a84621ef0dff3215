"""One step of many pictures, each at its own noise level.

Rows of the same token grid and text length share a forward, whatever their steps, prompts,
guidance, seeds and strengths; true classifier-free guidance gives a picture two sequences in it.
Diffusers' loop for one picture is the special case of one row.

A tick begins every group, chooses, finishes every group and settles. The first blocks of all groups
run before the device is asked, once, which sequences may skip the others: asked for each group, it
would idle between its answer and the next group. Meanwhile a group holds three tensors of the
hidden width, less than a block needs. Rows change in `settle` alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from pipelines.failures import Failure, attempt
from pipelines.first_block import Outlook, SequenceCache
from pipelines.flux import Flux, HeadState
from pipelines.row import Move, Row


@dataclass(frozen=True, slots=True, eq=False)
class Begun:
    """A group's step behind the first block."""

    rows: list[Row]
    sequences: list[Row]  # a row's prompt and its negative are two
    caches: list[SequenceCache]  # one a sequence
    places: dict[int, int]  # sequence -> its place in `state`; the others pass by the first block
    state: HeadState | None  # None where all pass by it
    outlooks: dict[int, Outlook]  # of the sequences that asked it whether they may skip


@dataclass(frozen=True, slots=True, eq=False)
class Ended:
    """A group's step with only the change of its rows left to do."""

    rows: list[Row]
    moves: list[Move]  # one a row
    is_finite: Tensor  # [rows]


def step_groups(model: Flux, groups: Sequence[Sequence[Row]]) -> list[list[Row] | Failure]:
    """One step of every group; its rows whose velocity is not finite, or why it failed.

    Those rows and the rows of failed groups have not changed, and none has where this raises.
    """
    begun = [attempt(partial(begin, model, group)) for group in groups]
    choices = iter(choose([each for each in begun if isinstance(each, Begun)]))
    ended = [
        attempt(partial(finish, model, each, next(choices))) if isinstance(each, Begun) else each
        for each in begun
    ]
    broken = iter(settle([each for each in ended if isinstance(each, Ended)]))
    return [next(broken) if isinstance(each, Ended) else each for each in ended]


def step_rows(model: Flux, rows: Sequence[Row]) -> list[Row]:
    """One step of the rows of one group; returns those whose velocity is not finite, unmoved.

    Nothing changes where it raises, so the caller may try again with fewer rows.
    """
    begun = begin(model, rows)
    (computes,) = choose([begun])
    (broken,) = settle([finish(model, begun, computes)])
    return broken


def begin(model: Flux, rows: Sequence[Row]) -> Begun:
    """The first block of a group, and what it says of the others."""
    sequences = [row for row in rows for _ in row.prompts]
    prompts = [prompt for row in rows for prompt in row.prompts]
    caches = [cache for row in rows for cache in row.caches]
    runs = [i for i, cache in enumerate(caches) if cache.must_compute or cache.asks_first_block]
    places = {sequence: place for place, sequence in enumerate(runs)}
    begun = Begun(list(rows), sequences, caches, places, None, {})
    if not runs:
        return begun
    state = model.head(
        torch.stack([sequences[i].latents for i in runs]),
        _floats(model, [sequences[i].sigma for i in runs]),
        _floats(model, [sequences[i].request.guidance_scale for i in runs]),
        [prompts[i] for i in runs],
        rows[0].grid,
        [sequences[i].references for i in runs],
        wants_residual=any(caches[i].asks_first_block for i in runs),
    )
    asking = [i for i in runs if not caches[i].must_compute]
    outlooks = {i: _outlook(state, places[i], sequences[i].sigma, caches[i]) for i in asking}
    return replace(begun, state=state, outlooks=outlooks)


def _outlook(state: HeadState, place: int, sigma: float, cache: SequenceCache) -> Outlook:
    assert state.residual is not None
    return cache.outlook(sigma, state.residual[place])


def choose(steps: Sequence[Begun]) -> list[list[bool]]:
    """Which sequences of each group compute all blocks: one copy from the device, or none."""
    misses = [outlook.miss for step in steps for outlook in step.outlooks.values()]
    known = iter(torch.stack(misses).tolist() if misses else ())
    return [[_computes(step, i, known) for i in range(len(step.caches))] for step in steps]


def _computes(step: Begun, sequence: int, known: Iterator[float]) -> bool:
    if sequence not in step.outlooks:
        return step.caches[sequence].must_compute
    # Not "at least": NaN is computed, and so found.
    return not next(known) < step.caches[sequence].rule.residual_threshold


def finish(model: Flux, begun: Begun, computes: Sequence[bool]) -> Ended:
    """The other blocks for the sequences that compute; then guidance and an Euler step."""
    velocities = _velocities(model, begun, computes)
    parts = iter(velocities)
    guided = [_guided(row, *(next(parts) for _ in row.prompts)) for row in begun.rows]
    caches = iter(_caches(begun, velocities, computes))
    moves = [
        Move(row.next_latents(velocity), velocity, tuple(next(caches) for _ in row.prompts))
        for row, velocity in zip(begun.rows, guided, strict=True)
    ]
    is_finite = torch.stack([velocity.isfinite().all() for velocity in guided])
    return Ended(begun.rows, moves, is_finite)


def settle(steps: Sequence[Ended]) -> list[list[Row]]:
    """Moves the rows of every group, by one copy from the device, and returns the broken ones."""
    finite = iter(torch.cat([step.is_finite for step in steps]).tolist() if steps else ())
    broken: list[list[Row]] = [[] for _ in steps]
    for step, left in zip(steps, broken, strict=True):
        for row, move in zip(step.rows, step.moves, strict=True):
            if next(finite):
                row.move(move)
            else:
                left.append(row)
    return broken


def _velocities(model: Flux, begun: Begun, computes: Sequence[bool]) -> list[Tensor]:
    """One a sequence: computed in one forward, or foreseen."""
    places = [begun.places[i] for i, is_computed in enumerate(computes) if is_computed]
    computed = iter(_computed(model, begun, places) if places else ())
    return [
        next(computed) if is_computed else _foreseen(begun, i)
        for i, is_computed in enumerate(computes)
    ]


def _computed(model: Flux, begun: Begun, places: list[int]) -> Tensor:
    state = begun.state
    assert state is not None
    if len(places) < len(state.picture):
        state = state.take(places)
    return model.velocity(state)


def _foreseen(begun: Begun, sequence: int) -> Tensor:
    outlook = begun.outlooks.get(sequence)
    reach = None if outlook is None else outlook.reach
    return begun.caches[sequence].foreseen_velocity(begun.sequences[sequence].sigma, reach)


def _caches(
    begun: Begun, velocities: Sequence[Tensor], computes: Sequence[bool]
) -> Iterator[SequenceCache]:
    """What the sequences remember behind this step."""
    residuals = None if begun.state is None else begun.state.residual
    for i, cache in enumerate(begun.caches):
        if computes[i]:
            residual = None if residuals is None else residuals[begun.places[i]]
            yield cache.after_computed(begun.sequences[i].sigma, residual, velocities[i])
        else:
            yield cache.after_predicted()


def _guided(row: Row, positive: Tensor, negative: Tensor | None = None) -> Tensor:
    if negative is None:
        return positive
    return negative + row.request.true_cfg_scale * (positive - negative)


def _floats(model: Flux, values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=model.device)
