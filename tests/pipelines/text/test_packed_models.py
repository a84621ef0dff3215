"""Models of 4-bit weights: the embedded one with its adapter, folders of ours, GGUF files."""

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from pipelines.errors import LoadFailed
from pipelines.text import embedded, packed_folder
from pipelines.text.gguf_file import read_plainly
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel, Read
from pipelines.text.loading import EXPANSION
from pipelines.text.packed import Q41, PackedLayer
from tests.pipelines.text.tiny_models import CONTEXT, load, make_tokenizer, random_ids

WIDTH, INNER = 64, 96


def logits(model: LanguageModel, ids: list[int]) -> torch.Tensor:
    return model.logits(model.read([Read(0, 0, ids)], KVCache(1, CONTEXT)))


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """The data folder with an embedded model that is tiny."""
    target = tmp_path / "data" / embedded.NAME
    target.mkdir(parents=True)
    config = LlamaConfig(
        vocab_size=96,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=True,
        eos_token_id=2,
        architectures=["LlamaForCausalLM"],
    )
    packed_folder.write(target, config, _four_bits(LlamaForCausalLM(config)), source="random")
    make_tokenizer().save_pretrained(target)
    (tmp_path / "assets").mkdir()
    monkeypatch.setattr(embedded, "ASSETS", tmp_path / "assets")
    return tmp_path


