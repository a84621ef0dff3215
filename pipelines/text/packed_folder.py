"""A Llama with Q4_1 weights as a folder of our own: written once from GGUF, read in a second.

transformers takes 20 s for the same file: it parses it three times and builds the tensor names'
map anew for each. Here the 4-bit values are kept as they are, two in a byte, and are laid out for
the machine's kernel when they are read.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from pipelines.text.adapters import PROJECTIONS, AdapterSwitch
from pipelines.text.packed import GROUP, Q41, Int8Linear, PackedLayer, PackedRotary

WEIGHTS = "packed.safetensors"


def is_packed_folder(folder: Path) -> bool:
    """Whether `folder` was written by `write`."""
    return (folder / WEIGHTS).is_file()


def write(folder: Path, config: Any, tensors: dict[str, Tensor | Q41], source: str) -> None:
    """Keep a model: its transformers config, and weights named as transformers names them.

    `source` says what they were made of. The embedding is Q8_0: groups of 32 with one scale.
    """
    config.save_pretrained(folder)
    kept: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, Q41):
            kept[f"{name}.q"] = tensor.q[:, 0::2] | (tensor.q[:, 1::2] << 4)
            kept[f"{name}.scale"], kept[f"{name}.minimum"] = tensor.scale, tensor.minimum
        else:
            kept[name] = tensor
    save_file(kept, folder / WEIGHTS, metadata={"source": source, "format": "pt"})


def read(
    folder: Path, dtype: torch.dtype, switch: AdapterSwitch, *, packs: bool
) -> PreTrainedModel:
    """The model with packed layers, or (`packs` false) transformers' own in `dtype`."""
    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    with safe_open(folder / WEIGHTS, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if packs:
        return _packed(model, tensors, switch)
    return _dense(model, tensors, dtype)


def _packed(
    model: PreTrainedModel, tensors: dict[str, Tensor], switch: AdapterSwitch
) -> PreTrainedModel:
    config, inner = model.config, model.model
    for index in range(config.num_hidden_layers):
        weights = {name: _q41(tensors, _path(index, name)) for name in PROJECTIONS}
        norms = [
            tensors[f"model.layers.{index}.{name}.weight"]
            for name in ("input_layernorm", "post_attention_layernorm")
        ]
        inner.layers[index] = PackedLayer(
            index,
            weights,
            (norms[0], norms[1]),
            heads=config.num_attention_heads,
            key_heads=config.num_key_value_heads,
            eps=config.rms_norm_eps,
            switch=switch,
        )
    embedding = embedding_of(tensors)
    dense = embedding.bfloat16()
    inner.embed_tokens = nn.Embedding.from_pretrained(dense)
    inner.norm.weight = _frozen(tensors["model.norm.weight"].bfloat16())
    inner.rotary_emb = PackedRotary(
        type(inner.rotary_emb)(config), config.max_position_embeddings, config.hidden_size
    )
    model.lm_head = Int8Linear(embedding, dense)
    return model.eval()


def _dense(
    model: PreTrainedModel, tensors: dict[str, Tensor], dtype: torch.dtype
) -> PreTrainedModel:
    state = {name: tensor for name, tensor in tensors.items() if "norm" in name}
    for index in range(model.config.num_hidden_layers):
        for name in PROJECTIONS:
            state[f"{_path(index, name)}.weight"] = _q41(tensors, _path(index, name)).dense()
    state["model.embed_tokens.weight"] = embedding_of(tensors)
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    state = {name: tensor.to(dtype) for name, tensor in state.items()}
    model.load_state_dict(state, assign=True)
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    model.tie_weights()
    return model.eval()


def embedding_of(tensors: dict[str, Tensor]) -> Tensor:  # float32 [vocabulary, width]
    """The token embeddings, which are the head's weights as well."""
    q, scale = tensors["model.embed_tokens.q"], tensors["model.embed_tokens.scale"]
    return (q.view(q.shape[0], -1, GROUP).float() * scale.float()[..., None]).view(q.shape)


def _q41(tensors: dict[str, Tensor], name: str) -> Q41:
    pairs = tensors[f"{name}.q"]
    q = torch.stack([pairs & 15, pairs >> 4], dim=-1).view(pairs.shape[0], -1)
    return Q41(q, tensors[f"{name}.scale"], tensors[f"{name}.minimum"])


def _path(layer: int, projection: str) -> str:
    block = "mlp" if projection in PROJECTIONS[4:] else "self_attn"
    return f"model.layers.{layer}.{block}.{projection}"


def _frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)
