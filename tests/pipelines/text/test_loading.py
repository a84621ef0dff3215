"""Text models load from wherever they lie; what cannot be served is refused with a way out."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM, MambaConfig, T5Config

from pipelines.devices import DeviceUnusable
from pipelines.errors import LoadFailed, ModelNotFound
from pipelines.text import agreement, embedded, packed_folder
from pipelines.text.adapters import AdapterSwitch
from pipelines.text.agreement import NotServed, check_agreement
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel, Read
from pipelines.text.loading import EXPANSION, load_text_model
from pipelines.text.model_facts import choose_dtype, context_tokens
from pipelines.text.packed import Q41, PackedLayer
from tests.pipelines.text.tiny_models import (
    CONFIGS,
    CONTEXT,
    language_model,
    make_module,
    make_tokenizer,
    random_ids,
    save,
)

WIDTH, INNER = 64, 96


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "tiny-llama", make_module("llama"))


@pytest.fixture
def folder(saved, tmp_path):
    """A copy to break."""
    shutil.copytree(saved, tmp_path / "tiny-llama")
    return tmp_path / "tiny-llama"


def load(source, tmp_path, progress=lambda words, share: None, **options) -> LanguageModel:
    settings = {"device": "cpu", "dtype": "auto", "token": None} | options
    return load_text_model(str(source), folder=tmp_path / "data", progress=progress, **settings)


def logits(model: LanguageModel, ids: list[int]) -> torch.Tensor:
    return model.logits(model.read([Read(0, 0, ids)], KVCache(1, CONTEXT)))


def test_a_folder(saved, tmp_path):
    heard = []
    model = load(saved, tmp_path, lambda words, share: heard.append((words, share)))
    assert (model.name, model.context_tokens, model.dtype) == ("tiny-llama", CONTEXT, torch.float32)
    assert model.tokens.chats and model.tokens.encode("3 1 4") == [3, 1, 4]
    shares = [share for _, share in heard if share is not None]
    assert shares == sorted(shares) and len(shares) > 1
    expected = make_module("llama")
    expected.set_attn_implementation("eager")
    ids = random_ids(10, 1)
    torch.testing.assert_close(logits(model, ids), expected(torch.tensor([ids])).logits[0])


@pytest.mark.parametrize(("asked", "served"), [("bfloat16", torch.bfloat16)])
def test_a_number_format_that_was_asked_for(saved, tmp_path, asked, served):
    assert load(saved, tmp_path, dtype=asked).dtype == served


def test_the_number_format_follows_the_files():
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert choose_dtype("auto", cpu, torch.float32, 10**8) == torch.float32
    assert choose_dtype("auto", cpu, torch.float32, 2 * 10**9) == torch.bfloat16
    assert choose_dtype("auto", cpu, torch.float16, 10**8) == torch.bfloat16
    assert choose_dtype("auto", cuda, torch.float32, 10**8) == torch.bfloat16
    assert choose_dtype("float32", cuda, torch.float16, 10**10) == torch.float32


def test_ends_of_config_generation_and_tokenizer(folder, tmp_path):
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 9]}))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"eos_token_id": 5}))
    assert load(folder, tmp_path).tokens.end_ids == {5, 7, 9}


def test_a_folder_without_a_chat_template_completes_only(folder, tmp_path):
    (folder / "chat_template.jinja").unlink()
    assert not load(folder, tmp_path).tokens.chats


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        ({"rope_type": "default"}, 1000),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1000}, 4000),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 250}, 1000),
        ({"rope_type": "dynamic", "factor": 4.0}, 1000),
        (
            {
                "rope_type": "longrope",
                "original_max_position_embeddings": 200,
                "short_factor": [1.0] * 4,
                "long_factor": [2.0] * 4,
            },
            200,
        ),
    ],
)
def test_the_context_of_scaled_positions(rope, expected):
    config = LlamaConfig(max_position_embeddings=1000, head_dim=8)
    config.rope_parameters = rope | {"rope_theta": 10000.0}
    assert context_tokens(config) == expected


# What cannot be loaded


def test_no_such_folder(tmp_path):
    with pytest.raises(ModelNotFound, match="owner/name"):
        load(tmp_path / "nothing", tmp_path)
    with pytest.raises(ModelNotFound, match=r"no folder or file model\.gguf"):
        load("model.gguf", tmp_path)


def test_a_repository_is_asked_for_by_the_flag_of_texts(tmp_path, monkeypatch):
    asked = {}

    def download(repository, token, on_progress, **more):
        asked.update(more, repository=repository, token=token)
        raise LoadFailed("no network here")

    monkeypatch.setattr("pipelines.hub.download", download)
    with pytest.raises(LoadFailed, match="no network"):
        load("someone/a-model", tmp_path, token="hf_x")
    assert asked["repository"] == "someone/a-model" and asked["token"] == "hf_x"
    assert asked["flag"] == "--text-model" and "*.json" in asked["files"]


def test_a_file_that_is_no_gguf(folder, tmp_path):
    with pytest.raises(LoadFailed, match=r"no \.gguf file"):
        load(folder / "model.safetensors", tmp_path)
    (tmp_path / "broken.gguf").write_bytes(b"GGUF and nothing else")
    with pytest.raises(LoadFailed, match=r"llama\.cpp"):
        load(tmp_path / "broken.gguf", tmp_path)


def test_several_gguf_files_are_named(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.gguf").touch()
    with pytest.raises(LoadFailed, match=r"a\.gguf, b\.gguf"):
        load(tmp_path, tmp_path)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_named(folder, tmp_path, name):
    (folder / name).unlink()
    for other in folder.glob("tokenizer*" if name.startswith("tokenizer") else name):
        other.unlink()
    with pytest.raises(LoadFailed, match=name):
        load(folder, tmp_path)


def test_weights_of_another_config(folder, tmp_path):
    file = folder / "model.safetensors"
    weights = load_file(file)
    norm = weights.pop("model.norm.weight")
    save_file(weights, file, metadata={"format": "pt"})
    with pytest.raises(LoadFailed, match=r"lack 1 tensors .*model\.norm\.weight"):
        load(folder, tmp_path)
    name = "model.layers.0.self_attn.q_proj.bias"
    more = {"model.norm.weight": norm, name: torch.zeros(32)}
    save_file(weights | more, file, metadata={"format": "pt"})
    with pytest.raises(LoadFailed, match=rf"has not: {name}"):
        load(folder, tmp_path)


def test_layers_for_drafting_are_no_mistake(folder, tmp_path):
    file = folder / "model.safetensors"
    spare = {"model.layers.3.eh_proj.weight": torch.zeros(4, 4)}
    save_file(load_file(file) | spare, file, metadata={"format": "pt"})
    load(folder, tmp_path)


def test_an_unknown_number_format_or_device(saved, tmp_path):
    with pytest.raises(LoadFailed, match="take auto or one of float32"):
        load(saved, tmp_path, dtype="int3")
    with pytest.raises(DeviceUnusable):
        load(saved, tmp_path, device="tpu")


# What this engine does not serve


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "of-tomorrow"}, "does not know of-tomorrow"),
        (MambaConfig(hidden_size=8, num_hidden_layers=1).to_dict(), "recurrent state"),
        (T5Config(d_model=8).to_dict(), "t5 is no causal|encoder with a decoder"),
        ({"model_type": "clip"}, "no causal language model"),
        ({"model_type": "bloom"}, "cannot be exchanged"),
        ({"model_type": "qwen3_next"}, "recurrent state"),
        ({"model_type": "llama4_text"}, "chunked_attention"),
    ],
    ids=["unknown", "mamba", "t5", "clip", "bloom", "linear", "chunked"],
)
def test_architectures_that_are_not_served(folder, tmp_path, config, said):
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(NotServed, match=said) as caught:
        load(folder, tmp_path)
    assert "--text-engine http" in caught.value.message


@pytest.mark.parametrize("name", CONFIGS)
def test_served_architectures_agree(name):
    """Longer than their windows: those are narrowed for the check, and are what they were after."""
    model = language_model(make_module(name, sliding_window=64, index_topk=64))
    check_agreement(model)
    assert model.config._attn_implementation == "studio"
    assert getattr(model.config, "sliding_window", None) in (64, None)


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt-oss", "deepseek-v3.2"])
def test_attention_that_is_wrong_is_found(name, monkeypatch):
    """Too wide a window, too few tokens, no sinks: each would go unnoticed in a short text."""
    right = agreement._packed
    model = language_model(make_module(name, sliding_window=64, index_topk=64))
    if name == "gpt-oss":
        model.module.model.layers[0].self_attn.sliding_window = None
    elif name == "mistral":
        monkeypatch.setattr("pipelines.text.layout.Group.mask", _without_window)
    elif name == "deepseek-v3.2":
        monkeypatch.setattr("pipelines.text.sparse_attention.IndexQuery.mask", _all_but_index)
    else:
        monkeypatch.setattr(agreement, "_packed", lambda *args: _scaled(right(*args)))
    with pytest.raises(NotServed, match="does not agree"):
        check_agreement(model)


def _without_window(group, window, fold, device):
    return group._make_mask(None, fold, device)


def _all_but_index(index, layer, group, cache):
    return group._make_mask(None, 1, index.query.device)


def _scaled(parts):
    return [part * 1.01 for part in parts]


def test_attention_that_fails_is_a_refusal(monkeypatch):
    def fail(*args, **more):
        raise TypeError("got an unexpected keyword argument 'packed'")

    model = language_model(make_module("llama"))
    monkeypatch.setattr(model.module.model, "forward", fail)
    with pytest.raises(NotServed, match="unexpected keyword"):
        check_agreement(model)


# Packed folders: the embedded model, with and without its adapter


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
    assert packed_folder.read(
        packed / "data" / embedded.NAME, torch.float32, AdapterSwitch(), packs=False
    )
