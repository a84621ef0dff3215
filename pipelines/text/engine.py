"""The text engine: many requests in one loop, each at its own token.

A step is one forward of the model. Rows that write bring their last token and the tokens drafted
for them; rows that read bring a chunk of their prompt. Then each row's tokens are verified, told,
and the rows that are done leave.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pipelines.errors import NotFinite
from pipelines.text.drafts import Drafter
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel, Read
from pipelines.text.logprobs import logprobs_of
from pipelines.text.prompt import CannotServe, prompt_letters
from pipelines.text.requests import (
    Priority,
    Rule,
    Sampling,
    TextCancelled,
    TextEvent,
    TextFailed,
    TextRequest,
    TextStarted,
)
from pipelines.text.scheduler import Turn, plan
from pipelines.text.sequence import Sequence
from pipelines.text.slots import Slots
from pipelines.text.speculative import NOTHING, Draft, verify
from pipelines.text.telling import Teller
from pipelines.text.width import TRUSTED, AdaptiveWidth

log = logging.getLogger(__name__)

MAX_ROWS = 16  # sequences at once; more wait
PREFIX_BYTES = 256 * 1024 * 1024
ADMITTED_LETTERS = 65_536  # of inputs tokenised between two forwards, while all others wait
WIDTHS = (0, 1, 2, 3)  # an int4 product works in blocks of 4 rows: the last token and 3 drafted


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine serves."""

    priority: Priority = "per_replica"
    rule: Rule = "typical-acceptance"
    widths: tuple[int, ...] = WIDTHS
    max_rows: int = MAX_ROWS
    kv_dtype: torch.dtype | None = None
    prefix_bytes: int = PREFIX_BYTES  # of beginnings kept for later requests
    is_adaptive: bool = True  # false: always the widest, for tests and benchmarks


