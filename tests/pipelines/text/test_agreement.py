"""Models that this engine cannot serve are refused before they serve."""

import json

import pytest
from transformers import MambaConfig, T5Config

from pipelines.text import agreement
from pipelines.text.agreement import NotServed, check_agreement
from tests.pipelines.text.tiny_models import CONFIGS, language_model, load, make_module


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "of-tomorrow"}, "does not know of-tomorrow"),
        (MambaConfig(hidden_size=8, num_hidden_layers=1).to_dict(), "recurrent state"),
        (T5Config(d_model=8).to_dict(), "t5 is no causal|encoder with a decoder"),
        ({"model_type": "clip"}, "no causal language model"),
        ({"model_type": "bloom"}, "cannot be exchanged"),
        ({"model_type": "qwen3_next"}, "recurrent state"),
        ({"model_type": "llama4_text"}, "chunked_attention"),
    ],
    ids=["unknown", "mamba", "t5", "clip", "bloom", "linear", "chunked"],
)
def test_architectures_that_are_not_served(tmp_path, config, said):
    """By the config alone: no weights are looked at."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(NotServed, match=said) as caught:
        load(tmp_path, tmp_path)
    assert "--text-engine http" in caught.value.message


@pytest.mark.parametrize("name", CONFIGS)
def test_served_architectures_agree(name):
    """Longer than their windows: those are narrowed for the check, and are what they were after."""
    model = language_model(make_module(name, sliding_window=64, index_topk=64))
    check_agreement(model)
    assert model.config._attn_implementation == "studio"
    assert getattr(model.config, "sliding_window", None) in (64, None)


@pytest.mark.parametrize("name", ["llama", "mistral", "gpt-oss", "deepseek-v3.2"])
def test_attention_that_is_wrong_is_found(name, monkeypatch):
    """Too wide a window, too few tokens, no sinks: each would go unnoticed in a short text."""
    right = agreement._packed
    model = language_model(make_module(name, sliding_window=64, index_topk=64))
    if name == "gpt-oss":
        model.module.model.layers[0].self_attn.sliding_window = None
    elif name == "mistral":
        monkeypatch.setattr("pipelines.text.layout.Group.mask", _without_window)
    elif name == "deepseek-v3.2":
        monkeypatch.setattr("pipelines.text.sparse_attention.IndexQuery.mask", _all_but_index)
    else:
        monkeypatch.setattr(agreement, "_packed", lambda *args: _scaled(right(*args)))
    with pytest.raises(NotServed, match="does not agree"):
        check_agreement(model)


def _without_window(group, window, fold, device):
    return group._make_mask(None, fold, device)


def _all_but_index(index, layer, group, cache):
    return group._make_mask(None, 1, index.query.device)


def _scaled(parts):
    return [part * 1.01 for part in parts]


def test_attention_that_fails_is_a_refusal(monkeypatch):
    def fail(*args, **more):
        raise TypeError("got an unexpected keyword argument 'packed'")

    model = language_model(make_module("llama"))
    monkeypatch.setattr(model.module.model, "forward", fail)
    with pytest.raises(NotServed, match="unexpected keyword"):
        check_agreement(model)
