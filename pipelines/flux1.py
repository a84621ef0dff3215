"""The FLUX.1 family over diffusers' modules, cut where a cache can step in.

`head`, `tail` and `out` together are `FluxTransformer2DModel.forward`, for rows that may each be at
their own noise level. Every size comes from the checkpoint's configurations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel
from torch import Tensor
from transformers import CLIPTextModel, PreTrainedTokenizerBase, T5EncoderModel

from pipelines.requests import Pixels
from pipelines.specs import ModelSpec
from pipelines.unknown_words import unknown_words

PATCH = 2  # a token is 2 x 2 latents, in every FLUX.1 checkpoint
MAX_ROPES = 32  # a 1024 x 1024 one takes 4.7 MB


class Grid(NamedTuple):
    """Tokens of a picture, down and across."""

    height: int
    width: int

    @property
    def tokens(self) -> int:
        return self.height * self.width


class PromptLength(NamedTuple):
    """T5 tokens of a prompt with the closing one, the limit, and the words beyond it."""

    tokens: int
    limit: int
    cut: str


@dataclass(frozen=True, slots=True)
class PromptEncoding:
    text: Tensor  # [text, joint], T5
    pooled: Tensor  # [pooled], CLIP


@dataclass(frozen=True, slots=True)
class PictureEncoding:
    """What the VAE knows of a source picture: a Gaussian over latents."""

    mean: Tensor  # [channels, height, width], float32
    std: Tensor  # the same


@dataclass(frozen=True, slots=True)
class HeadState:
    """After the first block, for rows of one grid and one text length."""

    picture: Tensor  # [rows, tokens, width]
    text: Tensor  # [rows, text, width]
    modulation: Tensor  # [rows, width]: time, guidance and pooled prompt
    rope: tuple[Tensor, Tensor]  # cosines and sines, each [text + tokens, head]
    residual: Tensor | None = None  # what the block added to `picture`, float32, where asked for

    def take(self, rows: Sequence[int]) -> Self:
        """The same of these rows alone; their residual is left out."""
        index = torch.tensor(rows, device=self.picture.device)
        picture, text, modulation = (
            x.index_select(0, index) for x in (self.picture, self.text, self.modulation)
        )
        return type(self)(picture, text, modulation, self.rope)


class Flux1:
    """One loaded checkpoint. Holds no state of any picture."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        transformer: FluxTransformer2DModel,
        vae: AutoencoderKL,
        text_encoder: CLIPTextModel,
        text_encoder_2: T5EncoderModel,
        tokenizer: PreTrainedTokenizerBase,
        tokenizer_2: PreTrainedTokenizerBase,
        scheduler_config: Mapping[str, Any],
    ) -> None:
        self.spec = spec
        self.transformer = transformer
        self.vae = vae
        self.text_encoder = text_encoder
        self.text_encoder_2 = text_encoder_2
        self.tokenizer = tokenizer
        self.tokenizer_2 = tokenizer_2
        self.scheduler_config = scheduler_config
        self.device: torch.device = transformer.device
        self.dtype: torch.dtype = transformer.dtype
        # Both lists hold blocks of one call signature, so first and others need no distinction.
        self.blocks = [*transformer.transformer_blocks, *transformer.single_transformer_blocks]
        self.latent_channels: int = vae.config["latent_channels"]
        self._ropes: dict[tuple[int, Grid], tuple[Tensor, Tensor]] = {}

    def grid(self, width: int, height: int) -> Grid:
        """Token grid of a picture of `width` x `height` pixels, both multiples of the model's."""
        multiple = self.spec.size_multiple
        return Grid(height // multiple, width // multiple)

    # Prompts

    def measure_prompt(self, prompt: str) -> PromptLength:
        """How much of a prompt T5 reads; the closing token counts and is never cut."""
        limit = self.spec.max_sequence_length
        encoded = self.tokenizer_2(prompt, return_offsets_mapping=True, verbose=False)
        tokens = len(encoded.input_ids)
        if tokens <= limit:
            return PromptLength(tokens, limit, "")
        cut_at = encoded.offset_mapping[limit - 1][0]
        # A word that was read in part counts as lost: half a word helps nobody to find the place.
        word_at = max(prompt.rfind(" ", 0, cut_at + 1), prompt.rfind("\n", 0, cut_at + 1)) + 1
        return PromptLength(tokens, limit, prompt[word_at:].strip())

    def unknown_words(self, prompt: str) -> tuple[str, ...]:
        """Words that T5 reads, wholly or in part, as `<unk>`; not those beyond the limit."""
        encoded = self.tokenizer_2(
            prompt,
            max_length=self.spec.max_sequence_length,
            truncation=True,
            return_offsets_mapping=True,
        )
        spans, words = encoded.offset_mapping, encoded.word_ids()
        unknown_id = self.tokenizer_2.unk_token_id
        return unknown_words(prompt, encoded.input_ids, spans, words, unknown_id)

    def encode_prompts(self, prompts: Sequence[tuple[str, str]]) -> list[PromptEncoding]:
        """Encodes pairs: what CLIP reads (pooled) and what T5 reads (token by token)."""
        clip_ids = self._ids(self.tokenizer, [clip for clip, _ in prompts], None)
        limit = self.spec.max_sequence_length
        t5_ids = self._ids(self.tokenizer_2, [t5 for _, t5 in prompts], limit)
        pooled = self.text_encoder(clip_ids).pooler_output.to(self.dtype)
        text = self.text_encoder_2(t5_ids)[0].to(self.dtype)
        return [PromptEncoding(*pair) for pair in zip(text, pooled, strict=True)]

    def _ids(
        self, tokenizer: PreTrainedTokenizerBase, texts: list[str], length: int | None
    ) -> Tensor:
        encoded = tokenizer(
            texts,
            padding="max_length",
            max_length=length or tokenizer.model_max_length,
            truncation=True,
            return_tensors="pt",
        )
        return encoded.input_ids.to(self.device)

    # Pictures

    def encode_picture(self, pixels: Pixels) -> PictureEncoding:
        """The VAE's posterior of a picture; `latents_of` draws from it."""
        x = torch.tensor(pixels).to(self.device).permute(2, 0, 1)[None]
        x = (2.0 * (x.float() / 255.0) - 1.0).to(self.vae.dtype)
        posterior = self.vae.encode(x).latent_dist
        return PictureEncoding(posterior.mean[0].float(), posterior.std[0].float())

    def latents_of(self, encoding: PictureEncoding, noise: Tensor) -> Tensor:
        """A draw from the posterior, standardised for the transformer and packed."""
        drawn = encoding.mean + encoding.std * noise.to(self.device)
        return pack(self.standardise(drawn))

    def standardise(self, latents: Tensor) -> Tensor:
        """From the VAE's scale to the transformer's."""
        return (latents - self._vae_shift) * self.vae.config["scaling_factor"]

    def draw_noise(self, grid: Grid, generator: torch.Generator) -> Tensor:
        """Unpacked noise `[channels, height, width]` of a CPU generator: the same on any device."""
        shape = (1, self.latent_channels, grid.height * PATCH, grid.width * PATCH)
        return torch.randn(shape, generator=generator, dtype=torch.float32)[0]

    def decode(self, latents: Tensor, grid: Grid) -> Tensor:
        """Packed `[rows, tokens, packed]` to pictures `[rows, 3, height, width]`, about -1 to 1."""
        x = unpack(latents, grid) / self.vae.config["scaling_factor"] + self._vae_shift
        return self.vae.decode(x.to(self.vae.dtype)).sample.float()

    @property
    def _vae_shift(self) -> float:
        return self.vae.config["shift_factor"] or 0.0

    # The transformer in three parts

    def head(
        self,
        latents: Tensor,  # [rows, tokens, packed], float32
        sigmas: Tensor,  # [rows], noise levels 1 to 0
        guidance: Tensor,  # [rows], read where the checkpoint has a guidance embedding
        prompts: Sequence[PromptEncoding],  # one a row
        grid: Grid,
        *,
        wants_residual: bool = False,
    ) -> HeadState:
        """Embeddings and the first block."""
        net = self.transformer
        embedded = net.x_embedder(latents.to(self.dtype))
        text = net.context_embedder(torch.stack([prompt.text for prompt in prompts]))
        pooled = torch.stack([prompt.pooled for prompt in prompts])
        modulation = self._modulation(sigmas, guidance, pooled)
        rope = self._rope(text.shape[1], grid)
        text, picture = self._run(self.blocks[:1], embedded, text, modulation, rope)
        residual = picture.float() - embedded.float() if wants_residual else None
        return HeadState(picture, text, modulation, rope, residual)

    def tail(self, state: HeadState) -> Tensor:
        """All blocks but the first: `[rows, tokens, width]`."""
        _, picture = self._run(
            self.blocks[1:], state.picture, state.text, state.modulation, state.rope
        )
        return picture

    def out(self, picture: Tensor, modulation: Tensor) -> Tensor:
        """Velocity `[rows, tokens, packed]` in float32, from noise towards more noise."""
        net = self.transformer
        return net.proj_out(net.norm_out(picture, modulation)).float()

    def _modulation(self, sigmas: Tensor, guidance: Tensor, pooled: Tensor) -> Tensor:
        # Rounded as diffusers rounds them, so that bfloat16 sees the same times.
        train_steps = self.scheduler_config.get("num_train_timesteps", 1000)
        time = (sigmas * train_steps).to(self.dtype) / 1000 * 1000
        if not self.transformer.config["guidance_embeds"]:
            return self.transformer.time_text_embed(time, pooled)
        return self.transformer.time_text_embed(time, guidance.to(self.dtype) * 1000, pooled)

    @staticmethod
    def _run(
        blocks: Sequence[torch.nn.Module],
        picture: Tensor,
        text: Tensor,
        modulation: Tensor,
        rope: tuple[Tensor, Tensor],
    ) -> tuple[Tensor, Tensor]:
        for block in blocks:
            text, picture = block(
                hidden_states=picture,
                encoder_hidden_states=text,
                temb=modulation,
                image_rotary_emb=rope,
            )
        return text, picture

    def _rope(self, text_tokens: int, grid: Grid) -> tuple[Tensor, Tensor]:
        """Rotary angles: text at the origin, each picture token at its row and column."""
        key = (text_tokens, grid)
        if key not in self._ropes:
            if len(self._ropes) >= MAX_ROPES:
                self._ropes.clear()
            down, across = torch.meshgrid(
                torch.arange(grid.height), torch.arange(grid.width), indexing="ij"
            )
            picture = torch.stack([torch.zeros_like(down), down, across], dim=-1).flatten(0, 1)
            ids = torch.cat([torch.zeros(text_tokens, 3), picture.float()])
            self._ropes[key] = self.transformer.pos_embed(ids.to(self.device))
        return self._ropes[key]


def pack(latents: Tensor) -> Tensor:
    """`[channels, height, width]` to tokens `[tokens, channels * 4]`, each of 2 x 2 latents."""
    channels, height, width = latents.shape
    x = latents.view(channels, height // PATCH, PATCH, width // PATCH, PATCH)
    return x.permute(1, 3, 0, 2, 4).reshape(-1, channels * PATCH * PATCH)


def unpack(latents: Tensor, grid: Grid) -> Tensor:
    """Tokens `[rows, tokens, channels * 4]` to `[rows, channels, height, width]`."""
    x = latents.unflatten(1, grid).unflatten(3, (-1, PATCH, PATCH))
    return x.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
