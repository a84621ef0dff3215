"""What the text engines are given, fresh expansions and edits, and what comes of a run."""

from dataclasses import dataclass
from typing import Literal, get_args

from pipelines.text.requests import Message, Sampling, TextRequest
from studio.expansion import template
from training.expansion.pairs import pairs
from training.speculation.write import EDITS

Work = Literal["expansion", "edit"]
WORKS: tuple[Work, ...] = get_args(Work)


@dataclass(slots=True)
class Result:
    """One run: the tokens of all its requests, seconds, and how drafting went."""

    tokens: int
    seconds: float
    first_s: float | None = None  # to the first text of the first request
    acceptance: float | None = None
    tokens_per_step: float | None = None

    @property
    def rate(self) -> float:
        """Tokens a second, over all requests."""
        return self.tokens / self.seconds


def requests_of(work: Work, count: int, seed: int) -> list[TextRequest]:
    """`count` requests that no training has seen, the same for the same seed."""
    found = list(pairs(count, 5_000_000 + seed))
    if work == "expansion":
        sampling = Sampling(temperature=template.TEMPERATURE, top_p=template.TOP_P)
        return [
            TextRequest(
                f"{seed}.{number}",
                pair.prefix,
                seed + number,
                sampling,
                max_tokens=template.MAX_TOKENS,
                stop=(template.STOP,),
                adapter="expansion",
            )
            for number, pair in enumerate(found)
        ]
    return [
        TextRequest(
            f"{seed}.{number}",
            (Message("user", EDITS[number % len(EDITS)].format(prompt=pair.prompt)),),
            seed + number,
            Sampling(temperature=0),
            max_tokens=template.MAX_TOKENS,
        )
        for number, pair in enumerate(found)
    ]
