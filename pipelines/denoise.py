"""One step of many pictures, each at its own noise level.

A `Row` is one picture being made. Rows of the same token grid and text length share a forward,
whatever their steps, prompts, guidance, seeds and strengths; true classifier-free guidance gives a
picture two sequences in it. Diffusers' loop for one picture is the special case of one row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pipelines import schedule
from pipelines.flux1 import Flux1, Grid, PictureEncoding, PromptEncoding, pack
from pipelines.requests import RenderRequest

GroupKey = tuple[Grid, int]


@dataclass(slots=True, eq=False)
class Row:
    """`position` counts from the start of the whole schedule, `first` is where this row began."""

    request: RenderRequest
    index: int  # of the picture in its request
    grid: Grid
    latents: Tensor  # [tokens, packed], float32
    sigmas: list[float]  # 1 down to 0
    first: int
    position: int
    prompt: PromptEncoding
    negative: PromptEncoding | None = None  # set: true classifier-free guidance
    velocity: Tensor | None = None  # of the last step, the shape of `latents`
    previewed_s: float = -math.inf  # when it was last shown, by the engine's clock

    @property
    def seed(self) -> int:
        return self.request.seeds[self.index]

    @property
    def steps(self) -> int:
        return len(self.sigmas) - 1 - self.first

    @property
    def steps_done(self) -> int:
        return self.position - self.first

    @property
    def is_finished(self) -> bool:
        return self.steps_done == self.steps

    @property
    def group(self) -> GroupKey:
        return self.grid, self.prompt.text.shape[0]

    @property
    def prompts(self) -> tuple[PromptEncoding, ...]:
        return (self.prompt,) if self.negative is None else (self.prompt, self.negative)

    @property
    def tokens(self) -> int:
        return len(self.prompts) * (self.grid.tokens + self.prompt.text.shape[0])

    def clean_latents(self) -> Tensor:
        """The finished picture as the last step foresees it: x0 = x - sigma * v."""
        assert self.velocity is not None
        return self.latents - self.sigmas[self.position] * self.velocity

    def advance(self, velocity: Tensor) -> None:
        """One Euler step of dx/dsigma = v."""
        step = self.sigmas[self.position + 1] - self.sigmas[self.position]
        self.latents = self.latents + step * velocity
        self.velocity = velocity
        self.position += 1


def new_row(
    model: Flux1,
    request: RenderRequest,
    index: int,
    prompts: Sequence[PromptEncoding],
    source: PictureEncoding | None,
) -> Row:
    """Row of picture `index` with its noise drawn; `prompts` is one, or one and the negative."""
    grid = model.grid(request.width, request.height)
    sigmas = schedule.sigmas(request.steps, grid.tokens, model.scheduler_config)
    first = request.steps - request.steps_run
    latents = _first_latents(model, grid, request.seeds[index], sigmas[first], source)
    prompt, negative = prompts if len(prompts) == 2 else (prompts[0], None)
    return Row(request, index, grid, latents, sigmas, first, first, prompt, negative)


def _first_latents(
    model: Flux1, grid: Grid, seed: int, sigma: float, source: PictureEncoding | None
) -> Tensor:
    # Diffusers' image-to-image draws the posterior's noise first and from the same generator;
    # without a source the first draw is the noise.
    generator = torch.Generator("cpu").manual_seed(seed)
    if source is None:
        return pack(model.draw_noise(grid, generator)).to(model.device)
    clean = model.latents_of(source, model.draw_noise(grid, generator))
    noise = pack(model.draw_noise(grid, generator)).to(model.device)
    return sigma * noise + (1.0 - sigma) * clean


def group_rows(rows: Sequence[Row], max_tokens: int) -> list[list[Row]]:
    """Rows that share a forward, at most `max_tokens` in one unless a single row has more."""
    groups: list[list[Row]] = []
    open_groups: dict[GroupKey, list[Row]] = {}
    for row in rows:
        group = open_groups.get(row.group)
        if group is None or sum(each.tokens for each in group) + row.tokens > max_tokens:
            group = open_groups[row.group] = []
            groups.append(group)
        group.append(row)
    return groups


def step_rows(model: Flux1, rows: Sequence[Row]) -> list[Row]:
    """One step of the rows of one group; returns those whose velocity is not finite, unmoved.

    Nothing changes where it raises, so the caller may try again with fewer rows.
    """
    velocities = _velocities(model, rows)
    finite = torch.stack([v.isfinite().all() for v in velocities]).tolist()
    for row, velocity, is_finite in zip(rows, velocities, finite, strict=True):
        if is_finite:
            row.advance(velocity)
    return [row for row, is_finite in zip(rows, finite, strict=True) if not is_finite]


def _velocities(model: Flux1, rows: Sequence[Row]) -> list[Tensor]:
    """One forward for every prompt of every row, then guidance: a velocity a row."""
    owners = [row for row in rows for _ in row.prompts]
    state = model.head(
        torch.stack([row.latents for row in owners]),
        _floats(model, [row.sigmas[row.position] for row in owners]),
        _floats(model, [row.request.guidance_scale for row in owners]),
        [prompt for row in rows for prompt in row.prompts],
        rows[0].grid,
    )
    velocities = iter(model.out(model.tail(state), state.modulation))
    return [_guided(row, *(next(velocities) for _ in row.prompts)) for row in rows]


def _guided(row: Row, positive: Tensor, negative: Tensor | None = None) -> Tensor:
    if negative is None:
        return positive
    return negative + row.request.true_cfg_scale * (positive - negative)


def _floats(model: Flux1, values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float32, device=model.device)
