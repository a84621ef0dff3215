"""`app.py doctor` looks at everything, changes nothing, and says what is wrong."""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants

from studio.engine.doctor import examine, main
from studio.settings import Settings
from tests.tiny_flux import make_tiny_flux

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return make_tiny_flux(tmp_path_factory.mktemp("doctor") / "tiny")


def settings_for(tmp_path: Path, model: Path | str, **values) -> Settings:
    return Settings(
        _env_file=None,
        model=(str(model),),
        data_dir=tmp_path / "data",
        port=0,
        device="cpu",
        **values,
    )


def faults(settings: Settings) -> dict[str, str]:
    return {found.name: found.message for found in examine(settings) if not found.is_fine}


def test_all_is_fine(tmp_path, model, capsys):
    assert main(settings_for(tmp_path, model)) == 0
    said = capsys.readouterr().out
    assert "cpu computes in float32" in said and f"tiny-flux-dev is whole in {model}" in said
    assert "NOT" not in said


def test_a_model_that_is_not_here_yet_is_no_fault(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    found = {f.name: f for f in examine(settings_for(tmp_path, "black-forest-labs/FLUX.1-dev"))}
    assert found["model"].is_fine and "the first start downloads it" in found["model"].message


def test_every_fault_is_told_with_its_way_out(tmp_path, model):
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    (broken / "vae" / "config.json").unlink()
    (tmp_path / "data").write_text("a file where the folder should be")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = settings_for(tmp_path, broken)
        settings = settings.model_copy(update={"port": taken.getsockname()[1], "device": "gpu"})
        found = faults(settings)
    assert set(found) == {"device", "model", "memory", "data", "address"}
    assert "--data-dir" in found["data"] and "--port" in found["address"]
    assert "no device 'gpu'" in found["device"]


def test_an_unknown_model(tmp_path):
    assert "There is no model 'nobody'" in faults(settings_for(tmp_path, "nobody"))["model"]


def test_the_command_line(tmp_path, model):
    command = [sys.executable, "app.py", "doctor", "--model", str(model), "--device", "cpu"]
    flags = ["--data-dir", str(tmp_path / "data"), "--port", "0"]
    ran = subprocess.run([*command, *flags], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(ran.stdout.splitlines()) == 7
    assert json.loads((model / "model_index.json").read_text())["_class_name"] == "FluxPipeline"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "the first start fetches 93 MB"),
        ({"text_engine": "off"}, "nobody writes text"),
        ({"text_engine": "http", "text_url": "http://there:1/v1"}, "http://there:1/v1 writes text"),
        ({"text_model": "some/model"}, "some/model writes text"),
    ],
)
def test_who_writes_text(tmp_path, model, values, said):
    found = {f.name: f for f in examine(settings_for(tmp_path, model, **values))}
    assert found["text"].is_fine and said in found["text"].message


def test_a_text_url_that_the_start_refuses_is_no_fine_one(tmp_path, model):
    settings = settings_for(tmp_path, model, text_engine="http", text_url="ftp://there")
    assert "--text-url ftp://there is no server's" in faults(settings)["text"]


def test_the_text_model_that_is_there(tmp_path, model, smollm2_folder):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "text").symlink_to(smollm2_folder)
    found = {f.name: f for f in examine(settings_for(tmp_path, model))}
    assert "is whole in" in found["text"].message
