"""Muon for the weight matrices, Adam for everything else, as one optimiser."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


class MuonAndAdam:
    """Steps the named matrices with ``torch.optim.Muon`` and the remaining parameters with AdamW.

    A convolution's kernel is stepped as the matrix [out, in·k·k] that it is: Muon sees a
    two-dimensional parameter on the same storage.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        others: Iterable[nn.Parameter],
        muon_rate: float,
        adam_rate: float,
        weight_decay: float = 0.0,
    ) -> None:
        self.matrices = list(matrices)
        self.others = list(others)
        self.rates = (muon_rate, adam_rate)
        self._flat = [nn.Parameter(p.data.view(p.shape[0], -1)) for p in self.matrices]
        self.adam = torch.optim.AdamW(self.others, lr=adam_rate, betas=(0.9, 0.98), weight_decay=0)
        self.muon: torch.optim.Optimizer = self.adam  # where there is no matrix
        if self._flat:
            self.muon = torch.optim.Muon(
                self._flat, lr=muon_rate, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw"
            )

    def step(self, factor: float, max_norm: float = 1.0) -> None:
        """One update at ``factor`` times the peak rates; clears the gradients."""
        nn.utils.clip_grad_norm_(self.others, max_norm)
        for flat, matrix in zip(self._flat, self.matrices, strict=True):
            flat.grad = None if matrix.grad is None else matrix.grad.view(flat.shape)
        both = [(self.muon, self.rates[0])] if self._flat else []
        for optimiser, rate in [*both, (self.adam, self.rates[1])]:
            for group in optimiser.param_groups:
                group["lr"] = rate * factor
            optimiser.step()
        for parameter in (*self.matrices, *self.others):
            parameter.grad = None

    def state_dict(self) -> dict[str, Any]:
        return {"muon": self.muon.state_dict(), "adam": self.adam.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
