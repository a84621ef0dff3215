"""A VAE decoder that works in strips above a size, exactly.

Tiled decoding, the usual way out of memory, gives another picture: each tile has its own GroupNorm
moments and its own attention, and seams are blended. Here the decoder is walked layer by layer over
strips of whole rows. A convolution reads a row more on both sides, its halo; a GroupNorm takes the
moments of the whole picture, gathered while its input was made; attention runs whole, at latent
size. What remains of a difference is rounding.

FLUX.1's decoder holds six times 128 channels of full size at its peak; this one two, and a few
strips. On a GPU those two wait on the host.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from diffusers.models.attention_processor import Attention
from diffusers.models.autoencoders.vae import Decoder
from diffusers.models.resnet import ResnetBlock2D
from diffusers.models.unets.unet_2d_blocks import UNetMidBlock2D, UpDecoderBlock2D
from diffusers.models.upsampling import Upsample2D
from torch import Tensor, nn

from pipelines.strips import Strips

HALO = 1  # rows that a 3 x 3 convolution reads beyond its own
# Of the wider side of a layer. CUDA: 64 rows of 1024 pixels and 256 channels, calculated: such a
# convolution takes as long as its launches. CPU: 16 MB, which the allocator keeps for the next one;
# with half of FLUX.1's channels at 512 x 512, strips of 2^19, 2^20, 2^21 and 2^22 took 0.85, 0.75,
# 0.72 and 0.80 of the plain decode's time on one core, and wider pictures lose more to halos.
STRIP_ELEMENTS = {"cuda": 2**24, "cpu": 2**22}
log = logging.getLogger(__name__)


class UnknownLayer(Exception):
    """A part of the decoder of which nobody here knows how far it looks."""


class Strip(NamedTuple):
    """Rows `top` to before `bottom` of a layer's input, and what the layer made of them."""

    top: int
    bottom: int
    made: Tensor