def _four_bits(model):
    torch.manual_seed(0)
    kept = {}
    for name, parameter in model.named_parameters():
        if "norm" in name:
            kept[name] = parameter.detach()
        elif "layers" in name:
            rows, columns = parameter.shape
            scale = torch.rand(rows, columns // 32).half() * 0.05
            q = torch.randint(0, 16, (rows, columns), dtype=torch.uint8)
            kept[name.removesuffix(".weight")] = Q41(q, scale, -8 * scale)
    rows, columns = model.model.embed_tokens.weight.shape
    kept["model.embed_tokens.q"] = torch.randint(-127, 128, (rows, columns), dtype=torch.int8)
    kept["model.embed_tokens.scale"] = torch.full((rows, columns // 32), 0.01).half()
    return kept


def _write_adapter(folder):
    factors = {
        "layers.1.q_proj.A": torch.randn(4, WIDTH),
        "layers.1.q_proj.B": torch.randn(WIDTH, 4),
        "layers.0.down_proj.A": torch.randn(4, INNER),
        "layers.0.down_proj.B": torch.randn(WIDTH, 4),
    }
    save_file(factors, folder / f"{EXPANSION}.safetensors")


def test_the_embedded_model_is_packed_on_a_cpu_and_plain_when_a_format_is_asked_for(packed):
    four = load(embedded.NAME, packed)
    assert isinstance(four.module.model.layers[0], PackedLayer) and four.tokens.end_ids == {2}
    plain = load(embedded.NAME, packed, dtype="float32")
    assert not isinstance(plain.module.model.layers[0], PackedLayer)
    ids = random_ids(12, 2)
    apart = (logits(four, ids) - logits(plain, ids)).norm() / logits(plain, ids).norm()
    assert apart < 0.05  # bfloat16 and an int8 head
    assert four.adapters == plain.adapters == ()


@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_the_adapter_of_the_embedded_model(packed, dtype):
    _write_adapter(packed / "assets")
    model = load(embedded.NAME, packed, dtype=dtype)
    assert model.adapters == (EXPANSION,)
    ids, cache = random_ids(12, 2), KVCache(2, CONTEXT)
    hidden = model.read([Read(0, 0, ids, EXPANSION), Read(1, 0, ids)], cache)
    bare = load_bare(packed, dtype)
    torch.testing.assert_close(
        hidden[12:].float(),
        bare.read([Read(0, 0, ids)], KVCache(1, CONTEXT)).float(),
        atol=0.05,
        rtol=0.02,
    )
    assert (hidden[:12] - hidden[12:]).float().norm() > 0.1 * hidden[12:].float().norm()


def load_bare(packed, dtype) -> LanguageModel:
    (packed / "assets" / f"{EXPANSION}.safetensors").unlink()
    return load(embedded.NAME, packed, dtype=dtype)


def test_a_broken_adapter_is_named(packed):
    (packed / "assets" / f"{EXPANSION}.safetensors").write_bytes(b"nothing")
    with pytest.raises(LoadFailed, match="remove it to do without"):
        load(embedded.NAME, packed)


def test_a_packed_folder_by_its_path(packed):
    target = packed / "data" / embedded.NAME
    other = target.rename(packed / "data" / "mine")
    assert load(other, packed).name == "mine"


def test_without_the_products_the_embedded_model_is_plain(packed, monkeypatch):
    monkeypatch.setattr("pipelines.text.loading.can_pack", lambda: False)
    model = load(embedded.NAME, packed)
    assert model.dtype == torch.bfloat16
    assert model.module.config._attn_implementation == "studio"


# GGUF files


def write_gguf(path: Path, layers: GGMLQuantizationType, embedding: GGMLQuantizationType) -> Path:
    """A Llama of two layers with letters for tokens."""
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(2)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(16)
    writer.add_tokenizer_model("gpt2")
    tokens = [*(chr(33 + place) for place in range(93)), "ab", "Ġ", "<end>"]
    writer.add_token_list(tokens)
    writer.add_token_types([1] * 95 + [3])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(95)
    random = np.random.default_rng(0)

    def add(name: str, shape: tuple[int, ...], kind: GGMLQuantizationType) -> None:
        values = 0.2 * random.normal(size=shape).astype(np.float32) + (len(shape) == 1)
        writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)

    plain = GGMLQuantizationType.F32
    add("token_embd.weight", (len(tokens), WIDTH), embedding)
    add("output_norm.weight", (WIDTH,), plain)
    for layer in range(2):
        for name, shape in (
            ("attn_q", (WIDTH, WIDTH)),
            ("attn_k", (WIDTH // 2, WIDTH)),
            ("attn_v", (WIDTH // 2, WIDTH)),
            ("attn_output", (WIDTH, WIDTH)),
            ("ffn_gate", (INNER, WIDTH)),
            ("ffn_up", (INNER, WIDTH)),
            ("ffn_down", (WIDTH, INNER)),
        ):
            add(f"blk.{layer}.{name}.weight", shape, layers)
        add(f"blk.{layer}.attn_norm.weight", (WIDTH,), plain)
        add(f"blk.{layer}.ffn_norm.weight", (WIDTH,), plain)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_gguf_file_of_four_bits_is_converted_once(tmp_path):
    path = write_gguf(tmp_path / "four.gguf", GGMLQuantizationType.Q4_1, GGMLQuantizationType.Q8_0)
    heard: list[str] = []
    model = load(path, tmp_path, lambda words, share: heard.append(words))
    assert isinstance(model.module.model.layers[0], PackedLayer)
    assert (model.name, model.context_tokens, model.tokens.end_ids) == ("four", CONTEXT, {95})
    assert "Converting four.gguf" in heard
    heard.clear()
    plain = load(tmp_path, tmp_path, lambda words, share: heard.append(words), dtype="float32")
    assert heard == ["Loading four"]  # the folder's one file, and no second conversion
    theirs, _ = read_plainly(path, torch.device("cpu"), "float32", lambda words, share: None)
    theirs.set_attn_implementation("eager")
    ids = plain.tokens.encode("abc 12")
    assert plain.tokens.decode([ids]) == ["abc 12"]
    expected = theirs(torch.tensor([ids])).logits[0]
    torch.testing.assert_close(logits(plain, ids), expected, atol=1e-4, rtol=1e-4)
    assert (logits(model, ids) - expected).norm() < 0.05 * expected.norm()


def test_another_gguf_file_is_widened(tmp_path):
    path = write_gguf(tmp_path / "wide.gguf", GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q8_0)
    heard: list[str] = []
    model = load(path, tmp_path, lambda words, share: heard.append(words), dtype="float32")
    assert any("not Q4_1" in words for words in heard)
    assert (model.name, model.context_tokens, model.tokens.end_ids) == ("wide", CONTEXT, {95})
