"""Recorded forwards: the same latents as without, and no recording outlives its weights.

There is no CUDA graph without a CUDA device, so a trace stands in for it: the operations of one
run, on fixed tensors, with every number that Python decided frozen into them.
"""

import gc
import weakref
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from pipelines.cache_rules import resolve
from pipelines.engine import PictureEngine
from pipelines.graphs import CudaRecorder, Graphs, Layout
from pipelines.loading import load
from pipelines.requests import RenderRequest
from pipelines.specs import find_spec
from tests.pipelines.reference import distance, photo, row_of, run

REQUEST = RenderRequest("r", "a frog", 48, 32, 4, (1,), guidance_scale=2.0)
COMPANY = [
    REQUEST,
    replace(REQUEST, prompt="a red boat", steps=6, guidance_scale=5.0, seeds=(2,)),
    replace(REQUEST, width=32, seeds=(3,)),
    replace(REQUEST, seeds=(4,), cache=resolve("fast", warmup_steps=1)),
]
FOLDERS = {"FLUX.1": "tiny_folder", "FLUX.2": "tiny_flux2_folder"}


class Traces:
    """A recorder; counts what it recorded and what was replayed."""

    def __init__(self) -> None:
        self.recorded = self.replayed = 0

    def __call__(self, function, inputs):
        self.recorded += 1
        outputs = function(*inputs)
        traced = make_fx(function)(*inputs)

        def replay():
            self.replayed += 1
            for held, fresh in zip(outputs, traced(*inputs), strict=True):
                if held is not None:
                    held.copy_(fresh)
            return outputs

        return replay


def fails(function, inputs):
    raise RuntimeError("operation not permitted when stream is capturing")


def doubled(factors: nn.Linear):
    return lambda x: (factors(x), None)


def with_graphs(module: nn.Module, **limits) -> tuple[Graphs, Traces]:
    traces = Traces()
    return Graphs(module, traces, **limits), traces


@pytest.fixture
def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 3)


@pytest.mark.parametrize("family", FOLDERS)
@torch.inference_mode()
def test_recorded_forwards_draw_the_same(family, request):
    """Of pictures in company, at other steps and guidances than those of the recorded run."""
    folder = request.getfixturevalue(FOLDERS[family])
    model = load(find_spec(str(folder)), device="cpu", on_progress=lambda *_: None)
    asked = [*COMPANY]
    if model.spec.max_references:
        asked += [replace(REQUEST, references=(photo(32, 32),)), replace(REQUEST, seeds=(9,))]
    expected = run(model, [row_of(model, each) for each in asked])
    model.graphs, traces = with_graphs(model.transformer)
    ours = run(model, [row_of(model, each) for each in asked])
    assert traces.replayed > 2 * traces.recorded > 0
    assert max(map(distance, ours, expected)) < 1e-5


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8])
def test_rows_are_filled_up_to_a_bucket_and_given_back_alone(rows, linear):
    graphs, traces = with_graphs(linear)
    for seed in range(3):
        x = torch.randn(rows, 4, 3, generator=torch.Generator().manual_seed(seed))
        ours, nothing = graphs.run("key", doubled(linear), [x], 4)
        assert nothing is None and torch.allclose(ours, linear(x))
    assert traces.recorded == 1 and traces.replayed == 3


def test_rows_of_some_size_are_recorded_as_they_are(linear, monkeypatch):
    """Filling three pictures up to four would cost a third of their time."""
    monkeypatch.setattr("pipelines.graphs.MAX_FILLED_TOKENS", 7)
    graphs, _ = with_graphs(linear)
    seen = Mock(wraps=graphs._record)
    monkeypatch.setattr(graphs, "_record", seen)
    for tokens in (1, 2):
        graphs.run(tokens, doubled(linear), [torch.ones(3, 3)], tokens)
    assert [len(call.args[1][0]) for call in seen.call_args_list] == [4, 3]


def test_what_the_function_holds_lives_as_long_as_its_recording(linear):
    """A CUDA graph knows addresses alone, so nobody else would keep the rotary angles."""

    def record(function, inputs):
        outputs = function(*inputs)
        return lambda: outputs

    angles = torch.ones(3)
    kept = weakref.ref(angles)
    graphs = Graphs(linear, record)
    graphs.run("key", partial(lambda held, x: (x * held,), angles), [torch.ones(1, 3)], 1)
    del angles
    gc.collect()
    assert kept() is not None
    graphs.clear()
    gc.collect()
    assert kept() is None