class StripDecoder(nn.Module):
    """Takes the place of `vae.decoder`, which still decodes what has `max_plain_px` or less."""

    def __init__(self, plain: nn.Module, max_plain_px: int, strip_elements: int) -> None:
        """`max_plain_px` counts all pictures of a batch. Raises UnknownLayer."""
        super().__init__()
        self.layers = layers_of(plain)  # a list, no ModuleList: the weights stay those of `plain`
        self.plain = plain
        self.max_plain_px = max_plain_px
        self.strip_elements = strip_elements

    def forward(self, latents: Tensor) -> Tensor:
        """`[pictures, channels, height, width]` to `[pictures, 3, scaled height, scaled width]`."""
        pictures, _, height, width = latents.shape
        doublings = sum(isinstance(layer, Upsample2D) for layer in self.layers)
        if pictures * height * width * 4**doublings <= self.max_plain_px:
            return self.plain(latents)
        return torch.cat([self._decode(alone) for alone in latents.split(1)])

    def _decode(self, latents: Tensor) -> Tensor:
        x = Strips()
        x.append(latents)
        for layer in self.layers:
            x = self._run(layer, x)
        return self._finish(x)

    def _run(self, layer: nn.Module, x: Strips) -> Strips:
        if isinstance(layer, ResnetBlock2D):
            return self._resnet(layer, x)
        y = Strips()
        if isinstance(layer, Attention):
            whole = layer(x.rows(0, x.height))
            for part in whole.split(self._rows(x.channels, x.width), dim=2):
                y.append(part)
            return y
        for strip in self._strips(x, layer):
            y.append(strip.made)
            x.forget(strip.bottom - HALO)
        return y

    def _resnet(self, block: Any, x: Strips) -> Strips:
        """skip + conv2(act(norm2(conv1(act(norm1(x)))))), its input freed as early as can be."""
        hidden, y = Strips(), Strips()
        skip = x if block.conv_shortcut is None else Strips()
        for strip in self._strips(x, block.conv1, block.norm1):
            hidden.append(strip.made)
            if skip is not x:
                skip.append(block.conv_shortcut(x.rows(strip.top, strip.bottom)))
                x.forget(strip.bottom - HALO)
        for strip in self._strips(hidden, block.conv2, block.norm2):
            made = strip.made.add_(skip.rows(strip.top, strip.bottom))
            y.append(made.div_(block.output_scale_factor))
            skip.forget(strip.bottom)
        return y

    def _finish(self, x: Strips) -> Tensor:
        """The last norm and convolution, into the picture."""
        plain: Any = self.plain
        picture: Tensor | None = None
        for strip in self._strips(x, plain.conv_out, plain.conv_norm_out):
            if picture is None:
                picture = strip.made.new_empty((*strip.made.shape[:2], x.height, x.width))
            picture[:, :, strip.top : strip.bottom] = strip.made
            x.forget(strip.bottom - HALO)
        assert picture is not None
        return picture

    def _strips(self, x: Strips, conv: Any, norm: nn.GroupNorm | None = None) -> Iterator[Strip]:
        """conv(silu(norm(x))), or only conv(x).

        At the picture's edges the convolution pads as ever; elsewhere what it made of the halo is
        cut off.
        """
        prepare = _norm_and_silu(norm, x) if norm else _as_it_is
        scale = 2 if isinstance(conv, Upsample2D) else 1
        rows = self._rows(max(x.channels, conv.out_channels * scale**2), x.width)
        for top in range(0, x.height, rows):
            bottom = min(top + rows, x.height)
            first = max(0, top - HALO)
            made = conv(prepare(x.rows(first, bottom + HALO)))
            yield Strip(top, bottom, made[:, :, scale * (top - first) : scale * (bottom - first)])

    def _rows(self, channels: int, width: int) -> int:
        return max(1, self.strip_elements // (channels * width))


def _norm_and_silu(norm: nn.GroupNorm, x: Strips) -> Callable[[Tensor], Tensor]:
    """For rows of `x`, by the moments of all its rows."""
    scale, shift = x.moments.scale_and_shift(norm)

    def prepare(rows: Tensor) -> Tensor:
        normed = (rows.float() * scale).add_(shift)  # `addcmul` would leave the rows' layout
        return F.silu(normed, inplace=True).to(rows.dtype)

    return prepare


def _as_it_is(rows: Tensor) -> Tensor:
    return rows


def layers_of(decoder: Any) -> list[Any]:
    """The decoder's layers in order, all but the last norm and convolution. Raises UnknownLayer."""
    _check(decoder, type(decoder) is Decoder and _is_norm(decoder.conv_norm_out))
    _check(decoder.conv_act, type(decoder.conv_act) is nn.SiLU)
    _check(decoder.mid_block, type(decoder.mid_block) is UNetMidBlock2D)
    resnets, attentions = decoder.mid_block.resnets, decoder.mid_block.attentions
    layers = [decoder.conv_in, resnets[0]]
    for attention, resnet in zip(attentions, resnets[1:], strict=True):
        layers += [resnet] if attention is None else [attention, resnet]
    for block in decoder.up_blocks:
        _check(block, type(block) is UpDecoderBlock2D)
        layers += [*block.resnets, *(block.upsamplers or [])]
    for layer in [*layers, decoder.conv_out]:
        _check(layer, _is_known(layer))
    return layers


def _is_known(layer: Any) -> bool:
    if type(layer) is ResnetBlock2D:
        return _is_known_resnet(layer)
    if type(layer) is Upsample2D:
        return layer.interpolate and layer.norm is None and _is_conv(layer.conv)
    return type(layer) is Attention or _is_conv(layer)


def _is_known_resnet(block: Any) -> bool:
    return (
        (block.upsample, block.downsample, block.time_emb_proj) == (None, None, None)
        and block.time_embedding_norm in ("default", "group")  # neither does anything without time
        and block.dropout.p == 0
        and type(block.nonlinearity) is nn.SiLU
        and _is_norm(block.norm1)
        and _is_norm(block.norm2)
        and _is_conv(block.conv1)
        and _is_conv(block.conv2)
        and (block.conv_shortcut is None or _is_pointwise(block.conv_shortcut))
    )


def _is_norm(norm: Any) -> bool:
    return type(norm) is nn.GroupNorm and norm.affine


def _is_pointwise(conv: Any) -> bool:
    return _is_conv(conv) and conv.kernel_size == (1, 1)


def _is_conv(conv: Any) -> bool:
    """Whether it looks no further than the halo, and sees zeros beyond the picture."""
    return (
        type(conv) is nn.Conv2d
        and conv.stride == conv.dilation == (1, 1)
        and (conv.kernel_size, conv.padding) in (((3, 3), (1, 1)), ((1, 1), (0, 0)))
        and conv.padding_mode == "zeros"
    )


def _check(part: nn.Module, is_known: bool) -> None:
    if not is_known:
        raise UnknownLayer(type(part).__name__)


def use_strips(vae: Any, max_plain_px: int) -> StripDecoder | None:
    """Lets `vae.decode` work in strips above that many pixels, where its decoder is known."""
    if isinstance(vae.decoder, StripDecoder):
        vae.decoder.max_plain_px = max_plain_px
        return vae.decoder
    elements = STRIP_ELEMENTS.get(vae.device.type, STRIP_ELEMENTS["cpu"])
    try:
        vae.decoder = StripDecoder(vae.decoder, max_plain_px, elements)
    except UnknownLayer as unknown:
        log.warning("No decoding in strips: the VAE's decoder has an unknown %s", unknown)
        return None
    return vae.decoder
