"""One picture being made, and which of them share a forward."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pipelines import schedule
from pipelines.first_block import SequenceCache
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
    caches: tuple[SequenceCache, ...]  # one for each of `prompts`
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
    def sigma(self) -> float:
        return self.sigmas[self.position]

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
        return self.latents - self.sigma * self.velocity

    @property
    def steps_predicted(self) -> int:
        """Of `steps_done`. Each sequence counts its share of a step; rounded down."""
        return sum(cache.predicted for cache in self.caches) // len(self.caches)

    @property
    def was_predicted(self) -> bool:
        """The last step, for all sequences."""
        return all(cache.skips for cache in self.caches)

    def next_latents(self, velocity: Tensor) -> Tensor:
        """One Euler step of dx/dsigma = v."""
        return self.latents + (self.sigmas[self.position + 1] - self.sigma) * velocity

    def move(self, move: "Move") -> None:
        self.latents, self.velocity, self.caches = move
        self.position += 1


class Move(NamedTuple):
    """What a step changes of a row."""

    latents: Tensor
    velocity: Tensor
    caches: tuple[SequenceCache, ...]


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
    caches = (SequenceCache(request.cache, request.steps_run),) * len(prompts)
    return Row(request, index, grid, latents, sigmas, first, first, prompt, caches, negative)


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
