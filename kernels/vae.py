"""A diffusers VAE on the kernels, with the modules and weights that it has, and back again.

Modules keep their class, parameters and names; only their ``forward`` is another one. All pictures
between the first and the last layer lie in channels-last memory; a norm and its SiLU are one pass,
a residual is added before the sum is written, a doubled picture is never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F
from diffusers.models.attention_processor import Attention
from diffusers.models.autoencoders.vae import Decoder, Encoder
from diffusers.models.downsampling import Downsample2D
from diffusers.models.resnet import ResnetBlock2D
from diffusers.models.upsampling import Upsample2D
from torch import Tensor, nn

from kernels.autotune import measure
from kernels.conv2d import Padding, conv2d
from kernels.group_norm import group_norm

Forward = Callable[..., Tensor]


def use_kernels(vae: nn.Module) -> None:
    """Lets an ``AutoencoderKL`` or ``AutoencoderKLFlux2`` run on the kernels.

    A layer of another kind than theirs is left as it is.
    """
    vae.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    for module, forward in _swaps(vae):
        module.forward = MethodType(forward, module)


def use_faster(vae: Any, latents: Tensor) -> bool:
    """Whether the kernels decode these latents faster on a CUDA device; uses them if so.

    The first run measures every layer's ways (`kernels.autotune`), which takes a minute once. Where
    there is no memory for a decode, nothing is swapped.
    """

    def decode() -> Tensor:
        return vae.decode(latents, return_dict=False)[0]  # type: ignore[no-any-return]

    try:
        stock = measure(decode, latents.device)
        use_kernels(vae)
        is_faster = measure(decode, latents.device) < stock
    except torch.OutOfMemoryError:
        is_faster = False
    if not is_faster:
        use_stock(vae)
    return is_faster


def use_stock(vae: nn.Module) -> None:
    """The reverse, its memory layout included."""
    for module, _ in _swaps(vae):
        module.__dict__.pop("forward", None)
    vae.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]


def _swaps(vae: nn.Module) -> Iterator[tuple[Any, Forward]]:
    for module in vae.modules():
        if isinstance(module, Encoder | Decoder) and _is_norm_with_silu(module):
            yield module.conv_norm_out, _norm_with_silu
            yield module.conv_act, _nothing
        elif forward := _forward_for(module):
            yield module, forward


def _forward_for(module: Any) -> Forward | None:
    match module:
        case ResnetBlock2D() if _is_plain_resnet(module):
            return _resnet
        case Upsample2D() if module.use_conv and module.interpolate and module.norm is None:
            return _upsample
        case Downsample2D() if module.use_conv and module.padding == 0 and module.norm is None:
            return _downsample
        case Attention() if _is_plain_attention(module):
            return _attention
        case nn.Conv2d() if module.padding_mode == "zeros" and isinstance(module.padding, tuple):
            return _conv
        case _:
            return None


def _is_plain_resnet(block: Any) -> bool:
    is_bare = block.upsample is None and block.downsample is None and block.time_emb_proj is None
    norms = (block.norm1, block.norm2)
    is_known = all(isinstance(norm, nn.GroupNorm) for norm in norms)
    return is_bare and is_known and isinstance(block.nonlinearity, nn.SiLU)


def _is_norm_with_silu(part: Any) -> bool:
    return isinstance(part.conv_norm_out, nn.GroupNorm) and isinstance(part.conv_act, nn.SiLU)


def _is_plain_attention(attention: Any) -> bool:
    parts = (attention.spatial_norm, attention.norm_q, attention.norm_k)
    return attention.group_norm is not None and parts == (None, None, None)


def _conv(layer: nn.Conv2d, x: Tensor) -> Tensor:
    return _convolved(layer, x)


def _convolved(layer: Any, x: Tensor, padding: Padding | None = None, **around: Any) -> Tensor:
    padded = layer.padding if padding is None else padding
    rest = (layer.stride, padded, layer.dilation, layer.groups)
    return conv2d(x, layer.weight, layer.bias, *rest, **around)


def _normed(norm: Any, x: Tensor, activation: Any = "silu") -> Tensor:
    return group_norm(x, norm.num_groups, norm.weight, norm.bias, norm.eps, activation=activation)


def _norm_with_silu(norm: nn.GroupNorm, x: Tensor) -> Tensor:
    return _normed(norm, x)


def _nothing(layer: nn.Module, x: Tensor) -> Tensor:
    """In the place of the SiLU that `_norm_with_silu` has done."""
    return x


def _resnet(block: Any, x: Tensor, temb: Tensor | None = None) -> Tensor:
    hidden = _convolved(block.conv1, _normed(block.norm1, x))
    hidden = block.dropout(_normed(block.norm2, hidden))
    skip = x if block.conv_shortcut is None else _convolved(block.conv_shortcut, x)
    y = _convolved(block.conv2, hidden, residual=skip)
    return y if block.output_scale_factor == 1.0 else y / block.output_scale_factor


def _upsample(layer: Any, x: Tensor, output_size: int | None = None) -> Tensor:
    if output_size is not None:
        return Upsample2D.forward(layer, x, output_size)
    return _convolved(layer.conv, x, upsample=2)


def _downsample(layer: Any, x: Tensor) -> Tensor:
    """One row and one column of zeros below and to the right."""
    return _convolved(layer.conv, x, (0, 1, 0, 1))


def _attention(attention: Any, x: Tensor, **unused: Any) -> Tensor:
    """Over all pixels; in channels-last memory they are the rows of a matrix already."""
    pictures, channels, height, width = x.shape
    normed = _normed(attention.group_norm, x, activation=None)
    tokens = normed.permute(0, 2, 3, 1).reshape(pictures, height * width, channels)
    query, key, value = (
        part(tokens).unflatten(-1, (attention.heads, -1)).transpose(1, 2)
        for part in (attention.to_q, attention.to_k, attention.to_v)
    )
    mixed = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
    y = attention.to_out[0](mixed).view(pictures, height, width, channels).permute(0, 3, 1, 2)
    if attention.residual_connection:
        y = y + x
    return y if attention.rescale_output_factor == 1.0 else y / attention.rescale_output_factor
