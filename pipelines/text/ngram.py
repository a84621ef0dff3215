"""Drafts from the text itself: what came after the last few tokens when they came before.

Prompt lookup decoding (Saxena 2023), with an index instead of a search. It pays where the answer
repeats its prompt (an edit, a list, JSON) and proposes nothing where it does not.
"""

from collections.abc import Iterable


class NgramIndex:
    """The prompt and output of one request, by every run of `shortest` to `longest` tokens."""

    def __init__(self, tokens: Iterable[int] = (), longest: int = 4, shortest: int = 2) -> None:
        """Raises ValueError unless 1 <= shortest <= longest."""
        if not 1 <= shortest <= longest:
            raise ValueError(f"shortest must be from 1 to longest, not {shortest} of {longest}.")
        self._lengths = range(longest, shortest - 1, -1)
        self._tokens: list[int] = []
        self._next: dict[tuple[int, ...], int] = {}  # a run -> the place behind its latest
        for token in tokens:
            self.append(token)

    def append(self, token: int) -> None:
        """One more token of the text. Runs enter once a token follows, so none matches itself."""
        place = len(self._tokens)
        for length in self._lengths:
            if length <= place:
                self._next[tuple(self._tokens[place - length :])] = place
        self._tokens.append(token)

    def propose(self, width: int, least: int = 1) -> tuple[int, ...]:
        """What followed the text's end the last time it came.

        The longest run that came before decides, of its occurrences the latest. `width` tokens, or
        () where no run of `least` tokens came before: where the occurrence overlaps the end, its
        period goes on.
        """
        place = self._place(least)
        if place is None:
            return ()
        text_end, added = len(self._tokens), list[int]()
        for at in range(place, place + width):
            added.append(self._tokens[at] if at < text_end else added[at - text_end])
        return tuple(added)

    def _place(self, least: int) -> int | None:
        """Of the token that followed the longest run that came before."""
        for length in self._lengths:
            if length < least:
                return None
            place = self._next.get(tuple(self._tokens[-length:]))
            if place is not None and length <= len(self._tokens):
                return place
        return None
