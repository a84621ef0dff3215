"""A device or number format that cannot serve is said before anything is read."""

import pytest
import torch

from pipelines import devices
from pipelines.devices import check_dtype, default_dtype, find_device
from pipelines.errors import DeviceUnusable
from pipelines.loading import load
from pipelines.specs import DEV

CPU = torch.device("cpu")


def test_names():
    assert find_device("cpu") == CPU
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    with pytest.raises(DeviceUnusable, match="no device 'gpu'"):
        find_device("gpu")
    with pytest.raises(DeviceUnusable, match="not on mps"):
        find_device("mps")


def with_cuda(monkeypatch, count: int) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)


def test_a_build_without_cuda(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(DeviceUnusable, match="build without CUDA"):
        find_device("cuda")


def test_a_driver_that_is_missing_or_old_is_told_in_its_own_words(monkeypatch):
    def init():
        raise RuntimeError("Found no NVIDIA driver on your system.\nPlease check …")

    with_cuda(monkeypatch, 0)
    monkeypatch.setattr(torch.cuda, "init", init)
    with pytest.raises(DeviceUnusable, match=r"Found no NVIDIA driver on your system\. Mend that"):
        find_device("cuda")


def test_a_card_that_is_not_there(monkeypatch):
    with_cuda(monkeypatch, 2)
    assert find_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(DeviceUnusable, match="no cuda:2: the last CUDA device here is cuda:1"):
        find_device("cuda:2")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cpu_computes_in_these(dtype):
    check_dtype(CPU, dtype)
    assert default_dtype(CPU) == torch.float32


def test_a_format_without_an_operator_is_told(monkeypatch):
    with pytest.raises(DeviceUnusable, match="This CPU does not compute in float8_e4m3fn"):
        check_dtype(CPU, torch.float8_e4m3fn)


def test_a_device_that_gives_no_numbers_is_told(monkeypatch):
    monkeypatch.setattr(devices, "_try_out", lambda device, dtype: torch.tensor(torch.nan))
    with pytest.raises(DeviceUnusable, match="not numbers in float16"):
        check_dtype(CPU, torch.float16)


def test_an_old_card_is_told_of_bfloat16_by_its_name(monkeypatch):
    monkeypatch.setattr(devices, "_has_bfloat16", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    with pytest.raises(DeviceUnusable, match="Tesla V100 has no units for bfloat16"):
        check_dtype(torch.device("cuda:0"), torch.bfloat16)


def test_nothing_is_downloaded_for_a_device_that_cannot_serve(monkeypatch):
    monkeypatch.setattr("pipelines.loading.download", lambda *asked: 1 / 0)
    with pytest.raises(DeviceUnusable):
        load(DEV, device="gpu", on_progress=lambda what, share: None)