class TextEngine:
    """`submit` and `cancel` between steps; `step` as long as `is_busy`."""

    def __init__(
        self,
        model: LanguageModel,
        tell: Callable[[TextEvent], None],
        options: EngineOptions | None = None,
        drafter: Drafter | None = None,
    ) -> None:
        self._model = model
        self._teller = Teller(model.tokens, tell)
        self._options = options or EngineOptions()
        self.cache = KVCache(self._options.max_rows, model.context_tokens, self._options.kv_dtype)
        self._slots = Slots(model, self.cache, self._options.prefix_bytes)
        self.drafter = drafter
        self._width = AdaptiveWidth(self._options.widths)
        self._forced: deque[int] = deque()  # widths of a warm-up
        self._waiting: deque[TextRequest] = deque()

    @property
    def drafter(self) -> Drafter | None:
        """Who drafts; one that keeps keys of its own may keep them in `cache`."""
        return self._slots.drafter

    @drafter.setter
    def drafter(self, drafter: Drafter | None) -> None:
        self._slots.drafter = drafter

    @property
    def is_busy(self) -> bool:
        """Whether a step would do something."""
        return bool(self._waiting or self._slots.rows)

    def submit(self, request: TextRequest) -> None:
        """Take a request in; its events follow from the steps."""
        self._waiting.append(request)

    def cancel(self, request_id: str) -> None:
        """Write nothing more of it. Unknown ids do nothing."""
        for request in self._waiting:
            if request.id == request_id:
                self._waiting.remove(request)
                self._teller.tell(TextCancelled(request_id))
                return
        for row in self._slots.rows:
            if row.request.id == request_id:
                self._slots.free(row)
                self._teller.tell(TextCancelled(request_id))
                return

    def step(self) -> None:
        """One forward for everybody whose turn it is."""
        self._admit()
        rows = sorted(self._slots.rows, key=lambda row: row.number)  # the oldest prompt first
        writing = [row for row in self._slots.rows if not row.unread]
        reading = [row for row in rows if row.unread]
        turn = plan(self._options.priority, len(writing), [row.unread for row in reading])
        if turn.is_empty:
            return
        self._forward(writing if turn.decodes else [], reading, turn)

    def warm_up(self) -> None:
        """Measure what a step costs by its number of drafted tokens, so that the first requests
        need not. Some twenty tokens of nobody's text."""
        if self.drafter is None or not self._options.is_adaptive:
            return
        tell, self._teller.tell = self._teller.tell, lambda event: None
        self._forced = deque([*self._options.widths] * TRUSTED)
        prompt = "1 2 3 4 5"  # nothing that n-grams could go on with: the other drafter costs more
        tokens = len(self._forced) * (1 + max(self._options.widths)) + 1
        self.submit(TextRequest("warm-up", prompt, 0, Sampling(), max_tokens=tokens))
        while self._forced and self.is_busy:
            self.step()
        self.cancel("warm-up")
        self._forced.clear()
        self._teller.tell = tell

    def _admit(self) -> None:
        letters = ADMITTED_LETTERS
        while self._waiting and len(self._slots.rows) < self._options.max_rows and letters > 0:
            request = self._waiting.popleft()
            letters -= prompt_letters(request)
            try:
                self._slots.take(request)
            except CannotServe as error:
                self._teller.tell(TextFailed(request.id, error.code, str(error), error.param))
            except Exception as error:  # a tokenizer, a template, a picture: one request's fault
                log.exception("a request could not be read")
                message = f"The input could not be read: {type(error).__name__}: {error}."
                self._teller.tell(TextFailed(request.id, "invalid_value", message, "input"))
            self._width.new_text()

    # One forward

    def _forward(self, writing: list[Sequence], reading: list[Sequence], turn: Turn) -> None:
        started = time.perf_counter()
        width, drafts = self._draft(writing)
        drafted = time.perf_counter()
        reads = [
            Read(row.slot, row.cached, [row.ids[-1], *draft.tokens], row.request.adapter)
            for row, draft in zip(writing, drafts, strict=True)
        ]
        chunks = [(row, count) for row, count in zip(reading, turn.reads, strict=True) if count]
        reads += [
            Read(
                row.slot, row.cached, row.ids[row.cached : row.cached + count], row.request.adapter
            )
            for row, count in chunks
        ]
        hidden = self._model.read(reads, self.cache)
        parts = hidden.split([len(read.ids) for read in reads])
        accepted = self._write(writing, drafts, parts[: len(writing)])
        verified = time.perf_counter()
        if writing and not chunks:  # a forward that reads a prompt says nothing of a step's cost
            width = width if any(draft.tokens for draft in drafts) else 0
            self._learn(width, accepted, drafted - started, verified - drafted)
        self._read(chunks, parts[len(writing) :])
        told = [row for row in [*writing, *(row for row, _ in chunks)] if not row.unread]
        for row in self._teller.tell_fresh([row for row in told if not row.has_failed]):
            self._slots.free(row)
            self._teller.tell_done(row)

    def _draft(self, rows: list[Sequence]) -> tuple[int, list[Draft]]:
        """Drafts that leave each row room for the token that the target adds."""
        widths = self._options.widths
        if self.drafter is None or not rows or max(widths) == 0:
            return 0, [NOTHING] * len(rows)
        width = self._choose_width(len(rows))
        longest = max(len(row.ids) for row in rows)
        if width == 0 or longest + width > self._model.context_tokens:
            return 0, [NOTHING] * len(rows)
        drafts = self.drafter.propose(rows, width)
        return width, [_cut(draft, row.room - 1) for row, draft in zip(rows, drafts, strict=True)]

    def _choose_width(self, rows: int) -> int:
        if self._forced:
            return self._forced[0]
        return self._width.choose(rows) if self._options.is_adaptive else max(self._options.widths)

    def _learn(self, width: int, accepted: list[int], draft_s: float, verify_s: float) -> None:
        if self._forced:
            self._forced.popleft()
            self._width.measured(len(accepted), width, draft_s, verify_s)
        elif self._options.is_adaptive:
            self._width.observe(width, accepted, draft_s, verify_s)

    def _write(
        self, rows: list[Sequence], drafts: list[Draft], parts: tuple[Tensor, ...]
    ) -> list[int]:
        """Verify each row's draft and write what stands; the accepted tokens of each."""
        if not rows:
            return []
        counts = []
        logits = self._model.logits(torch.cat(parts)).split([len(part) for part in parts])
        for row, draft, hidden, own in zip(rows, drafts, parts, logits, strict=True):
            accepted = self._verify(row, draft, own)
            counts.append(accepted)
            if row.has_failed:
                continue
            if self.drafter is not None:
                self.drafter.read(row, row.cached, hidden[: accepted + 1])
                if draft.tokens:
                    self.drafter.judged(row, draft, accepted)
            row.cached += accepted + 1
            row.steps += 1
            row.drafted += len(draft.tokens)
            row.accepted += accepted
        return counts

    def _read(self, chunks: list[tuple[Sequence, int]], parts: tuple[Tensor, ...]) -> None:
        """Prompts were read on; those that are complete write their first token."""
        for (row, count), hidden in zip(chunks, parts, strict=True):
            if self.drafter is not None:
                self.drafter.read(row, row.cached, hidden)
            row.cached += count
            if row.unread:
                continue
            self._slots.keep_prefix(row)
            request = row.request
            self._teller.tell(
                TextStarted(request.id, row.prompt_tokens, row.reused, row.dropped_tokens)
            )
            self._verify(row, NOTHING, self._model.logits(hidden[-1:]))

    def _verify(self, row: Sequence, draft: Draft, logits: Tensor) -> int:
        """Write what the rule lets stand; the number of drafted tokens among it."""
        request, rule = row.request, self._options.rule
        try:
            verdict = verify(
                rule, logits, draft, request.sampling, request.seed, row.written, row.seen
            )
        except NotFinite as error:
            self._fail(row, str(error))
            return 0
        tokens = self._until_end(row, verdict.tokens)
        if request.top_logprobs is not None:
            row.logprobs += logprobs_of(
                logits[: len(tokens)], tokens, request.top_logprobs, self._model.tokens
            )
        row.append(tokens)
        return min(verdict.accepted, len(tokens))

    def _fail(self, row: Sequence, message: str) -> None:
        row.has_failed = True
        self._slots.free(row)
        self._teller.tell(TextFailed(row.request.id, "not_finite", message))

    def _until_end(self, row: Sequence, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Up to the model's end of text, which is no part of it, or to the limit."""
        for place, token in enumerate(tokens[: row.room]):
            if token in self._model.tokens.end_ids:
                row.finish = "stop"
                return tokens[:place]
        if len(tokens) >= row.room:
            row.finish = "length"
        return tokens[: row.room]


def _cut(draft: Draft, room: int) -> Draft:
    if len(draft.tokens) <= room:
        return draft
    return Draft(draft.tokens[:room], None if draft.q is None else draft.q[:room])
