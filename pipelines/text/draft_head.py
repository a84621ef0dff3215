"""A draft head in EAGLE's manner: one decoder layer that foresees the target's hidden states.

Li et al. 2024, arXiv:2401.15077, with the training of arXiv:2503.01840: the layer reads the
target's last hidden state of a place beside the embedding of the token that followed it, and its
output stands for the target's next hidden state. The embedding is the target's; a vocabulary of a
few thousand tokens is enough for the texts it is made for, and a twelfth of the head's work.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from pipelines.text.packed import rotate

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # query, key, value -> [tokens, width]


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Sizes of a draft head; `width`, `heads` and `key_heads` are the target's."""

    width: int
    heads: int
    key_heads: int
    head_width: int
    inner: int  # of the feed-forward
    vocabulary: int  # tokens that it can draft
    theta: float  # of the rotary positions
    eps: float


class DraftHead(nn.Module):
    """The layer. Logits are the caller's affair: `norm(output)` times embeddings."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        width, inner = shape.width, shape.inner
        queries, keys = shape.heads * shape.head_width, shape.key_heads * shape.head_width
        self.mix = nn.Linear(2 * width, width, bias=False)
        self.qkv = nn.Linear(width, queries + 2 * keys, bias=False)
        self.o = nn.Linear(queries, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)
        self.norms = nn.ParameterDict(
            {
                name: nn.Parameter(torch.ones(width))
                for name in ("state", "token", "in", "mid", "out")
            }
        )
        self.register_buffer("ids", torch.arange(shape.vocabulary))  # in the target's vocabulary
        half = shape.head_width // 2
        rates = shape.theta ** (-torch.arange(half) / half)
        # Not converted with the weights: bfloat16 knows no place above 256.
        self.rates = torch.cat([rates, rates])

    def forward(self, states: Tensor, embedded: Tensor, places: Tensor, attend: Attend) -> Tensor:
        """The foreseen states, `[tokens, width]`.

        `states` are those of the places before, `embedded` the tokens at `places`.
        """
        both = torch.cat([self.norm("state", states), self.norm("token", embedded)], dim=-1)
        x = self.mix(both)
        shape = self.shape
        qkv = self.qkv(self.norm("in", x)).view(x.shape[0], -1, shape.head_width)
        turned = shape.heads + shape.key_heads
        rotated = rotate(qkv[:, :turned], *self.angles(places, x.dtype))
        out = attend(rotated[:, : shape.heads], rotated[:, shape.heads :], qkv[:, turned:])
        x = x + self.o(out)
        gate, up = self.gate_up(self.norm("mid", x)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Root mean square 1, with the learnt scales."""
        return functional.rms_norm(x, x.shape[-1:], self.norms[name], self.shape.eps)

    def angles(self, places: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines, `[tokens, 1, head width]`, as `packed.rotate` takes them."""
        angle = places[:, None, None] * self.rates.to(places.device)
        sines = angle.sin()
        sines[..., : self.shape.head_width // 2].neg_()
        return angle.cos().to(dtype), sines.to(dtype)


def save_head(head: DraftHead, path: Path, **facts: str) -> None:
    """Keep a trained head, in bfloat16."""
    tensors = {
        name: tensor.detach()
        .contiguous()
        .to(torch.bfloat16 if tensor.is_floating_point() else torch.int32)
        for name, tensor in head.state_dict().items()
    }
    shape = {name: repr(value) for name, value in asdict(head.shape).items()}
    save_file(tensors, path, metadata=shape | facts)


def load_head(path: Path) -> DraftHead:
    """A kept head. Raises `OSError` and `KeyError` for another file."""
    with safe_open(path, framework="pt") as file:
        metadata: dict[str, Any] = file.metadata()
        names = HeadShape.__dataclass_fields__
        values: dict[str, Any] = {
            name: (float if name in ("theta", "eps") else int)(metadata[name]) for name in names
        }
        shape = HeadShape(**values)
        head = DraftHead(shape)
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    head.load_state_dict({name: t if name != "ids" else t.long() for name, t in state.items()})
    return head
