"""One picture being made, and which of them share a forward."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pipelines.first_block import SequenceCache
from pipelines.flux import Flux, PictureEncoding, PromptEncoding, Reference
from pipelines.grid import Grid
from pipelines.requests import RenderRequest

GroupKey = tuple[Grid, int, tuple[Grid, ...]]


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
    references: tuple[Reference, ...] = ()
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
        """What rows of one forward share; weights of their own (LoRA) would belong here."""
        return self.grid, self.prompt.text.shape[0], tuple(each.grid for each in self.references)

    @property
    def prompts(self) -> tuple[PromptEncoding, ...]:
        return (self.prompt,) if self.negative is None else (self.prompt, self.negative)

    @property
    def tokens(self) -> int:
        pictures = self.grid.tokens + sum(each.grid.tokens for each in self.references)
        return len(self.prompts) * (pictures + self.prompt.text.shape[0])

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


@dataclass(frozen=True, slots=True)
class Conditioning:
    """What all pictures of a request share, encoded once."""

    prompts: Sequence[PromptEncoding]  # one, or one and the negative
    source: PictureEncoding | None = None
    references: tuple[Reference, ...] = ()


def new_row(model: Flux, request: RenderRequest, index: int, given: Conditioning) -> Row:
    """Row of picture `index` with its noise drawn."""
    grid = model.grid(request.width, request.height)
    sigmas = model.sigmas(request.steps, grid)
    first = request.steps - request.steps_run
    latents = _first_latents(model, grid, request.seeds[index], sigmas[first], given.source)
    prompt, negative = given.prompts if len(given.prompts) == 2 else (given.prompts[0], None)
    caches = (SequenceCache(request.cache, request.steps_run),) * len(given.prompts)
    return Row(
        request=request,
        index=index,
        grid=grid,
        latents=latents,
        sigmas=sigmas,
        first=first,
        position=first,
        prompt=prompt,
        caches=caches,
        negative=negative,
        references=given.references,
    )


def _first_latents(
    model: Flux, grid: Grid, seed: int, sigma: float, source: PictureEncoding | None
) -> Tensor:
    generator = torch.Generator("cpu").manual_seed(seed)
    if source is None:
        return model.draw_noise(grid, generator).to(model.device)
    clean = model.draw_start(source, grid, generator)
    noise = model.draw_noise(grid, generator).to(model.device)
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
