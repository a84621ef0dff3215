"""The requests that are served now, each in its slot of the cache, slots in use side by side."""

from itertools import count

from pipelines.text.drafts import Drafter
from pipelines.text.kv_cache import KVCache
from pipelines.text.language_model import LanguageModel
from pipelines.text.prefixes import PrefixStore
from pipelines.text.prompt import fit_prompt
from pipelines.text.requests import TextRequest
from pipelines.text.sequence import Sequence


class Slots:
    """Row i stands in slot i."""

    def __init__(self, model: LanguageModel, cache: KVCache, prefix_bytes: int) -> None:
        self.rows: list[Sequence] = []
        self.drafter: Drafter | None = None
        self._model = model
        self._cache = cache
        self._prefixes = PrefixStore(prefix_bytes)
        self._numbers = count()

    def take(self, request: TextRequest) -> None:
        """Give a request the next slot. Raises `CannotServe`."""
        prompt = fit_prompt(request, self._model)
        row = Sequence(
            request,
            prompt.ids,
            len(prompt.ids),
            prompt.max_tokens,
            prompt.dropped_tokens,
            slot=len(self.rows),
            number=next(self._numbers),
        )
        self._cache.reserve(1, row.slot + 1)
        self._reuse(row)
        self.rows.append(row)

    def _reuse(self, row: Sequence) -> None:
        """Begin with what an earlier request read.

        The last token is read again, for its logits, and so is the last one shared, whose hidden
        state a draft head wants; that head's keys hold for all that are shared.
        """
        match = self._prefixes.find(row.ids, row.request.adapter)
        if match is None:
            return
        tokens = min(match.tokens, row.prompt_tokens)
        self._cache.reserve(tokens, row.slot + 1)
        self._cache.copy_in(row.slot, match.kept, tokens)
        row.cached = row.reused = tokens - 1

    def keep_prefix(self, row: Sequence) -> None:
        """Remember a prompt that was read."""
        prompt = row.ids[: row.prompt_tokens]
        if row.prompt_tokens * self._cache.bytes_per_token > self._prefixes.max_entry_bytes:
            return
        if not self._prefixes.has(prompt, row.request.adapter):
            kept = self._cache.copy_out(row.slot, row.prompt_tokens)
            self._prefixes.keep(prompt, row.request.adapter, kept)

    def free(self, row: Sequence) -> None:
        """A request is done; the last row moves into its slot."""
        if self.drafter is not None:
            self.drafter.leave(row)
        last = self.rows.pop()
        if not self.rows:
            self._cache.shrink()
        if last is row:
            return
        self._cache.move(last.slot, row.slot, last.cached)
        if self.drafter is not None:
            self.drafter.move(last, row.slot)
        last.slot = row.slot
        self.rows[row.slot] = last
