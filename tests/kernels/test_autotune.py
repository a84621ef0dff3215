"""The choice between ways to the same tensor: measured once, kept, bounded, safe with two writers.

No GPU: a clock of the test's own stands in for the device's.
"""

import json
import multiprocessing
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from kernels import autotune, backend, conv2d, group_norm
from kernels.autotune import Choices, choose, size_class

X = torch.zeros(1)


@pytest.fixture
def kept(tmp_path, monkeypatch) -> Path:
    """The file of choices; each measuring of a candidate takes its answer's value in seconds."""
    path = tmp_path / "cache" / "device.json"
    monkeypatch.setattr(autotune, "measure", lambda candidate, device: float(candidate()))
    monkeypatch.setattr(autotune, "choices_of", lambda device: Choices(path))
    return path


def takes(seconds: float, calls: list[float]):
    def candidate():
        calls.append(seconds)
        return torch.tensor(seconds)

    return candidate


def fails():
    raise RuntimeError("out of resource: shared memory")


def test_the_fastest_is_measured_once_and_then_known(kept):
    calls: list[float] = []
    ways = {"torch": takes(3.0, calls), "a": takes(1.0, calls), "b": takes(2.0, calls)}
    assert choose(("conv", 1), X, ways) == 1.0
    assert calls == [3.0, 1.0, 2.0, 1.0]
    assert choose(("conv", 1), X, ways) == 1.0
    assert calls[4:] == [1.0]


def test_torch_is_kept_where_it_is_the_fastest(kept):
    assert choose(("conv", 1), X, {"torch": takes(1.0, []), "a": takes(2.0, [])}) == 1.0


def test_another_key_or_dtype_is_measured_anew(kept):
    calls: list[float] = []
    ways = {"torch": takes(2.0, calls), "a": takes(1.0, calls)}
    for key, x in ((("conv", 1), X), (("conv", 2), X), (("conv", 1), X.bfloat16())):
        choose(key, x, ways)
    assert calls.count(2.0) == 3


def test_a_candidate_that_cannot_run_is_left_out(kept, caplog):
    assert choose(("conv", 1), X, {"torch": takes(1.0, []), "a": fails}) == 1.0
    assert "kernel a cannot run here" in caplog.text


def test_an_error_of_all_candidates_is_raised(kept):
    with pytest.raises(RuntimeError, match="shared memory"):
        choose(("conv", 1), X, {"torch": fails, "a": fails})


def test_a_lack_of_memory_is_raised_and_no_choice(kept):
    short = Mock(side_effect=torch.OutOfMemoryError)
    with pytest.raises(torch.OutOfMemoryError):
        choose(("conv", 1), X, {"torch": short, "a": takes(1.0, [])})
    assert not kept.exists()


def test_near_sizes_share_a_choice():
    sizes = [size_class(torch.empty(n, 3, side, side)) for n, side in ((1, 65), (8, 90), (1, 91))]
    assert sizes[0] == sizes[1] < sizes[2]


def test_a_choice_that_is_gone_is_measured_anew(kept):
    choose(("conv", 1), X, {"old": takes(1.0, [])})
    assert choose(("conv", 1), X, {"new": takes(2.0, [])}) == 2.0


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', "\x00"])
def test_a_broken_file_is_ignored_with_a_notice_and_written_anew(kept, text, caplog):
    kept.parent.mkdir()
    kept.write_text(text)
    choose(("conv", 1), X, {"a": takes(1.0, [])})
    assert "are ignored" in caplog.text
    assert list(json.loads(kept.read_text()).values()) == ["a"]


def test_the_oldest_choices_go(tmp_path):
    choices = Choices(tmp_path / "c.json", limit=2)
    for key in "abc":
        choices.put(key, "x")
    assert list(json.loads((tmp_path / "c.json").read_text())) == ["b", "c"]


def test_a_folder_that_cannot_be_written_is_a_notice(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    choices = Choices(tmp_path / "file" / "c.json")
    choices.put("a", "x")
    assert choices.get("a") == "x" and "cannot be kept" in caplog.text


def put_many(path: Path, name: str) -> None:
    choices = Choices(path)
    for i in range(25):
        choices.put(f"{name}{i}", "x")


def test_two_processes_that_write_keep_what_the_other_wrote(tmp_path):
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=put_many, args=(tmp_path / "c.json", n)) for n in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert len(json.loads((tmp_path / "c.json").read_text())) == 50


@pytest.mark.parametrize("said", ["auto", "torch"])
def test_a_cpu_has_pytorch_s_own(said, monkeypatch):
    monkeypatch.setenv(backend.VARIABLE, said)
    monkeypatch.setattr(autotune, "measure", None)
    x, weight = torch.randn(1, 4, 5, 5), torch.randn(8, 4, 3, 3)
    ours = conv2d.conv2d(x, weight, padding=1, activation="silu")
    assert torch.equal(ours, torch.nn.functional.silu(torch.conv2d(x, weight, padding=1)))
    assert torch.equal(group_norm.group_norm(x, 2), torch.nn.functional.group_norm(x, 2))


def test_another_word_is_refused(monkeypatch):
    monkeypatch.setenv(backend.VARIABLE, "cuda")
    with pytest.raises(ValueError, match="auto, triton, torch"):
        backend.choice()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_device_is_measured(tmp_path, monkeypatch):
    monkeypatch.setenv(autotune.FOLDER, str(tmp_path))
    monkeypatch.setenv(backend.VARIABLE, "auto")
    x = torch.randn(1, 64, 32, 32, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(64, 64, 3, 3, device="cuda", dtype=torch.bfloat16)
    ours = conv2d.conv2d(x, weight, padding=1)
    exact = torch.conv2d(x.double(), weight.double(), padding=1)
    assert float((ours.double() - exact).norm() / exact.norm()) < 1e-2
    assert len(list(tmp_path.glob("*.json"))) == 1