def test_without_memory_the_recordings_go(tiny_folder, monkeypatch):
    model = load(find_spec(str(tiny_folder)), device="cpu", on_progress=lambda *_: None)
    engine = PictureEngine(model)
    model.graphs = Mock(wraps=with_graphs(model.transformer)[0])
    with monkeypatch.context() as patched:
        patched.setattr(model, "head", Mock(side_effect=torch.OutOfMemoryError))
        engine.submit(REQUEST)
        while not engine.is_idle:
            engine.tick()
    model.graphs.clear.assert_called()


def test_a_later_run_leaves_the_answers_of_the_earlier_ones(linear):
    graphs, _ = with_graphs(linear)
    first, _ = graphs.run("key", doubled(linear), [torch.ones(1, 3)], 1)
    assert first is not None
    before = first.clone()
    graphs.run("key", doubled(linear), [torch.zeros(1, 3)], 1)
    assert torch.equal(first, before)


def test_large_forwards_and_many_rows_run_as_they_are(linear):
    graphs, traces = with_graphs(linear, max_tokens=8)
    for rows, tokens in ((1, 9), (3, 3), (9, 1)):
        x = torch.randn(rows, tokens, 3)
        assert torch.equal(graphs.run("key", doubled(linear), [x], tokens)[0], linear(x))
    assert traces.recorded == 0


def test_the_least_used_recording_goes(linear):
    graphs, traces = with_graphs(linear, max_recordings=2)
    for key in ("a", "b", "a", "c", "a", "b"):
        graphs.run(key, doubled(linear), [torch.ones(1, 3)], 1)
    assert traces.recorded == 4  # a, b, c, and b again


def lora(model: nn.Sequential) -> None:
    """As adapters do it: a layer of the same name around the old one."""
    model[0] = nn.Sequential(model[0], nn.Linear(3, 3))


def other_data(model: nn.Sequential) -> None:
    model[0].weight.data = torch.full((3, 3), 7.0)


def other_parameter(model: nn.Sequential) -> None:
    model[0].bias = nn.Parameter(torch.full((3,), 7.0))


def hook(model: nn.Sequential) -> None:
    model[0].register_forward_hook(lambda module, inputs, output: output * 7)


def in_place(model: nn.Sequential) -> None:
    with torch.no_grad():
        model[0].weight.mul_(7)


@pytest.mark.parametrize("change", [lora, other_data, other_parameter, hook, in_place])
def test_no_change_of_the_weights_is_missed(change):
    """The stand-in reads the weights where they lay, as a CUDA graph does."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3))
    graphs, traces = with_graphs(model)
    x = torch.ones(1, 3)
    with torch.no_grad():
        graphs.run("key", doubled(model), [x], 1)
        before = model(x)
        change(model)
        ours, _ = graphs.run("key", doubled(model), [x], 1)
        assert torch.allclose(ours, model(x)) and not torch.allclose(ours, before)
    assert traces.recorded == (1 if change is in_place else 2)


def test_a_layout_is_unchanged_while_nothing_is_replaced(linear):
    layout = Layout(linear)
    linear(torch.ones(1, 3))
    assert layout.is_unchanged()


def test_what_cannot_be_recorded_runs_as_it_is_and_is_tried_once(linear, caplog):
    graphs, x = Graphs(linear, fails), torch.ones(1, 3)
    for _ in range(2):
        assert torch.equal(graphs.run("key", doubled(linear), [x], 1)[0], linear(x))
    assert caplog.text.count("cannot be recorded") == 1


def test_an_error_of_the_function_itself_is_raised(linear):
    graphs, _ = with_graphs(linear)

    def broken(x):
        raise ValueError("in transformer_blocks.0")

    with pytest.raises(ValueError, match=r"transformer_blocks\.0"):
        graphs.run("key", broken, [torch.ones(1, 3)], 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@torch.inference_mode()
def test_a_cuda_graph_answers_as_the_module():
    device = torch.device("cuda")
    linear = nn.Linear(3, 3).to(device)
    graphs = Graphs(linear, CudaRecorder(device))
    for rows in (1, 3, 3):
        x = torch.randn(rows, 4, 3, device=device)
        assert torch.allclose(graphs.run("key", doubled(linear), [x], 4)[0], linear(x))
