"""Floating-point operations of matrix products, convolutions and attention.

Two for a multiplication and its addition, as torch's counter has it; norms, activations and copies
are not counted.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

T = TypeVar("T")
# On a CPU attention is a kernel that torch 2.13's counter does not know.
CPU_ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def counter() -> FlopCounterMode:
    return FlopCounterMode(display=False, custom_mapping={CPU_ATTENTION: _attention_flops})


def _attention_flops(
    query: torch.Size, key: torch.Size, value: torch.Size, *_: Any, out_shape: Any, **options: Any
) -> int:
    return sdpa_flop_count(query, key, value)


def counted(work: Callable[[], T]) -> tuple[T, int]:
    """The outcome of a piece of work and its operations, on any device, "meta" included."""
    with counter() as flops:
        outcome = work()
    return outcome, flops.get_total_flops()


def leaf_flops(module: nn.Module, work: Callable[[], object]) -> dict[str, int]:
    """Operations of `work` inside `module`, by the names of its modules without children.

    What a module computes beside its children, as attention does, goes to the first of them.
    """
    with counter() as flops_of:
        work()
    prefix = f"{type(module).__name__}."
    totals = {
        name.removeprefix(prefix): sum(each.values())
        for name, each in flops_of.get_flop_counts().items()
        if name.startswith(prefix)
    }
    flops = {name: totals.get(name, 0) for name, part in module.named_modules() if is_leaf(part)}
    for name in sorted(totals.keys() - flops.keys(), key=depth, reverse=True):
        leaves = [leaf for leaf in flops if leaf.startswith(f"{name}.")]
        flops[leaves[0]] += totals[name] - sum(flops[leaf] for leaf in leaves)
    return {name: each for name, each in flops.items() if each}


def is_leaf(module: nn.Module) -> bool:
    return next(module.children(), None) is None


def depth(name: str) -> int:
    return name.count(".")


class Tally:
    """Counts modules' calls from now on, and their operations by what each leaf takes.

    `FlopCounterMode` makes a picture take three times as long; this costs nothing to speak of. It
    wraps the leaves' forwards, so caches that are enabled later are counted as they are: they wrap
    the wrapped forward, or do not call it.
    """

    def __init__(self, flops: Mapping[str, int]) -> None:
        """`flops` of one sequence, as `leaf_flops` gives them."""
        self.flops_of = flops
        self.calls: Counter[str] = Counter()  # by the leaf's name

    @property
    def flops(self) -> int:
        return sum(count * self.flops_of[name] for name, count in self.calls.items())

    def watch(self, module: nn.Module) -> None:
        """Counts the calls of a module with those leaves."""
        for name in self.flops_of:
            self._watch_leaf(module.get_submodule(name), name)

    def _watch_leaf(self, leaf: nn.Module, name: str) -> None:
        forward = leaf.forward

        def counting(*inputs: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return forward(*inputs, **options)

        leaf.forward = counting  # type: ignore[method-assign]
