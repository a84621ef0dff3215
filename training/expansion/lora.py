"""Low-rank adapters on a language model's projections (LoRA, Hu et al. 2021), and their file.

In the file `layers.{i}.{module}.A` is [rank, in] and `.B` is [out, rank], both bfloat16, the scale
folded into B: y = W x + B (A x).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from studio.expansion.template import TEMPLATE

BASE = "SmolLM2-135M-Instruct"
SCALE = 2.0
ALL_MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_NAME = re.compile(r"layers\.(\d+)\.\w+\.(\w+_proj)$")


class LoraLinear(nn.Module):
    """A frozen projection and what is added to it; nothing at first, since B starts at zero."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.A = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.B = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:  # x: [..., in] -> [..., out]
        low = nn.functional.linear(x, self.A.to(x.dtype))
        return self.base(x) + nn.functional.linear(low, self.B.to(x.dtype) * SCALE)


def add_lora(model: nn.Module, rank: int, modules: Iterable[str]) -> dict[str, LoraLinear]:
    """Freeze the model and wrap these projections; by `layers.{i}.{module}`."""
    model.requires_grad_(False)
    wanted = set(modules)
    added: dict[str, LoraLinear] = {}
    for name, module in list(model.named_modules()):
        found = _NAME.search(name)
        if found and found[2] in wanted and isinstance(module, nn.Linear):
            parent = model.get_submodule(name.rpartition(".")[0])
            adapter = LoraLinear(module, rank)
            setattr(parent, found[2], adapter)
            added[f"layers.{found[1]}.{found[2]}"] = adapter
    return added


def save_lora(adapters: dict[str, LoraLinear], path: Path) -> None:
    """Write the adapters with rank, base and template, so that a server can check them."""
    tensors: dict[str, Tensor] = {}
    for name, adapter in adapters.items():
        tensors[f"{name}.A"] = adapter.A.detach().to(torch.bfloat16)
        tensors[f"{name}.B"] = (adapter.B.detach() * SCALE).to(torch.bfloat16)
    rank = next(iter(adapters.values())).A.shape[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, {"rank": str(rank), "base": BASE, "prefix": TEMPLATE})


def load_lora(model: nn.Module, path: Path) -> dict[str, LoraLinear]:
    """Add the adapters of a file to a model. Raises `ValueError` where the shapes do not fit."""
    tensors = load_file(path)
    names = {name.rpartition(".")[0] for name in tensors}
    rank = next(iter(tensors.values())).shape[0 if next(iter(tensors)).endswith(".A") else 1]
    adapters = add_lora(model, rank, {name.rpartition(".")[2] for name in names})
    if set(adapters) != names:
        raise ValueError(f"{path.name} is for another model: {sorted(names ^ set(adapters))[:3]}.")
    for name, adapter in adapters.items():
        a, b = tensors[f"{name}.A"], tensors[f"{name}.B"]
        if a.shape != adapter.A.shape or b.shape != adapter.B.shape:
            raise ValueError(f"{path.name} is for another model: {name} has other sizes.")
        adapter.A.data = a.to(adapter.A.dtype)
        adapter.B.data = b.to(adapter.B.dtype) / SCALE
    return adapters
