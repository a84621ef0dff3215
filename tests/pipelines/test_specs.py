"""What is known of a model without its weights."""

import json
import shutil

import pytest

from pipelines.errors import LoadFailed, ModelNotFound
from pipelines.specs import EMBEDDED, EMBEDDED_FOLDER, TABLE, find_spec, snap_size


@pytest.fixture
def folder(tiny_folder, tmp_path):
    copy = tmp_path / "my-flux"
    shutil.copytree(tiny_folder, copy)
    return copy


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_the_table_knows_dev_and_schnell():
    dev = find_spec("black-forest-labs/FLUX.1-dev")
    schnell = find_spec("black-forest-labs/FLUX.1-schnell")
    assert (dev.default_steps, dev.max_sequence_length, dev.has_guidance) == (
        28,
        512,
        True,
    )
    assert (schnell.default_steps, schnell.max_sequence_length) == (4, 256)
    assert not schnell.has_guidance


def test_a_negative_prompt_acts_by_true_cfg_which_is_guidance_itself_on_klein_base():
    scales = {spec.name.split("/")[1]: spec.negative_scale for spec in TABLE.values()}
    bases = {name for name, scale in scales.items() if scale == "guidance_scale"}
    assert bases == {"FLUX.2-klein-base-4B", "FLUX.2-klein-base-9B"}


def test_a_folder_weighs_what_its_files_do(folder):
    size = sum(path.stat().st_size for path in folder.rglob("*.safetensors"))
    assert find_spec(str(folder)).weights_gb == size / 1e9


def test_a_name_that_is_nothing_is_answered_with_the_names_that_are():
    with pytest.raises(ModelNotFound, match=r"FLUX\.9.*flux-emoji.*FLUX\.1-dev"):
        find_spec("FLUX.9")


def test_a_folder_speaks_for_itself(folder):
    (folder / "studio.json").unlink()
    spec = find_spec(str(folder))
    assert (spec.name, spec.source, spec.family) == ("my-flux", str(folder), "flux1")
    assert (spec.size_multiple, spec.min_side_px) == (16, 128)
    assert spec.has_guidance and spec.max_sequence_length == 512


def test_the_size_multiple_follows_the_levels_of_the_vae(folder):
    change(folder / "vae" / "config.json", block_out_channels=[8, 8, 8, 8, 8])
    assert find_spec(str(folder)).size_multiple == 32


def test_a_folder_without_guidance_embedding_is_like_schnell(folder):
    (folder / "studio.json").unlink()
    change(folder / "transformer" / "config.json", guidance_embeds=False)
    spec = find_spec(str(folder))
    assert (spec.default_steps, spec.default_guidance_scale) == (4, 0.0)
    assert spec.max_sequence_length == 256


def test_studio_json_has_the_last_word(folder):
    change(folder / "studio.json", native_size=[96, 64], default_steps=20, name="mine")
    spec = find_spec(str(folder))
    assert (spec.native_width, spec.native_height) == (96, 64)
    assert (spec.default_steps, spec.name) == (20, "mine")


def test_an_unknown_setting_in_studio_json_is_refused(folder):
    change(folder / "studio.json", default_stepz=20)
    with pytest.raises(LoadFailed, match=r"studio\.json.*default_stepz"):
        find_spec(str(folder))


def test_an_empty_folder_is_told_what_it_lacks(tmp_path):
    with pytest.raises(ModelNotFound, match=r"model_index\.json"):
        find_spec(str(tmp_path))


def test_another_family_is_refused_by_its_name(folder):
    change(folder / "model_index.json", _class_name="StableDiffusionPipeline")
    with pytest.raises(LoadFailed, match="StableDiffusionPipeline, none of FluxPipeline"):
        find_spec(str(folder))


@pytest.mark.parametrize("content", ["{", "[]", "\x00"])
def test_a_broken_configuration_is_named(folder, content):
    path = folder / "vae" / "config.json"
    path.write_text(content)
    with pytest.raises(LoadFailed, match=r"vae/config\.json"):
        find_spec(str(folder))


def test_sizes_are_floored(tiny):
    assert snap_size(tiny.spec, 100, 47) == (96, 32)
    assert snap_size(tiny.spec, 96, 32) == (96, 32)


def test_the_embedded_model_is_found_by_name():
    spec = find_spec(EMBEDDED)
    assert (spec.name, spec.family, spec.size_multiple) == (EMBEDDED, "flux1", 32)
    assert spec == find_spec(str(EMBEDDED_FOLDER))
