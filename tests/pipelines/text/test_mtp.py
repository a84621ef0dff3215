"""Multi-token prediction: the drafts of transformers' own modules, and the text without them."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import DeepseekV3ForCausalLM
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpModel

from pipelines.errors import LoadFailed
from pipelines.text.engine import EngineOptions
from pipelines.text.language_model import LanguageModel
from pipelines.text.mtp import MtpDrafter, read_mtp
from pipelines.text.requests import Sampling, TextRequest
from tests.pipelines.text.serving import open_engine, run
from tests.pipelines.text.tiny_models import (
    Stock,
    language_model,
    load,
    make_module,
    random_ids,
    save,
    text_of,
)

WRITTEN = 16


def make(modules: int) -> tuple[LanguageModel, MtpModel]:
    module = make_module("deepseek-v3", num_mtp_layers=modules)
    torch.manual_seed(1)
    mtp = MtpModel(module, modules).eval().requires_grad_(False)
    for name, parameter in mtp.layers.named_parameters():
        parameter.copy_(0.3 * torch.randn(parameter.shape) + ("norm" in name))
    return language_model(module), mtp


class Recorder(MtpDrafter):
    """Keeps each draft with the text that it follows."""

    def __init__(self, *args) -> None:
        super().__init__(*args)
        self.drafts: list[tuple[list[int], tuple[int, ...]]] = []

    def propose(self, rows, width):
        drafts = super().propose(rows, width)
        self.drafts += [
            (list(row.ids), draft.tokens) for row, draft in zip(rows, drafts, strict=True)
        ]
        return drafts


def request(number: int, prompt: list[int]) -> TextRequest:
    return TextRequest(
        str(number),
        text_of(prompt),
        seed=0,
        sampling=Sampling(temperature=0),
        max_tokens=WRITTEN + 4 * number,
    )


def serve(model: LanguageModel, mtp: MtpModel, prompts: list[list[int]], width: int):
    """The texts by prompt, the drafter and its success. Each prompt joins later."""
    engine, told = open_engine(model, EngineOptions(widths=(0, width), is_adaptive=False))
    engine.drafter = drafter = Recorder(mtp, model, engine.cache)
    run(engine, [request(*item) for item in enumerate(prompts)], apart=3)
    texts = [
        [int(word) for word in told.text(str(number)).split()] for number in range(len(prompts))
    ]
    return texts, drafter, told.speculation


class StockMtp:
    """transformers' own modules over a whole text, without a cache from before."""

    def __init__(self, model: LanguageModel, mtp: MtpModel) -> None:
        self._main = Stock(model.module).module
        self._mtp = MtpModel(self._main, len(mtp.layers)).eval()
        self._mtp.load_state_dict(mtp.state_dict())

    @torch.no_grad()
    def draft(self, ids: list[int]) -> tuple[int, ...]:
        hidden = self._main.model(torch.tensor([ids[:-1]])).last_hidden_state
        tokens, _, _ = self._mtp(
            input_ids=torch.tensor([ids[1:]]),
            last_hidden_states=hidden,
            attention_mask=None,
            position_ids=torch.arange(1, len(ids))[None],
            mtp_cache=MtpCache(config=self._main.config.get_mtp_config()),
        )
        return tuple(tokens[0].tolist())


PROMPTS = [random_ids(18, 1), random_ids(7, 2), [*random_ids(18, 1)[:14], *random_ids(6, 3)]]


@pytest.mark.parametrize("modules", [1, 2, 3])
def test_drafts_and_text_are_those_of_transformers(modules):
    """In a batch of different lengths; the third prompt goes on from the first one's beginning."""
    model, mtp = make(modules)
    stock, stock_mtp = Stock(model.module), StockMtp(model, mtp)
    prompts = PROMPTS[:2] if modules > 1 else PROMPTS  # a kept beginning suits the first module
    texts, drafter, told = serve(model, mtp, prompts, modules)
    for number, (prompt, text) in enumerate(zip(prompts, texts, strict=True)):
        assert text == stock.generate(prompt, WRITTEN + 4 * number)
    assert told.drafted > WRITTEN
    for ids, tokens in drafter.drafts:
        assert tokens == stock_mtp.draft(ids)[: len(tokens)], len(ids)


def test_a_module_that_reads_another_place_drafts_something_else():
    """The comparison above would notice: states that are one place off."""
    model, mtp = make(1)
    stock_mtp = StockMtp(model, mtp)
    forward = mtp.forward_layer
    mtp.forward_layer = lambda number, states, *rest, **more: forward(
        number, states.roll(1, dims=1), *rest, **more
    )
    texts, drafter, _ = serve(model, mtp, PROMPTS[:1], 1)
    assert texts[0] == Stock(model.module).generate(PROMPTS[0], WRITTEN)
    assert any(tokens != stock_mtp.draft(ids) for ids, tokens in drafter.drafts)


@pytest.mark.parametrize("width", [1, 3])
def test_right_drafts_are_accepted(width):
    """The next token hangs on the last alone, and the module knows how: all its drafts stand."""
    model, mtp = make(1)
    for layer in (*model.module.model.layers, mtp.layers[0].mtp_block):
        for name, parameter in layer.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                parameter.zero_()
    layer, size = mtp.layers[0], model.width
    layer.eh_proj.weight.copy_(torch.cat([torch.eye(size), torch.zeros(size, size)], dim=1))
    layer.enorm.weight.fill_(1)
    layer.post_norm.weight.copy_(model.module.model.norm.weight)
    texts, _, told = serve(model, mtp, PROMPTS[:2], width)
    assert told.accepted == told.drafted > 0
    for number, text in enumerate(texts):
        assert text == Stock(model.module).generate(PROMPTS[number], WRITTEN + 4 * number)


# Folders


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Four layers in the file, of which the config takes three: the fourth is a module's block."""
    save(tmp_path / "tiny", make_module("deepseek-v3", num_hidden_layers=4))
    config = json.loads((tmp_path / "tiny" / "config.json").read_text())
    config |= {"num_hidden_layers": 3, "num_nextn_predict_layers": 1}
    (tmp_path / "tiny" / "config.json").write_text(json.dumps(config))
    weights = load_file(tmp_path / "tiny" / "model.safetensors")
    for name in ("enorm", "hnorm", "shared_head.norm"):
        weights[f"model.layers.3.{name}.weight"] = torch.rand(32)
    weights["model.layers.3.eh_proj.weight"] = torch.randn(32, 64)
    save_file(weights, tmp_path / "tiny" / "model.safetensors", metadata={"format": "pt"})
    # transformers knows the modules of the published sizes by their numbers alone.
    monkeypatch.setattr(
        DeepseekV3ForCausalLM, "_keys_to_ignore_on_load_unexpected", [r"model\.layers\.3.*"]
    )
    return tmp_path / "tiny"


def test_modules_of_a_folder(folder, tmp_path):
    model = load(folder, tmp_path)
    mtp = read_mtp(model)
    weights = load_file(folder / "model.safetensors")
    torch.testing.assert_close(
        mtp.layers[0].eh_proj.weight, weights["model.layers.3.eh_proj.weight"]
    )
    texts, _, told = serve(model, mtp, PROMPTS[:1], 1)
    assert told.drafted > 0
    assert texts[0] == Stock(model.module).generate(PROMPTS[0], WRITTEN)


def test_a_folder_without_modules(folder, tmp_path):
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.3.eh_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LoadFailed, match=r"eh_proj.*--speculation"):
        read_mtp(load(folder, tmp_path))
    with pytest.raises(LoadFailed, match="no modules"):
        read_mtp(language_model(make_module("llama")))
