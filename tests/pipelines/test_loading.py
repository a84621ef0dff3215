"""Folders: whole ones load, broken ones name the file."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from pipelines.errors import DeviceUnusable, LoadFailed
from pipelines.loading import Told, load
from pipelines.specs import find_spec


@pytest.fixture
def folder(tiny_folder, tmp_path):
    copy = tmp_path / "my-flux"
    shutil.copytree(tiny_folder, copy)
    return copy


def load_folder(folder, on_progress=lambda what, share: None, **options):
    return load(find_spec(str(folder)), device="cpu", on_progress=on_progress, **options)


def test_progress_names_each_component_and_never_steps_back(folder):
    heard = []
    load_folder(folder, on_progress=lambda what, share: heard.append((what, share)))
    shares = [share for _, share in heard]
    assert shares == sorted(shares) and shares[0] == 0.0 and heard[-1] == ("Ready", 1.0)
    names = [what.split()[1] for what, _ in heard[:-1]]
    assert list(dict.fromkeys(names)) == ["text_encoder", "text_encoder_2", "vae", "transformer"]


def test_progress_counts_the_bytes_of_every_shard(folder, monkeypatch):
    """In pieces of 10 kB: each is told as it is read, the last with all of the component."""
    monkeypatch.setattr("pipelines.read_ahead.CHUNK", 10_000)
    net = load_folder(folder).transformer
    (folder / "transformer" / "diffusion_pytorch_model.safetensors").unlink()
    net.save_pretrained(folder / "transformer", max_shard_size="50KB")
    shards = list((folder / "transformer").glob("*.safetensors"))
    heard = []
    load_folder(folder, on_progress=lambda what, share: heard.append((what, share)))
    shares = [share for what, share in heard if "transformer" in what]
    pieces = sum(-(-path.stat().st_size // 10_000) for path in shards)
    assert len(shards) > 1 and len(shares) == 1 + pieces
    assert shares == sorted(set(shares)) and shares[-1] < 1.0


def test_progress_is_told_in_gigabytes():
    heard = []
    tell = Told({"vae": 10**9, "transformer": 3 * 10**9}, lambda *news: heard.append(news))
    tell.loading("vae")
    tell.loading("transformer")
    tell.read("transformer", 10**9)
    assert heard == [
        ("Loading vae (1.00 GB)", 0.0),
        ("Loading transformer (3.00 GB)", 0.25),
        ("Loading transformer (1.00 of 3.00 GB)", 0.45),
    ]


def test_weights_are_not_read_ahead_where_memory_is_short(folder, monkeypatch):
    class Full:
        available = 10

    monkeypatch.setattr("psutil.virtual_memory", Full)
    heard = []
    load_folder(folder, on_progress=lambda what, share: heard.append(share))
    assert len(heard) == 5  # the four components as they begin, and the end


@pytest.mark.parametrize(("said", "is_swapped"), [("auto", True), ("torch", False)])
def test_the_vae_runs_on_the_kernels_unless_told_otherwise(folder, said, is_swapped, monkeypatch):
    monkeypatch.setenv("STUDIO_KERNELS", said)
    block = load_folder(folder).vae.decoder.mid_block.resnets[0]
    assert ("forward" in block.__dict__) == is_swapped


def test_another_word_for_the_kernels_is_told_before_weights_are_read(folder, monkeypatch):
    monkeypatch.setenv("STUDIO_KERNELS", "fast")
    heard = []
    with pytest.raises(DeviceUnusable, match="auto, triton, torch"):
        load_folder(folder, on_progress=lambda *news: heard.append(news))
    assert not heard


def test_a_cpu_gets_float32_and_modules_that_do_not_train(folder):
    model = load_folder(folder)
    modules = (model.transformer, model.vae, model.prompts.clip, model.prompts.t5)
    parameters = [p for module in modules for p in module.parameters()]
    assert {p.dtype for p in parameters} == {torch.float32}
    assert not any(p.requires_grad for p in parameters)
    assert not any(module.training for module in modules)


def test_weights_stored_in_bfloat16_are_loaded_in_float32(folder):
    for path in folder.glob("*/*.safetensors"):
        save_file({k: v.bfloat16() for k, v in load_file(path).items()}, path, {"format": "pt"})
    assert load_folder(folder).dtype == torch.float32


def test_the_dtype_can_be_chosen(folder):
    assert load_folder(folder, dtype=torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize(
    "name",
    [
        "transformer/config.json",
        "text_encoder_2/config.json",
        "tokenizer_2/tokenizer_config.json",
        "scheduler/scheduler_config.json",
    ],
)
def test_a_missing_configuration_is_named(folder, name):
    spec = find_spec(str(folder))
    (folder / name).unlink()
    with pytest.raises(LoadFailed, match=f"{name} is missing"):
        load(spec, device="cpu", on_progress=lambda what, share: None)


def test_missing_weights_are_named(folder):
    (folder / "vae" / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(LoadFailed, match=r"no \.safetensors in .*vae"):
        load_folder(folder)


def test_a_missing_shard_is_named(folder):
    index = {"weight_map": {"x": "model-00001-of-00002.safetensors"}}
    (folder / "text_encoder_2" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(LoadFailed, match=r"model-00001-of-00002\.safetensors is missing"):
        load_folder(folder)


def test_an_index_without_a_table_is_a_sentence(folder):
    (folder / "text_encoder_2" / "model.safetensors").unlink()
    (folder / "text_encoder_2" / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(LoadFailed, match="text_encoder_2 cannot be loaded"):
        load_folder(folder)


@pytest.mark.parametrize("component", ["vae", "text_encoder"])
def test_a_truncated_file_names_its_component(folder, component):
    path = next((folder / component).glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(LoadFailed, match=f"{component} cannot be loaded"):
        load_folder(folder)


@pytest.mark.parametrize("component", ["transformer", "text_encoder_2"])
def test_missing_tensors_are_refused_instead_of_drawn_at_random(folder, component):
    path = next((folder / component).glob("*.safetensors"))
    tensors = load_file(path)
    lost = sorted(name for name in tensors if name.endswith("weight"))[0]
    del tensors[lost]
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(LoadFailed, match=component):
        load_folder(folder)


def test_a_broken_tokenizer_names_its_folder(folder):
    (folder / "tokenizer" / "tokenizer.json").write_text("{")
    with pytest.raises(LoadFailed, match="tokenizer cannot be loaded"):
        load_folder(folder)


def test_a_schedule_that_would_be_wrong_is_refused(folder):
    path = folder / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"use_karras_sigmas": True}))
    with pytest.raises(LoadFailed, match="use_karras_sigmas"):
        load_folder(folder)
