"""A bridged transformer reads the new encoders' vectors as it read the old ones'."""

import copy

import pytest
import torch
from diffusers import FluxTransformer2DModel
from torch import nn

from training import bridge as bridge_module
from training.bridge import bridge, fit, prepend
from training.text import WIDTH, Text


def test_prepending_a_map_is_applying_it_first() -> None:
    layer, x = nn.Linear(4, 3).requires_grad_(False), torch.randn(10, 4)
    matrix, offset = torch.randn(4, 4), torch.randn(4)
    wanted = layer(x @ matrix + offset)
    prepend(layer, matrix, offset)
    assert torch.allclose(layer(x), wanted, atol=1e-5)


def test_the_fit_finds_an_affine_map_and_the_mean_where_there_is_none() -> None:
    torch.manual_seed(0)
    x, matrix, offset = torch.randn(4000, 5), torch.randn(5, 3), torch.randn(3)
    found = fit(x, x @ matrix + offset, ridge=1e-6)
    assert torch.allclose(found[0], matrix, atol=1e-3) and torch.allclose(
        found[1], offset, atol=1e-3
    )
    unrelated = torch.randn(4000, 3) + 7
    none = fit(x, unrelated)
    assert none[0].abs().max() < 0.1 and torch.allclose(none[1], unrelated.mean(0), atol=0.1)


class Turned(Text):
    """The same encoders, whose vectors are turned and moved."""

    def forward(self, clip_ids: torch.Tensor, t5_ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        turn = torch.linalg.qr(
            torch.randn(WIDTH, WIDTH, generator=torch.Generator().manual_seed(1))
        )
        pooled, tokens = super().forward(clip_ids, t5_ids)
        return 2 * pooled @ turn.Q + 1, 3 * tokens @ turn.Q - 1


def test_a_bridged_transformer_answers_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bridge_module, "CAPTIONS", 400)
    torch.manual_seed(0)
    old = Text().requires_grad_(False)
    new = Turned().requires_grad_(False)
    new.load_state_dict(old.state_dict())
    transformer = FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=WIDTH,
        pooled_projection_dim=WIDTH,
        axes_dims_rope=(4, 6, 6),
    ).requires_grad_(False)
    bridged = copy.deepcopy(transformer)
    bridge(bridged, old, new)

    def velocity(model: FluxTransformer2DModel, text: Text) -> torch.Tensor:
        pooled, tokens = text(*text.tokenise(["a red apple on a blue background"]))
        return model(
            hidden_states=torch.ones(1, 4, 4),
            encoder_hidden_states=tokens,
            pooled_projections=pooled,
            timestep=torch.tensor([0.5]),
            img_ids=torch.zeros(4, 3),
            txt_ids=torch.zeros(tokens.shape[1], 3),
            return_dict=False,
        )[0]

    wanted = velocity(transformer, old)
    assert torch.allclose(velocity(bridged, new), wanted, atol=0.02 * float(wanted.std()))
    assert not torch.allclose(velocity(transformer, new), wanted, atol=0.2 * float(wanted.std()))
