"""What all FLUX families share: a transformer cut where a cache can step in, a VAE, prompts.

`head`, `tail` and `out` together are the transformer's own forward, for rows that may each be at
their own noise level. Reference pictures are tokens behind those of the picture that is made; they
are read by every block and dropped at the end. Every size comes from the checkpoint's
configurations.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from pipelines.requests import Pixels
from pipelines.specs import ModelSpec

PATCH = 2  # a token is 2 x 2 latents, in every FLUX checkpoint
MAX_ROPES = 32  # a 1024 x 1024 one takes 4.7 MB


class Grid(NamedTuple):
    """Tokens of a picture, down and across."""

    height: int
    width: int

    @property
    def tokens(self) -> int:
        return self.height * self.width


class PromptLength(NamedTuple):
    """Tokens of a prompt with what the model adds to it, the limit, and the words beyond it."""

    tokens: int
    limit: int
    cut: str


@dataclass(frozen=True, slots=True)
class PromptEncoding:
    text: Tensor  # [text, joint], token by token
    pooled: Tensor | None = None  # [pooled], where the family has a vector for the whole prompt


class PromptReader(Protocol):
    """The text side of a family. A prompt is a pair: what the first and the second encoder read."""

    def encode(self, prompts: Sequence[tuple[str, str]]) -> list[PromptEncoding]: ...

    def measure(self, prompt: str) -> PromptLength:
        """Of what is read token by token."""

    def unknown_words(self, prompt: str) -> tuple[str, ...]:
        """Words that are read as unknown ones."""


@dataclass(frozen=True, slots=True)
class PictureEncoding:
    """What the VAE knows of a picture: a Gaussian over packed latents, at the VAE's scale."""

    mean: Tensor  # [tokens, packed], float32
    std: Tensor  # the same


@dataclass(frozen=True, slots=True)
class Reference:
    """A picture that the transformer looks at."""

    latents: Tensor  # [tokens, packed], float32
    grid: Grid


@dataclass(frozen=True, slots=True)
class HeadState:
    """After the first block, for rows of one grid, one text length and the same reference grids."""

    picture: Tensor  # [rows, tokens + those of the references, width]
    text: Tensor  # [rows, text, width]
    modulation: Tensor  # [rows, width]: time, guidance and, in some families, the pooled prompt
    rope: tuple[Tensor, Tensor]  # cosines and sines, each [all tokens, head]
    tokens: int  # of the picture that is made
    # What the block added to the picture that is made, [rows, tokens, width] in float32.
    residual: Tensor | None = None

    def take(self, rows: Sequence[int]) -> Self:
        """The same of these rows alone; their residual is left out."""
        index = torch.tensor(rows, device=self.picture.device)
        picture, text, modulation = (
            x.index_select(0, index) for x in (self.picture, self.text, self.modulation)
        )
        return type(self)(picture, text, modulation, self.rope, self.tokens)


