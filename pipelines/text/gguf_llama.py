"""A Llama out of a GGUF file with Q4_1 or Q4_0 layers: 4-bit values as stored, none rounded."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader
from torch import Tensor
from transformers import AutoConfig

from pipelines.text.packed import GROUP, Q41

LAYER_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NORM_NAMES = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
FOUR_BITS = {GGMLQuantizationType.Q4_1: 20, GGMLQuantizationType.Q4_0: 18}  # bytes of a group


def read_gguf(path: Path) -> tuple[Any, dict[str, Tensor | Q41]]:
    """The transformers config and the weights for `packed_folder.write`.

    Raises `ValueError` for a file that is no Llama of this kind; `OSError` where it cannot be read.
    """
    tensors = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name)
    if config.model_type != "llama" or "output.weight" in tensors:
        raise ValueError(f"{path.name} is no Llama with one matrix for embedding and head")
    kept: dict[str, Tensor | Q41] = {"model.norm.weight": _plain(tensors["output_norm.weight"])}
    for index in range(config.num_hidden_layers):
        ours = f"model.layers.{index}"
        for theirs, name in NORM_NAMES.items():
            kept[f"{ours}.{name}.weight"] = _plain(tensors[f"blk.{index}.{theirs}.weight"])
        for theirs, name in LAYER_NAMES.items():
            kept[f"{ours}.{name}"] = _four_bits(tensors[f"blk.{index}.{theirs}.weight"])
        for name, heads in (
            ("q_proj", config.num_attention_heads),
            ("k_proj", config.num_key_value_heads),
        ):
            kept[f"{ours}.self_attn.{name}"] = _in_order(kept[f"{ours}.self_attn.{name}"], heads)
    q, scale = _eight_bits(tensors["token_embd.weight"])
    expected = 2 + config.num_hidden_layers * (len(LAYER_NAMES) + len(NORM_NAMES))
    if len(tensors) != expected:  # biases, other rotary frequencies: what we would not compute
        raise ValueError(f"{path.name} has {len(tensors)} tensors, where {expected} are expected")
    return config, kept | {"model.embed_tokens.q": q, "model.embed_tokens.scale": scale}


def _plain(tensor: Any) -> Tensor:
    if tensor.tensor_type not in (GGMLQuantizationType.F32, GGMLQuantizationType.F16):
        raise ValueError(f"{tensor.name} is {tensor.tensor_type.name}, where F32 is expected")
    return torch.from_numpy(np.array(tensor.data)).float()


def _four_bits(tensor: Any) -> Q41:
    size = FOUR_BITS.get(tensor.tensor_type)
    if size is None:
        raise ValueError(f"{tensor.name} is {tensor.tensor_type.name}, where Q4_1 is expected")
    columns, rows = (int(n) for n in tensor.shape)
    raw = torch.from_numpy(np.array(tensor.data)).view(torch.uint8).reshape(-1, size)
    scale = raw[:, :2].contiguous().view(torch.float16)
    has_minimum = size == FOUR_BITS[GGMLQuantizationType.Q4_1]
    minimum = raw[:, 2:4].contiguous().view(torch.float16) if has_minimum else -8 * scale
    pairs = raw[:, size - GROUP // 2 :]
    q = torch.cat([pairs & 15, pairs >> 4], dim=1).view(rows, columns)
    groups = (rows, columns // GROUP)
    return Q41(q, scale.view(groups), minimum.view(groups))


def _eight_bits(tensor: Any) -> tuple[Tensor, Tensor]:
    if tensor.tensor_type != GGMLQuantizationType.Q8_0:
        raise ValueError(f"{tensor.name} is {tensor.tensor_type.name}, where Q8_0 is expected")
    columns, rows = (int(n) for n in tensor.shape)
    raw = torch.from_numpy(np.array(tensor.data)).view(torch.uint8).reshape(-1, 2 + GROUP)
    scale = raw[:, :2].contiguous().view(torch.float16).view(rows, columns // GROUP)
    return raw[:, 2:].contiguous().view(torch.int8).view(rows, columns), scale


def _in_order(weight: Tensor | Q41, heads: int) -> Q41:
    """llama.cpp interleaves the halves of each head of q and k for its rotary; put them back."""
    assert isinstance(weight, Q41)

    def put_back(tensor: Tensor) -> Tensor:
        half = tensor.shape[0] // heads // 2
        return tensor.view(heads, half, 2, -1).transpose(1, 2).reshape(tensor.shape).contiguous()

    return Q41(put_back(weight.q), put_back(weight.scale), put_back(weight.minimum))
