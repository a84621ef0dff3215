"""Folders of every family load by the call that loads the published ones, in every layout."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from diffusers.models.transformers.transformer_flux2 import Flux2Transformer2DModel
from huggingface_hub import constants

from pipelines.errors import LoadFailed
from pipelines.flux import Flux
from pipelines.loading import load
from pipelines.specs import FLUX2_DEV, KLEINS, KONTEXT, TABLE, find_spec


def load_folder(folder: Path) -> Flux:
    return load(find_spec(str(folder)), device="cpu", on_progress=lambda what, share: None)


@pytest.fixture
def folder(tiny_flux2_folder, tmp_path) -> Path:
    copy = tmp_path / "my-flux2"
    shutil.copytree(tiny_flux2_folder, copy)
    return copy


def same_weights(ours: Flux, theirs: Flux) -> bool:
    pairs = zip(ours.transformer.parameters(), theirs.transformer.parameters(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


def test_sharded_weights_are_joined(folder, tiny_flux2):
    shutil.rmtree(folder / "transformer")
    net: Flux2Transformer2DModel = tiny_flux2.transformer
    net.save_pretrained(folder / "transformer", max_shard_size="100KB")
    assert len(list((folder / "transformer").glob("*.safetensors"))) > 1
    assert same_weights(load_folder(folder), tiny_flux2)


def test_the_hub_s_cache_is_read_without_the_hub(folder, tiny_flux2, tmp_path, monkeypatch):
    """Files are links to blobs there, and the machine may be offline."""
    repository = tmp_path / "hub" / "models--somebody--tiny-flux2"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "blobs").mkdir()
    for number, path in enumerate(sorted(p for p in folder.rglob("*") if p.is_file())):
        blob = repository / "blobs" / str(number)
        shutil.copy(path, blob)
        link = repository / "snapshots" / commit / path.relative_to(folder)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(repository.parent))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    spec = replace(find_spec(str(folder)), source="somebody/tiny-flux2")
    model = load(spec, device="cpu", on_progress=lambda what, share: None)
    assert same_weights(model, tiny_flux2)


@pytest.mark.parametrize("component", ["text_encoder", "vae", "transformer"])
def test_a_truncated_shard_names_its_component(folder, component):
    path = next((folder / component).glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(LoadFailed, match=f"{component} cannot be loaded"):
        load_folder(folder)


@pytest.mark.parametrize(
    "name", ["text_encoder/config.json", "tokenizer/tokenizer_config.json", "vae/config.json"]
)
def test_a_missing_configuration_is_named(folder, name):
    spec = find_spec(str(folder))
    (folder / name).unlink()
    with pytest.raises(LoadFailed, match=f"{name} is missing"):
        load(spec, device="cpu", on_progress=lambda what, share: None)


def test_a_folder_of_another_class_says_which_it_knows(folder):
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps(index | {"_class_name": "QwenImage"}))
    with pytest.raises(LoadFailed, match=r"QwenImage, none of .*Flux2KleinPipeline"):
        find_spec(str(folder))


def test_a_model_that_is_like_another_takes_its_defaults(
    tiny_flux2, tiny_klein, tiny_klein_base, tiny_kontext
):
    for model, like in (
        (tiny_flux2, FLUX2_DEV),
        (tiny_klein, KLEINS[0]),
        (tiny_klein_base, KLEINS[1]),
        (tiny_kontext, KONTEXT),
    ):
        ours = model.spec
        for name in ("family", "default_steps", "guidance", "max_references", "takes_start"):
            assert getattr(ours, name) == getattr(like, name), (ours.name, name)


@pytest.mark.parametrize(
    "name, steps, guidance, kind, tokens",
    [
        ("FLUX.1-dev", 28, 3.5, "embedded", 512),
        ("FLUX.1-schnell", 4, 0.0, "none", 256),
        ("FLUX.1-Kontext-dev", 28, 2.5, "embedded", 512),
        ("FLUX.2-dev", 28, 4.0, "embedded", 512),
        ("FLUX.2-klein-4B", 4, 0.0, "none", 512),
        ("FLUX.2-klein-base-9B", 50, 4.0, "true_cfg", 512),
    ],
)
def test_the_table(name, steps, guidance, kind, tokens):
    spec = TABLE[f"black-forest-labs/{name}"]
    assert (spec.default_steps, spec.default_guidance_scale) == (steps, guidance)
    assert (spec.guidance, spec.max_sequence_length) == (kind, tokens)
