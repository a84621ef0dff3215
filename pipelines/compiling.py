"""`torch.compile` of the transformer's blocks: one graph for each kind of block, for any size.

Blocks of a kind share their code, so a kind is compiled once and its weights are inputs. Shapes are
symbols from the start: another picture size, number of rows or text length finds the same graph,
but for a single row, which PyTorch always compiles apart.
"""

from collections.abc import Iterable

from torch import nn

from pipelines.flux import Flux


def compile_blocks(model: Flux, backend: str = "inductor") -> None:
    """Makes head and tail run compiled; the first pictures wait for it.

    Raises at the first run where a block has a part that no graph can hold.
    """
    for block in blocks_of(model):
        block.compile(backend=backend, fullgraph=True, dynamic=True)


def blocks_of(model: Flux) -> Iterable[nn.Module]:
    net = model.transformer
    return (*net.transformer_blocks, *net.single_transformer_blocks)
