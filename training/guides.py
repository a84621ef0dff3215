"""What the transformer's early blocks are asked beside the picture, while it is trained.

Left to the picture's loss alone, tokens learn late where they are: rotary angles tell distances,
and absolute places only by way of the text tokens. Here a layer on the second block's tokens has to
name their row and column, from either side, and one on a middle block's which part of which object
they will show. Both layers are thrown away. Cf. REPA (Yu et al. 2025, arXiv 2410.06940), which
aligns a middle block with features of a pretrained encoder; drawings come with better ones.
"""

from __future__ import annotations

from typing import Any

import torch
from diffusers import FluxTransformer2DModel
from torch import Tensor, nn
from torch.nn import functional as F

from training.drawing import LARGE, NUMBERS, PARTS

PLACED_AT = 1  # the double block whose tokens are asked for their place
NAMED_AT = 3  # the single block whose tokens are asked for what they show
SIDE = 16  # tokens: more than the longest side of any bucket
OBJECTS, ALL_PARTS = len(NUMBERS) + 1, PARTS[LARGE] + LARGE**2


class Guides(nn.Module):  # type: ignore[misc]
    """The two layers, and hooks that keep what they read."""

    def __init__(self, transformer: FluxTransformer2DModel) -> None:
        super().__init__()
        width = transformer.inner_dim
        self.places = nn.Linear(width, 4 * SIDE)
        self.names = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, OBJECTS + ALL_PARTS))
        self._seen: dict[str, Tensor] = {}
        transformer.transformer_blocks[PLACED_AT].register_forward_hook(self._keep("places"))
        transformer.single_transformer_blocks[NAMED_AT].register_forward_hook(self._keep("names"))

    def _keep(self, name: str) -> Any:
        def hook(block: nn.Module, given: Any, answer: tuple[Tensor, Tensor]) -> None:
            self._seen[name] = answer[1]

        return hook

    def loss(self, height: int, width: int, parts: Tensor) -> dict[str, Tensor]:
        """Cross-entropies of the last forward, of pictures of so many tokens.

        ``parts``: [rows, tokens, 2] of `drawing.parts_of`.
        """
        rows = len(parts)
        asked = self.places(self._seen.pop("places").float()).unflatten(-1, (4, SIDE))
        wanted = sides(height, width).to(asked.device).expand(rows, -1, -1)
        places = F.cross_entropy(asked.flatten(0, 2), wanted.flatten())
        answers = self.names(self._seen.pop("names").float()).flatten(0, 1)
        named, numbered = answers.split([OBJECTS, ALL_PARTS], -1)
        objects = F.cross_entropy(named, parts[..., 0].flatten())
        return {
            "places": places,
            "names": objects + F.cross_entropy(numbered, parts[..., 1].flatten()),
        }


def sides(height: int, width: int) -> Tensor:
    """Tokens above, below, to the left and to the right of each: [tokens, 4]."""
    down, across = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    each = torch.stack([down, height - 1 - down, across, width - 1 - across], -1)
    return each.flatten(0, 1)
