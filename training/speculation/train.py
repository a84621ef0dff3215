"""Train a draft head on recorded texts.

`python -m training.speculation.train --model FOLDER --texts FILE… --out FILE`.

EAGLE-3's way (arXiv:2503.01840): the head is unrolled over its own outputs as it will be when it
drafts, and is judged by the next token alone, against the target's own distribution.
"""

import argparse
import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedConfig

from pipelines.text.adapters import AdapterSwitch
from pipelines.text.draft_head import DraftHead, HeadShape, load_head, save_head
from pipelines.text.packed_folder import read
from training.optimisers import MuonAndAdam
from training.speculation.recording import Text, load_texts

STEPS = 3  # tokens that the head drafts in a row
STEP_WEIGHTS = (1.0, 0.8, 0.6)
VOCABULARY = 4096
INNER = 1152
BATCH_TOKENS = 2048
EVERY_S = 60.0


class Look:
    """Attention of an unrolled step: true keys of the places before, then those of the steps."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._kept: list[tuple[Tensor, Tensor]] = []  # of each step, [rows, key heads, time, width]

    def __call__(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        split = [t.view(self._rows, -1, *t.shape[1:]).transpose(1, 2) for t in (query, key, value)]
        q, k, v = split
        self._kept.append((k, v))
        step, time_ = len(self._kept), q.shape[2]
        fold = q.shape[1] // k.shape[1]
        scale = q.shape[-1] ** -0.5
        keys, values = (t.repeat_interleave(fold, dim=1) for t in self._kept[0])
        far = torch.ones(time_, time_, dtype=torch.bool).tril(1 - step)
        logits = [(q @ keys.transpose(-1, -2) * scale).masked_fill(~far, -math.inf)]
        near = []
        for back, (k, v) in enumerate(reversed(self._kept[1:])):  # own outputs, latest first
            k, v = (_later(t.repeat_interleave(fold, dim=1), back) for t in (k, v))
            logits.append((q * k).sum(-1, keepdim=True) * scale)
            near.append(v)
        weights = torch.softmax(torch.cat(logits, dim=-1), dim=-1)
        out = weights[..., :time_] @ values
        for place, v in enumerate(near):
            out = out + weights[..., time_ + place, None] * v
        return out.transpose(1, 2).reshape(query.shape[0], -1)


def _later(x: Tensor, places: int) -> Tensor:  # [rows, heads, time, width]
    return functional.pad(x, (0, 0, places, 0))[:, :, : x.shape[2]]


def batches(texts: Sequence[Text], seed: int) -> Iterator[list[Text]]:
    """Texts of similar length together, in random order, for ever."""
    shuffle = random.Random(seed)
    while True:
        order = sorted(texts, key=lambda text: len(text.ids) + shuffle.random() * 8)
        groups: list[list[Text]] = [[]]
        for text in order:
            if (len(groups[-1]) + 1) * len(text.ids) > BATCH_TOKENS and groups[-1]:
                groups.append([])
            groups[-1].append(text)
        shuffle.shuffle(groups)
        yield from groups


def losses(
    head: DraftHead, embedding: Tensor, drafted: Tensor, texts: list[Text]
) -> tuple[list[Tensor], list[float]]:
    """Cross entropy of each unrolled step against the target, and how often its first choice is
    the target's. `embedding` `[vocabulary, width]`, `drafted` the rows of what can be drafted."""
    rows, length = len(texts), max(len(text.ids) for text in texts) - 1
    ids = torch.zeros(rows, length, dtype=torch.long)
    states = torch.zeros(rows, length + 1, embedding.shape[1])  # at place i: the target's at i - 1
    valid = torch.zeros(rows, length, dtype=torch.bool)
    for row, text in enumerate(texts):
        count = len(text.states)
        ids[row, :count] = text.ids[:count]
        states[row, 1 : count + 1] = text.states.float()
        valid[row, :count] = True
    places = torch.arange(length).repeat(rows)
    embedded, mask = embedding[ids.view(-1)], valid.view(-1)
    with torch.no_grad():
        wanted = torch.softmax(states[:, 1:].reshape(rows * length, -1)[mask] @ drafted.t(), dim=-1)
        best = wanted.argmax(-1)
    look, given = Look(rows), states[:, :-1].reshape(rows * length, -1)
    found, hits = [], []
    for step in range(STEPS):
        out = head(given, embedded, places, look)
        # A place is drafted in this step only if `step` drafted ones stand before it.
        late = valid & (torch.arange(length) >= step)
        logits = head.norm("out", out[mask]) @ drafted.t()
        keep = late.view(-1)[mask]
        found.append(-(wanted * logits.log_softmax(-1)).sum(-1)[keep].mean())
        hits.append(float((logits.argmax(-1) == best)[keep].float().mean()))
        given = functional.pad(out.view(rows, length, -1), (0, 0, 1, 0))[:, :-1].reshape(out.shape)
    return found, hits


