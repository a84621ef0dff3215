"""The embedded model's 4-bit layers: the same weights as transformers loads, the same answers."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from pipelines.text import packed
from pipelines.text.adapters import Adapter, AdapterSwitch, attach
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel, Read
from pipelines.text.packed import BF16_FROM_ROWS, GROUP, Q41, Int8Linear, PackedLinear
from pipelines.text.packed_folder import WEIGHTS, read

TEXT = "The old lighthouse stands at the edge of a cliff, waves breaking far below it"


def weights(out: int, width: int, seed: int = 0) -> Q41:
    generator = torch.Generator().manual_seed(seed)
    groups = (out, width // GROUP)
    return Q41(
        torch.randint(0, 16, (out, width), generator=generator, dtype=torch.uint8),
        torch.rand(groups, generator=generator).half() * 0.02,
        -torch.rand(groups, generator=generator).half() * 0.2,
    )


@pytest.fixture(scope="module")
def logits_of(smollm2: LanguageModel, smollm2_folder: Path) -> dict[str, torch.Tensor]:
    """Of TEXT's tokens, by the packed layers and by transformers' own in float32."""
    ids = smollm2.tokens.encode(TEXT)
    hidden = smollm2.read([Read(0, 0, ids)], KVCache(1, 64))
    module = read(smollm2_folder / smollm2.name, torch.float32, AdapterSwitch(), packs=False)
    with torch.no_grad():
        stock = module(torch.tensor([ids])).logits[0]
    return {"packed": smollm2.logits(hidden), "stock": stock, "ids": torch.tensor(ids)}


@pytest.mark.skipif(not packed.can_pack(), reason="this torch has no 4-bit product for CPUs")
@pytest.mark.parametrize("rows", [1, 3, 4, 5, BF16_FROM_ROWS, 40])
def test_the_4_bit_product(rows: int) -> None:
    weight = weights(96, 64)
    x = torch.randn(rows, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    expected = x.double() @ weight.dense(torch.float64).t()
    error = (PackedLinear(weight, AdapterSwitch())(x).double() - expected).norm()
    assert error < 0.01 * expected.norm()


def test_the_8_bit_product() -> None:
    weight = weights(96, 64).dense()
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
    expected = x.double() @ weight.double().t()
    assert (Int8Linear(weight)(x).double() - expected).norm() < 0.01 * expected.norm()


def test_packed_layers_answer_as_transformers(logits_of: dict[str, torch.Tensor]) -> None:
    ours, stock = logits_of["packed"].log_softmax(-1), logits_of["stock"].log_softmax(-1)
    assert (ours.argmax(-1) == stock.argmax(-1)).float().mean() >= 0.8
    likelihood = [-p[:-1].gather(1, logits_of["ids"][1:, None]).mean() for p in (ours, stock)]
    assert float(likelihood[0]) == pytest.approx(float(likelihood[1]), abs=0.03)


def test_the_kept_4_bit_values_are_those_of_the_file(smollm2_folder: Path) -> None:
    """Against transformers' own reading of Q4_1: not one weight is rounded."""
    from gguf import GGMLQuantizationType, dequantize

    generator = torch.Generator().manual_seed(3)
    raw = torch.randint(0, 256, (8, 20), generator=generator, dtype=torch.uint8)
    raw[:, 1] &= 0x3B  # finite numbers
    raw[:, 3] &= 0x3B
    expected = torch.from_numpy(dequantize(raw.numpy(), GGMLQuantizationType.Q4_1)).view(4, 64)
    scale = raw[:, :2].contiguous().view(torch.float16).view(4, 2)
    minimum = raw[:, 2:4].contiguous().view(torch.float16).view(4, 2)
    pairs = raw[:, 4:]
    q = torch.cat([pairs & 15, pairs >> 4], dim=1).view(4, 64)
    assert torch.equal(Q41(q, scale, minimum).dense(), expected)
    with safe_open(next(smollm2_folder.glob(f"*/{WEIGHTS}")), framework="pt") as file:
        assert "Q4_1" in file.metadata()["source"]


def test_a_wrong_product_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packed.can_pack() == packed.can_pack()
    right = torch._weight_int8pack_mm
    monkeypatch.setattr(torch, "_weight_int8pack_mm", lambda *a: right(*a) * 1.1)
    assert not packed.can_pack()
    monkeypatch.delattr(torch, "_weight_int8pack_mm")
    assert not packed.can_pack()


def test_an_adapter_acts_on_its_tokens_alone() -> None:
    """Stacked projections, a mask, and the plain layer give the same."""
    switch = AdapterSwitch()
    parts = [weights(64, 32, seed) for seed in (1, 2)]
    linear = PackedLinear(Q41.stack(parts), switch)
    a, b = torch.randn(4, 32), torch.randn(64, 4)
    linear.add("x", [None, (a, b)], [64, 64])
    x = torch.randn(3, 32).bfloat16()
    plain = linear(x)
    switch.masks = {"x": torch.tensor([[1.0], [0.0], [1.0]])}
    more = (linear(x) - plain).float()
    expected = (x.float() @ a.t()) @ b.t()
    assert not more[:, :64].any() and not more[1].any()
    torch.testing.assert_close(more[[0, 2], 64:], expected[[0, 2]], atol=0.3, rtol=0.05)
    switch.masks = {"x": None, "y": None}
    assert (linear(x)[1] != plain[1]).any()


def test_the_same_adapter_on_plain_layers(smollm2_folder: Path, smollm2: LanguageModel) -> None:
    """What the packed layers add is what W + B A gives."""
    module = read(smollm2_folder / smollm2.name, torch.float32, AdapterSwitch(), packs=False)
    merged = read(smollm2_folder / smollm2.name, torch.float32, AdapterSwitch(), packs=False)
    switch = AdapterSwitch({"x": None})
    torch.manual_seed(0)
    factors = {
        (3, "o_proj"): (torch.randn(4, 576) * 0.05, torch.randn(576, 4) * 0.05),
        (7, "down_proj"): (torch.randn(4, 1536) * 0.05, torch.randn(576, 4) * 0.05),
    }
    attach(module.model.layers, Adapter("x", factors), switch)
    for (layer, name), (a, b) in factors.items():
        block = merged.model.layers[layer]
        parent = block.mlp if name == "down_proj" else block.self_attn
        getattr(parent, name).weight.data += b @ a
    ids = torch.tensor([smollm2.tokens.encode(TEXT)])
    with torch.no_grad():
        torch.testing.assert_close(module(ids).logits, merged(ids).logits, atol=2e-3, rtol=1e-3)
        switch.masks = {}
        assert (module(ids).logits - merged(ids).logits).abs().max() > 0.1
