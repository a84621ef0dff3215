"""LoRA beside a linear layer: the weights stay as they are, some tokens get a little more.

Hu et al. 2021, "LoRA: Low-Rank Adaptation of Large Language Models": y = W x + B A x, its scale
folded into B. Requests with and without an adapter share a forward; a mask says whose tokens are
adapted. It is not merged into the weights: int4 values are coarser than what an adapter adds.
"""

from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn
from torch.nn import functional

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")

Factors = tuple[Tensor, Tensor]  # A [rank, in], B [out, rank]


@dataclass(slots=True)
class AdapterSwitch:
    """Which adapters act on which tokens of the forward that runs now."""

    masks: dict[str, Tensor | None] = field(default_factory=dict)  # [tokens, 1]; None: all of them


@dataclass(frozen=True, slots=True)
class Adapter:
    """The factors of one LoRA by layer and projection."""

    name: str
    factors: dict[tuple[int, str], Factors]


def read_adapter(path: Path, name: str) -> Adapter:
    """From safetensors with `layers.{i}.{projection}.A` and `.B`. Raises `OSError`."""
    factors = {}
    with safe_open(path, framework="pt") as file:
        for key in file.keys():  # noqa: SIM118 (it is no dict)
            _, layer, projection, side = key.split(".")
            if side == "A":
                b = file.get_tensor(key.removesuffix("A") + "B")
                factors[int(layer), projection] = (file.get_tensor(key).float(), b.float())
    return Adapter(name, factors)


class AdaptedLinear(nn.Module):
    """A linear layer and the adapters that may act on it."""

    def __init__(self, linear: nn.Module, switch: AdapterSwitch) -> None:
        super().__init__()
        self.linear = linear
        self._switch = switch
        self._factors: dict[str, Factors] = {}

    def add(self, name: str, factors: Factors) -> None:
        """Let the adapter `name` act on this layer."""
        self._factors[name] = factors

    def forward(self, x: Tensor) -> Tensor:  # [..., in] -> [..., out]
        """As the linear layer, and a little more for adapted tokens."""
        y: Tensor = self.linear(x)
        for name, mask in self._switch.masks.items():
            if name in self._factors:
                y = y + low_rank(x, self._factors[name], mask)
        return y


def low_rank(x: Tensor, factors: Factors, mask: Tensor | None) -> Tensor:
    """B A x in float32, in the format of `x`: on a CPU a tenth of the time of bfloat16 products,
    which are set up anew for every shape (2 to 4 against 14 us each, one token, rank 16)."""
    a, b = factors
    more = functional.linear(functional.linear(x.float(), a), b)
    return (more if mask is None else more * mask).to(x.dtype)


def attach(layers: nn.ModuleList, adapter: Adapter, switch: AdapterSwitch) -> None:
    """Put `adapter` beside the projections of a decoder's layers; raises `KeyError` for another
    architecture's names."""
    for (index, projection), factors in adapter.factors.items():
        parent = layers[index].mlp if projection in PROJECTIONS[4:] else layers[index].self_attn
        linear = getattr(parent, projection)
        if not isinstance(linear, AdaptedLinear):
            linear = AdaptedLinear(linear, switch)
            setattr(parent, projection, linear)
        weight = next(linear.linear.parameters())
        linear.add(adapter.name, tuple(factor.to(weight.device) for factor in factors))  # type: ignore[arg-type]


def masks_of(
    adapters: list[str | None], counts: list[int], device: torch.device
) -> dict[str, Tensor | None]:
    """The masks of a packed row: `adapters` and `counts` are those of its sequences."""
    masks: dict[str, Tensor | None] = {}
    for name in {name for name in adapters if name is not None}:
        flags = [float(other == name) for other in adapters]
        if all(flags):
            masks[name] = None
            continue
        tokens = torch.tensor(flags, device=device).repeat_interleave(
            torch.tensor(counts, device=device)
        )
        masks[name] = tokens[:, None]
    return masks
