"""One thread for torch, for the folders whose tests load it."""

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Small tensors gain nothing from a second core, and other work runs beside the tests."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
