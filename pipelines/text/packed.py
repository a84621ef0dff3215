"""Llama's decoder with 4-bit weights on a CPU: the same layers, with few and fused operations.

Decoding one token reads every weight once, so 4 bits a weight are the speed. torch's int4 product
holds GGUF's Q4_1 exactly (groups of 32 with a scale and a minimum). Its functions are private: they
are looked for and tried before use (`can_pack`), and models are served in bfloat16 without them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from pipelines.text.adapters import Adapter, AdapterSwitch, Factors, low_rank
from pipelines.text.attention import Packed, attend

GROUP = 32  # weights that share a scale and a minimum, Q4_1's own
BF16_FROM_ROWS = 13  # whole forwards on one thread of a Zen 4: 8 rows take 23 ms with int4, 29 with
# bfloat16, which reads four times the bytes; 32 rows take 88 with int4, 69 with bfloat16


@dataclass(frozen=True, slots=True)
class Q41:
    """A matrix as Q4_1 holds it: w = scale · q + minimum, q in 0 to 15."""

    q: Tensor  # uint8 [out, in]
    scale: Tensor  # float16 [out, in / 32]
    minimum: Tensor  # float16 [out, in / 32]

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:  # [out, in]
        """The weights as numbers."""
        q = self.q.view(self.q.shape[0], -1, GROUP).float()
        dense = q * self.scale.float()[..., None] + self.minimum.float()[..., None]
        return dense.view(self.q.shape).to(dtype)

    @staticmethod
    def stack(parts: list["Q41"]) -> "Q41":
        """Matrices over the same input as one."""
        return Q41(*(torch.cat([getattr(p, n) for p in parts]) for n in ("q", "scale", "minimum")))


class PackedLinear(nn.Module):
    """x W^T for bfloat16 `x`: 4-bit weights for few rows, bfloat16 ones for many."""

    def __init__(self, weight: Q41, switch: AdapterSwitch) -> None:
        super().__init__()
        self._int4 = torch._convert_weight_to_int4pack_for_cpu(weight.q.int(), 1)
        # The kernel reads w = (q − 8) · scale + zero.
        zero = weight.minimum.float() + 8 * weight.scale.float()
        pair = torch.stack([weight.scale.float().t(), zero.t()], dim=-1)
        self._scales = pair.contiguous().bfloat16()  # [in / 32, out, 2]
        self._dense = weight.dense(torch.bfloat16)
        self._switch = switch
        self._factors: dict[str, Factors] = {}

    def forward(self, x: Tensor) -> Tensor:  # [rows, in] -> [rows, out]
        """The product, and what adapters add."""
        if x.shape[0] < BF16_FROM_ROWS:
            y = torch._weight_int4pack_mm_for_cpu(x, self._int4, GROUP, self._scales)
        else:
            y = functional.linear(x, self._dense)
        for name, mask in self._switch.masks.items():
            if name in self._factors:
                y = y + low_rank(x, self._factors[name], mask)
        return y

    def add(self, name: str, parts: list[Factors | None], widths: list[int]) -> None:
        """Let adapter `name` act; `parts` belong to the stacked matrices of output `widths`."""
        if any(part is not None for part in parts):
            self._factors[name] = _stacked(parts, widths)


def _stacked(parts: list[Factors | None], widths: list[int]) -> Factors:
    """One pair of factors for matrices that were stacked: B is a block diagonal."""
    held = [part for part in parts if part is not None]
    a = torch.cat([part[0] for part in held])
    b = torch.zeros(sum(widths), a.shape[0])
    row = column = 0
    for part, width in zip(parts, widths, strict=True):
        if part is not None:
            rank = part[0].shape[0]
            b[row : row + width, column : column + rank] = part[1]
            column += rank
        row += width
    return a, b


class Int8Linear(nn.Module):
    """x W^T for bfloat16 `x`: int8 weights, with a scale for each output, for few rows.

    `dense`, the same weights in bfloat16, serves many; without it int8 serves them, too.
    """

    def __init__(self, weight: Tensor, dense: Tensor | None = None) -> None:  # float32 [out, in]
        super().__init__()
        scale = (weight.abs().amax(dim=1) / 127).clamp(min=1e-12)
        self._int8 = (weight / scale[:, None]).round().to(torch.int8)
        self._scale = scale.bfloat16()
        self._dense = dense

    def forward(self, x: Tensor) -> Tensor:  # bfloat16 [rows, in] -> [rows, out]
        """The product."""
        if self._dense is not None and x.shape[0] >= BF16_FROM_ROWS:
            return functional.linear(x, self._dense)
        return torch._weight_int8pack_mm(x, self._int8, self._scale)


class PackedLayer(nn.Module):
    """One layer of Llama: q, k, v in one product, gate and up in another."""

    def __init__(
        self,
        index: int,
        weights: dict[str, Q41],
        norms: tuple[Tensor, Tensor],
        *,
        heads: int,
        key_heads: int,
        eps: float,
        switch: AdapterSwitch,
    ) -> None:
        super().__init__()
        self._index = index
        self._heads, self._key_heads = heads, key_heads
        self._width = weights["q_proj"].q.shape[0] // heads
        self._eps = eps
        self._norms = tuple(norm.bfloat16() for norm in norms)
        self._widths = {name: weight.q.shape[0] for name, weight in weights.items()}
        self._groups = {
            "qkv": ("q_proj", "k_proj", "v_proj"),
            "o": ("o_proj",),
            "gate_up": ("gate_proj", "up_proj"),
            "down": ("down_proj",),
        }
        self._linears = nn.ModuleDict(
            {
                name: PackedLinear(Q41.stack([weights[part] for part in parts]), switch)
                for name, parts in self._groups.items()
            }
        )

    def add(self, adapter: Adapter) -> None:
        """Let `adapter` act on this layer."""
        for name, parts in self._groups.items():
            factors = [adapter.factors.get((self._index, part)) for part in parts]
            linear = self._linears[name]
            assert isinstance(linear, PackedLinear)
            linear.add(adapter.name, factors, [self._widths[part] for part in parts])

    def forward(
        self,
        hidden_states: Tensor,  # bfloat16 [1, tokens, width]
        *,
        position_embeddings: tuple[Tensor, Tensor],
        packed: Packed,
        **_: object,
    ) -> Tensor:
        """As transformers' decoder layer."""
        x = hidden_states[0]
        qkv = self._linears["qkv"](self._norm(x, 0)).view(x.shape[0], -1, self._width)
        turned = self._heads + self._key_heads
        rotated = rotate(qkv[:, :turned], *position_embeddings)
        out = attend(
            rotated[:, : self._heads],
            rotated[:, self._heads :],
            qkv[:, turned:],
            self._index,
            packed,
        )
        x = x + self._linears["o"](out)
        gate, up = self._linears["gate_up"](self._norm(x, 1)).chunk(2, dim=-1)
        return (x + self._linears["down"](functional.silu(gate) * up))[None]

    def _norm(self, x: Tensor, which: int) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], self._norms[which], self._eps)


