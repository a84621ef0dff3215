"""Texts that a model wrote, with its last hidden states: what a draft head learns from."""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from pipelines.text.sequence import Sequence
from pipelines.text.speculative import NOTHING, Draft


@dataclass(frozen=True, slots=True)
class Text:
    """One text: its tokens and the target's state at each, of which the last has none."""

    ids: Tensor  # int64 [tokens]
    states: Tensor  # bfloat16 [tokens - 1, width]


class Recorder:
    """A drafter that drafts nothing and keeps what the target model read."""

    def __init__(self) -> None:
        self.texts: list[Text] = []
        self._states: dict[str, list[Tensor]] = {}

    def propose(self, rows: Items[Sequence], width: int) -> list[Draft]:
        return [NOTHING for _ in rows]

    def read(self, row: Sequence, start: int, hidden: Tensor) -> None:
        assert start == sum(map(len, self._states.get(row.request.id, [])))
        self._states.setdefault(row.request.id, []).append(hidden.bfloat16())

    def judged(self, row: Sequence, draft: Draft, accepted: int) -> None:
        raise AssertionError("nothing is drafted")

    def move(self, row: Sequence, target: int) -> None:
        pass

    def leave(self, row: Sequence) -> None:
        states = torch.cat(self._states.pop(row.request.id))
        ids = torch.tensor(row.ids)[: len(states) + 1]
        self.texts.append(Text(ids, states[: len(ids) - 1]))  # an end token is not among the ids


def save_texts(texts: Items[Text], path: Path) -> None:
    """Keep texts in one file."""
    save_file(
        {
            "lengths": torch.tensor([len(text.ids) for text in texts]),
            "ids": torch.cat([text.ids.int() for text in texts]),
            "states": torch.cat([text.states for text in texts]),
        },
        path,
    )


def load_texts(path: Path) -> list[Text]:
    """The reverse of `save_texts`."""
    tensors = load_file(path)
    lengths = tensors["lengths"].tolist()
    ids = tensors["ids"].long().split(lengths)
    states = tensors["states"].split([length - 1 for length in lengths])
    return [Text(*pair) for pair in zip(ids, states, strict=True)]
