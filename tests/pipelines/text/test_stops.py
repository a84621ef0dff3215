"""Stop strings against `str.partition`, whatever the pieces are."""

from hypothesis import given
from hypothesis import strategies as st

from pipelines.text.requests import TokenLogprob
from pipelines.text.stops import StopGuard

LETTERS = st.text("abE", max_size=4)


def entry(token: str) -> TokenLogprob:
    return TokenLogprob(token, -1.0, token.encode())


def shown(guard: StopGuard, pieces: list[str]) -> str:
    text = ""
    for piece in pieces:
        text += guard.push(piece)[0]
        if guard.is_hit:
            return text
    return text + guard.flush()[0]


@given(pieces=st.lists(LETTERS), stops=st.lists(LETTERS.filter(bool), max_size=3))
def test_the_text_is_what_comes_before_the_first_stop(pieces: list[str], stops: list[str]) -> None:
    text = "".join(pieces)
    reference = min((text.partition(stop)[0] for stop in stops), key=len, default=text)
    guard = StopGuard(tuple(stops))
    # A guard that reads on after a hit would find a later stop: hence the loop in `shown`.
    assert shown(guard, pieces) == _first(text, pieces, stops, reference)
    assert guard.is_hit == any(stop in text for stop in stops)


def _first(text: str, pieces: list[str], stops: list[str], reference: str) -> str:
    """Of two overlapping stop strings the one that is complete first wins, as on servers."""
    for end in range(len(text) + 1):
        found = [at for stop in stops if (at := text[:end].find(stop)) >= 0]
        if found and end in _ends(pieces):
            return text[: min(found)]
    return reference


def _ends(pieces: list[str]) -> set[int]:
    ends, total = {0}, 0
    for piece in pieces:
        total += len(piece)
        ends.add(total)
    return ends


@given(pieces=st.lists(LETTERS), stop=LETTERS.filter(bool))
def test_nothing_is_held_back_that_cannot_begin_a_stop(pieces: list[str], stop: str) -> None:
    guard, text, shown_now = StopGuard((stop,)), "", ""
    for piece in pieces:
        text += piece
        shown_now += guard.push(piece)[0]
        if guard.is_hit:
            return
        held = text.removeprefix(shown_now)
        assert held == "" or (stop.startswith(held) and held != stop)


def test_logprobs_leave_with_their_token() -> None:
    guard = StopGuard(("END",))
    assert guard.push("one", (entry("one"),)) == ("one", (entry("one"),))
    assert guard.push(" E", (entry(" E"),)) == (" ", ())  # half of its token is held back
    assert guard.push("x", (entry("x"),)) == ("Ex", (entry(" E"), entry("x")))
    several = (entry("a"), entry("E"), entry("N"))
    assert guard.push("aEN", several) == ("a", (entry("a"),))
    assert guard.push("D!", (entry("D!"),)) == ("", ())
    assert guard.is_hit


def test_a_token_without_a_whole_character_waits_for_the_next() -> None:
    guard = StopGuard(())
    assert guard.push("", (entry("\ufffd"),)) == ("", ())
    assert guard.push("é", (entry("é"),)) == ("é", (entry("\ufffd"), entry("é")))
    assert guard.push("", (entry("<end>"),)) == ("", ())
    assert guard.flush() == ("", ())  # the token that ends the turn has no text
