"""What all FLUX families share: a transformer cut where a cache can step in, a VAE, prompts.

`head`, `tail` and `out` together are the transformer's own forward, for rows that may each be at
their own noise level. Reference pictures are tokens behind those of the picture that is made; they
are read by every block and dropped at the end. Every size comes from the checkpoint's
configurations.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

import torch
from torch import Tensor

from pipelines.graphs import Function, Graphs, Outputs
from pipelines.grid import Grid, pack, unpack
from pipelines.requests import Pixels
from pipelines.specs import ModelSpec

MAX_ROPES = 32  # a 1024 x 1024 one takes 4.7 MB


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
    grids: tuple[Grid, ...]  # of the picture that is made, then of its references
    # What the block added to the picture that is made, [rows, tokens, width] in float32.
    residual: Tensor | None = None

    @property
    def tokens(self) -> int:
        """Of the picture that is made."""
        return self.grids[0].tokens

    def take(self, rows: Sequence[int]) -> Self:
        """The same of these rows alone; their residual is left out."""
        index = torch.tensor(rows, device=self.picture.device)
        picture, text, modulation = (
            x.index_select(0, index) for x in (self.picture, self.text, self.modulation)
        )
        return type(self)(picture, text, modulation, self.rope, self.grids)


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
        self.graphs: Graphs | None = None  # set where small forwards are to be recorded
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
        shown, grids = _with_references(latents, grid, references)
        text = torch.stack([prompt.text for prompt in prompts])
        pooled = [prompt.pooled for prompt in prompts if prompt.pooled is not None]
        inputs = [shown, text, sigmas, guidance, *([torch.stack(pooled)] if pooled else [])]
        rope = self._rope(text.shape[1], grids)
        function = partial(self._head, rope, grid.tokens, wants_residual)
        key = ("head", text.shape[1], grids, wants_residual)
        picture, text, modulation, residual = self._recorded(key, function, inputs, rope)
        assert picture is not None and text is not None and modulation is not None
        return HeadState(picture, text, modulation, rope, grids, residual)

    def _head(
        self,
        rope: tuple[Tensor, Tensor],
        tokens: int,
        wants_residual: bool,
        shown: Tensor,
        text: Tensor,
        sigmas: Tensor,
        guidance: Tensor,
        pooled: Tensor | None = None,
    ) -> Outputs:
        net = self.transformer
        embedded = net.x_embedder(shown.to(self.dtype))
        text = net.context_embedder(text)
        modulation = self._modulation(sigmas, guidance, pooled)
        text, picture = self._first_block(embedded, text, modulation, rope)
        residual = None
        if wants_residual:
            residual = picture[:, :tokens].float() - embedded[:, :tokens].float()
        return picture, text, modulation, residual

    def velocity(self, state: HeadState) -> Tensor:
        """The rest of the forward: `tail`, then `out`."""

        function = partial(self._rest, state.rope, state.grids)
        inputs = [state.picture, state.text, state.modulation]
        key = ("rest", state.text.shape[1], state.grids)
        (velocity,) = self._recorded(key, function, inputs, state.rope)
        assert velocity is not None
        return velocity

    def _rest(
        self,
        rope: tuple[Tensor, Tensor],
        grids: tuple[Grid, ...],
        picture: Tensor,
        text: Tensor,
        modulation: Tensor,
    ) -> Outputs:
        state = HeadState(picture, text, modulation, rope, grids)
        return (self.out(self.tail(state), modulation),)

    def _recorded(
        self,
        key: Hashable,
        function: Function,
        inputs: Sequence[Tensor],
        rope: tuple[Tensor, Tensor],
    ) -> Outputs:
        """By a recording, where there are any; the angles have one row a token."""
        if self.graphs is None:
            return function(*inputs)
        return self.graphs.run(key, function, inputs, len(rope[0]))

    @abstractmethod
    def tail(self, state: HeadState) -> Tensor:
        """All blocks but the first: `[rows, tokens, width]` of the picture that is made."""

    def out(self, picture: Tensor, modulation: Tensor) -> Tensor:
        """Velocity `[rows, tokens, packed]` in float32, from noise towards more noise."""
        net = self.transformer
        return net.proj_out(net.norm_out(picture, modulation)).float()

    @abstractmethod
    def _modulation(self, sigmas: Tensor, guidance: Tensor, pooled: Tensor | None) -> Tensor:
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
