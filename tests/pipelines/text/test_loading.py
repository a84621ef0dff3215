"""Text models load from wherever they lie; what is broken is refused with a way out."""

import json
import shutil
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig

from pipelines.errors import DeviceUnusable, LoadFailed, ModelNotFound
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import Read
from pipelines.text.model_facts import choose_dtype, context_tokens
from tests.pipelines.text.tiny_models import CONTEXT, load, make_module, random_ids, save


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save(tmp_path_factory.mktemp("models") / "tiny-llama", make_module("llama"))


@pytest.fixture
def folder(saved, tmp_path):
    """A copy to break."""
    shutil.copytree(saved, tmp_path / "tiny-llama")
    return tmp_path / "tiny-llama"


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
    ours = model.logits(model.read([Read(0, 0, ids)], KVCache(1, CONTEXT)))
    torch.testing.assert_close(ours, expected(torch.tensor([ids])).logits[0])


def test_a_number_format_that_was_asked_for(saved, tmp_path):
    assert load(saved, tmp_path, dtype="bfloat16").dtype == torch.bfloat16


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
    asked: dict[str, Any] = {}

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


def test_a_broken_tokenizer(folder, tmp_path):
    """Whatever the library raises: of a broken file it is a bare Exception."""
    words = json.loads((folder / "tokenizer.json").read_text())
    words["model"]["type"] = "of tomorrow"
    (folder / "tokenizer.json").write_text(json.dumps(words))
    with pytest.raises(LoadFailed, match="tokenizer"):
        load(folder, tmp_path)


def test_an_unknown_number_format_or_device(saved, tmp_path):
    with pytest.raises(LoadFailed, match="take auto or one of float32"):
        load(saved, tmp_path, dtype="int3")
    with pytest.raises(DeviceUnusable):
        load(saved, tmp_path, device="tpu")