class Flux(ABC):
    """One loaded checkpoint. Holds no state of any picture."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        transformer: Any,
        vae: Any,
        prompts: PromptReader,
        scheduler_config: Mapping[str, Any],
        device: torch.device,
    ) -> None:
        self.spec = spec
        self.transformer = transformer
        self.vae = vae
        self.prompts = prompts
        self.scheduler_config = scheduler_config
        self.device = device  # where it computes: weights may wait elsewhere
        self.dtype: torch.dtype = transformer.dtype
        self._ropes: dict[tuple[int, tuple[Grid, ...]], tuple[Tensor, Tensor]] = {}

    def grid(self, width: int, height: int) -> Grid:
        """Token grid of a picture of `width` x `height` pixels, both multiples of the model's."""
        multiple = self.spec.size_multiple
        return Grid(height // multiple, width // multiple)

    @abstractmethod
    def sigmas(self, steps: int, grid: Grid) -> list[float]:
        """Noise levels of a whole schedule, 1 down to 0: `steps` + 1."""

    # Pictures

    def encode_picture(self, pixels: Pixels) -> PictureEncoding:
        """The VAE's posterior of a picture whose sides are multiples of the model's."""
        x = torch.tensor(pixels).to(self.device).permute(2, 0, 1)[None]
        x = (2.0 * (x.float() / 255.0) - 1.0).to(self.vae.dtype)
        posterior = self.vae.encode(x).latent_dist
        mean, std = (pack(x[0].float()) for x in (posterior.mean, posterior.std))
        return PictureEncoding(mean, std)

    def reference(self, pixels: Pixels) -> Reference:
        """A picture to look at: the posterior's mode, as diffusers' pipelines take it."""
        height, width, _ = pixels.shape
        latents = self.standardise(self.encode_picture(pixels).mean)
        return Reference(latents, self.grid(width, height))

    @abstractmethod
    def draw_noise(self, grid: Grid, generator: torch.Generator) -> Tensor:
        """Packed noise `[tokens, packed]` of a CPU generator: the same on any device."""

    @abstractmethod
    def draw_start(
        self, encoding: PictureEncoding, grid: Grid, generator: torch.Generator
    ) -> Tensor:
        """Clean latents `[tokens, packed]` to start image-to-image from.

        Comes before the noise, and may draw from the same generator.
        """

    @abstractmethod
    def standardise(self, latents: Tensor) -> Tensor:
        """Packed latents from the VAE's scale to the transformer's."""

    @abstractmethod
    def unstandardise(self, latents: Tensor) -> Tensor:
        """The reverse of `standardise`."""

    def decode(self, latents: Tensor, grid: Grid) -> Tensor:
        """Packed `[rows, tokens, packed]` to pictures `[rows, 3, height, width]`, about -1 to 1."""
        x = unpack(self.unstandardise(latents), grid)
        return self.vae.decode(x.to(self.vae.dtype)).sample.float()

    # The transformer in three parts

    def head(
        self,
        latents: Tensor,  # [rows, tokens, packed], float32
        sigmas: Tensor,  # [rows], noise levels 1 to 0
        guidance: Tensor,  # [rows], read where the checkpoint has a guidance embedding
        prompts: Sequence[PromptEncoding],  # one a row
        grid: Grid,
        references: Sequence[Sequence[Reference]] = (),  # of each row; alike in their grids
        *,
        wants_residual: bool = False,
    ) -> HeadState:
        """Embeddings and the first block."""
        net = self.transformer
        shown, grids = _with_references(latents, grid, references)
        embedded = net.x_embedder(shown.to(self.dtype))
        text = net.context_embedder(torch.stack([prompt.text for prompt in prompts]))
        modulation = self._modulation(sigmas, guidance, prompts)
        rope = self._rope(text.shape[1], grids)
        text, picture = self._first_block(embedded, text, modulation, rope)
        tokens, residual = grid.tokens, None
        if wants_residual:
            residual = picture[:, :tokens].float() - embedded[:, :tokens].float()
        return HeadState(picture, text, modulation, rope, tokens, residual)

    @abstractmethod
    def tail(self, state: HeadState) -> Tensor:
        """All blocks but the first: `[rows, tokens, width]` of the picture that is made."""

    def out(self, picture: Tensor, modulation: Tensor) -> Tensor:
        """Velocity `[rows, tokens, packed]` in float32, from noise towards more noise."""
        net = self.transformer
        return net.proj_out(net.norm_out(picture, modulation)).float()

    @abstractmethod
    def _modulation(
        self, sigmas: Tensor, guidance: Tensor, prompts: Sequence[PromptEncoding]
    ) -> Tensor:
        """`[rows, width]`"""

    @abstractmethod
    def _first_block(
        self, picture: Tensor, text: Tensor, modulation: Tensor, rope: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Text and picture stream behind it."""

    @abstractmethod
    def _position_ids(self, text_tokens: int, grids: Sequence[Grid]) -> Tensor:
        """`[all tokens, axes]` of the text, the picture that is made and its references."""

    def _times(self, sigmas: Tensor) -> Tensor:
        """Noise levels as the time embedding takes them, 0 to 1000."""
        # Rounded as diffusers rounds them, so that bfloat16 sees the same times.
        train_steps = self.scheduler_config.get("num_train_timesteps", 1000)
        return (sigmas * train_steps).to(self.dtype) / 1000 * 1000

    def _rope(self, text_tokens: int, grids: tuple[Grid, ...]) -> tuple[Tensor, Tensor]:
        """Rotary angles, each `[all tokens, head]`."""
        key = (text_tokens, grids)
        if key not in self._ropes:
            if len(self._ropes) >= MAX_ROPES:
                self._ropes.clear()
            ids = self._position_ids(text_tokens, grids).float().to(self.device)
            self._ropes[key] = self.transformer.pos_embed(ids)
        return self._ropes[key]


def run_block(name: str, block: Any, **inputs: Any) -> Any:
    """What the block returns; an exception inside, compiled or not, carries the block's name."""
    try:
        return block(**inputs)
    except Exception as error:
        error.add_note(f"in {name}")
        raise


def _with_references(
    latents: Tensor, grid: Grid, references: Sequence[Sequence[Reference]]
) -> tuple[Tensor, tuple[Grid, ...]]:
    """Every row's latents with those of its references behind, and the grids in that order."""
    if not any(references):
        return latents, (grid,)
    rows = [torch.cat([each.latents for each in row]) for row in references]
    grids = tuple(each.grid for each in references[0])
    return torch.cat([latents, torch.stack(rows)], dim=1), (grid, *grids)


def places(grid: Grid) -> tuple[Tensor, Tensor]:
    """Row and column of every token of a grid, each `[tokens]`."""
    down, across = torch.meshgrid(
        torch.arange(grid.height), torch.arange(grid.width), indexing="ij"
    )
    return down.flatten(), across.flatten()


def pack(latents: Tensor) -> Tensor:
    """`[channels, height, width]` to tokens `[tokens, channels * 4]`, each of 2 x 2 latents."""
    channels, height, width = latents.shape
    x = latents.view(channels, height // PATCH, PATCH, width // PATCH, PATCH)
    return x.permute(1, 3, 0, 2, 4).reshape(-1, channels * PATCH * PATCH)


def unpack(latents: Tensor, grid: Grid) -> Tensor:
    """Tokens `[rows, tokens, channels * 4]` to `[rows, channels, height, width]`."""
    x = latents.unflatten(1, grid).unflatten(3, (-1, PATCH, PATCH))
    return x.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
