"""The early blocks' questions: right answers cost nothing, and the layers can be learnt."""

import torch
from diffusers import FluxTransformer2DModel

from training.guides import NAMED_AT, OBJECTS, Guides, sides
from training.transformer import build


def forward(transformer: FluxTransformer2DModel, rows: int, height: int, width: int) -> None:
    ids = torch.cat([torch.zeros(height * width, 1), sides(height, width)[:, [0, 2]].float()], 1)
    transformer(
        hidden_states=torch.randn(rows, height * width, 128),
        encoder_hidden_states=torch.randn(rows, 8, 128),
        pooled_projections=torch.randn(rows, 128),
        timestep=torch.full((rows,), 0.9),
        img_ids=ids,
        txt_ids=torch.zeros(8, 3),
        guidance=torch.ones(rows),
    )


def test_sides_are_counted_from_both() -> None:
    assert sides(2, 3).tolist() == [
        *([0, 1, 0, 2], [0, 1, 1, 1], [0, 1, 2, 0]),
        *([1, 0, 0, 2], [1, 0, 1, 1], [1, 0, 2, 0]),
    ]


def test_the_questions_can_be_learnt_and_teach_the_blocks_before_them() -> None:
    torch.manual_seed(0)
    transformer = build()
    guides = Guides(transformer)
    parts = torch.zeros(2, 6, 2, dtype=torch.long)
    parts[0, 1], parts[1, 4] = torch.tensor([3, 5]), torch.tensor([OBJECTS - 1, 2])
    optimiser = torch.optim.Adam([*transformer.parameters(), *guides.parameters()], lr=3e-3)
    totals = []
    for _ in range(12):
        torch.manual_seed(1)
        forward(transformer, 2, 2, 3)
        losses = guides.loss(2, 3, parts)
        total = losses["places"] + losses["names"]
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
        totals.append(float(total.detach()))
    assert totals[-1] < totals[0] / 3
    reached = transformer.single_transformer_blocks
    assert reached[NAMED_AT].attn.to_q.weight.grad is not None
    assert reached[NAMED_AT + 1].attn.to_q.weight.grad is None


def test_a_transformer_is_saved_without_them() -> None:
    transformer = build()
    before = set(transformer.state_dict())
    Guides(transformer)
    assert set(transformer.state_dict()) == before