class PackedRotary(nn.Module):
    """Rotary position tables, read by position: cosines, and sines with the rotation's signs."""

    def __init__(self, rotary: nn.Module, positions: int, width: int) -> None:
        super().__init__()
        at = torch.arange(positions)[None]
        cos, sin = rotary(torch.zeros(1, 1, width), at)
        half = cos.shape[-1] // 2
        self._cos = cos[0, :, None].bfloat16()  # [positions, 1, head width]
        self._sin = torch.cat([-sin[0, :, :half], sin[0, :, half:]], dim=-1)[:, None].bfloat16()

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Of `position_ids` `[1, tokens]`: `[tokens, 1, head width]` each."""
        return self._cos[position_ids[0]], self._sin[position_ids[0]]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # x [tokens, heads, width]
    """Su et al. 2021, RoFormer: turn each pair (i, i + width / 2) by its position's angle."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def can_pack() -> bool:
    """Whether this torch has the private products and they compute what they should."""
    names = ("_convert_weight_to_int4pack_for_cpu", "_weight_int4pack_mm_for_cpu")
    if not all(hasattr(torch, name) for name in (*names, "_weight_int8pack_mm")):
        return False
    try:
        return _computes_right()
    except (RuntimeError, NotImplementedError, TypeError):  # other arguments, or no such CPU code
        return False


def _computes_right() -> bool:
    generator = torch.Generator().manual_seed(0)
    weight = Q41(
        torch.randint(0, 16, (64, 64), generator=generator, dtype=torch.uint8),
        torch.rand(64, 2, generator=generator).half() * 0.02,
        -torch.rand(64, 2, generator=generator).half() * 0.2,
    )
    linear, head = PackedLinear(weight, AdapterSwitch()), Int8Linear(weight.dense())
    for rows in (1, 4):
        x = torch.randn(rows, 64, generator=generator).bfloat16()
        expected = x.float() @ weight.dense().t()
        for got in (linear(x).float(), head(x)):
            if not (got - expected).norm() <= 0.02 * expected.norm():  # NaN fails, too
                return False
    return True