def common_tokens(texts: Sequence[Text], count: int) -> Tensor:
    """The `count` tokens that the texts have most, ascending."""
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update(text.ids.tolist())
    found = [token for token, _ in counts.most_common(count)]
    spare = (token for token in range(10**9) if token not in counts)
    return torch.tensor(sorted([*found, *(next(spare) for _ in range(count - len(found)))]))


def main() -> None:
    """Train from the command line; keeps the head every minute and prints how it fares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--model", type=Path, required=True, help="the target's packed folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="a head to go on from")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--rate", type=float, default=2e-3)
    options = parser.parse_args()
    texts = [text for path in options.texts for text in load_texts(path)]
    random.Random(0).shuffle(texts)
    held, texts = texts[: len(texts) // 50], texts[len(texts) // 50 :]
    target = read(options.model, torch.float32, AdapterSwitch(), packs=False)
    embedding = target.get_input_embeddings().weight.detach()
    head = load_head(options.start).float() if options.start else fresh_head(target.config, texts)
    train(head, embedding, texts, held, options)


def fresh_head(config: PreTrainedConfig, texts: Sequence[Text]) -> DraftHead:
    """An untrained head for a target, over the tokens that its texts have most."""
    shape = HeadShape(
        width=config.hidden_size,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        head_width=config.head_dim,
        inner=INNER,
        vocabulary=VOCABULARY,
        theta=config.rope_parameters["rope_theta"],
        eps=config.rms_norm_eps,
    )
    head = DraftHead(shape)
    head.ids.copy_(common_tokens(texts, VOCABULARY))
    for linear in (head.o, head.down):
        nn.init.zeros_(linear.weight)
    return head


def train(
    head: DraftHead,
    embedding: Tensor,
    texts: Sequence[Text],
    held: Sequence[Text],
    options: argparse.Namespace,
) -> None:
    """Until the time is over, with the learning rate falling to nothing."""
    matrices = [p for p in head.parameters() if p.ndim == 2]
    others = [p for p in head.parameters() if p.ndim != 2]
    optimiser = MuonAndAdam(matrices, others, options.rate, options.rate, weight_decay=0.01)
    drafted = embedding[head.ids]
    began = told = time.monotonic()
    seen = 0
    for number, batch in enumerate(batches(texts, seed=1)):
        done = (time.monotonic() - began) / (60 * options.minutes)
        if done >= 1:
            break
        found, _ = losses(head, embedding, drafted, batch)
        sum(w * loss for w, loss in zip(STEP_WEIGHTS, found, strict=True)).backward()
        optimiser.step(min(1.0, (number + 1) / 50) * (1 - done))
        seen += sum(len(text.ids) for text in batch)
        if time.monotonic() - told > EVERY_S:
            told = time.monotonic()
            report(head, embedding, drafted, held, seen, began)
            save_head(head, options.out)
    report(head, embedding, drafted, held, seen, began)
    save_head(head, options.out)


@torch.no_grad()
def report(
    head: DraftHead,
    embedding: Tensor,
    drafted: Tensor,
    held: Sequence[Text],
    seen: int,
    began: float,
) -> None:
    """One line: held-out loss, and how often each step's first choice is the target's."""
    groups = [held[i : i + 24] for i in range(0, min(len(held), 96), 24)]
    results = [losses(head, embedding, drafted, list(group)) for group in groups]
    loss = [sum(float(r[0][s]) for r in results) / len(results) for s in range(STEPS)]
    hits = [sum(r[1][s] for r in results) / len(results) for s in range(STEPS)]
    print(
        f"{(time.monotonic() - began) / 60:5.1f} min {seen:8d} tokens  loss "
        + " ".join(f"{value:.3f}" for value in loss)
        + "  hits "
        + " ".join(f"{value:.3f}" for value in hits),
        flush=True,
    )


if __name__ == "__main__":
    main()
