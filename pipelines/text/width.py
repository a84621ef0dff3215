"""How many tokens to draft before the next step, from what drafting brought and cost so far.

A width w is worth (1 + p1 + p1 p2 + … + p1…pw) / cost(w): pi is the chance that the i-th drafted
token is accepted where all before it were, costs are in plain steps of the same time. Each batch
size, by powers of two, learns for itself, since a step's cost hangs on it.

What drafting may lose is bounded by an account in plain steps. Each token pays SHARE in; a step
takes out what it cost beyond plain decoding of the same tokens. No width is chosen that could
overdraw it, so that all steps together never cost more than 1 + SHARE of plain decoding. The bound
is also the rule for when to try: while resting (width 0) a trial begins once the account has what
one step costs if nothing is accepted, twice that after a failed trial, four times that after two;
a trial that wins sets it back.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from statistics import fmean, median

SHARE = 0.02  # of plain decoding's time that may be lost; the bar is 3 %, the rest is for jitter
HYSTERESIS = 1.02  # another width must be that much better; none need only be better
RESERVE = 3.0  # plain steps that a trial's gains may pay for once it loses
MAX_DOUBLINGS = 3
MEMORY = 0.93  # of acceptance, a step: 14 steps
PRIOR = 0.5  # acceptance of the first position, as strong as one observation
GUESS = 0.25  # of a plain step, for each drafted token: what an unmeasured width may cost beyond it
SAMPLES = 7  # of a cost: their median shrugs off stalls
TRUSTED = 3  # samples that make a cost known, and plain steps that renew the measure of all
PLAIN_EVERY = 300  # steps; with three plain ones among them


class AdaptiveWidth:
    """Chooses among `widths`; 0, plain decoding, is always among them."""

    def __init__(self, widths: Iterable[int]) -> None:
        """`widths` are those that the kernels like, as (0, 3). Raises ValueError below 0."""
        self.widths = tuple(sorted({0, *widths}))
        if self.widths[0] < 0:
            raise ValueError(f"A width must be 0 or more, not {self.widths[0]}.")
        self._sizes: dict[int, _BatchSize] = {}

    def choose(self, rows: int) -> int:
        """The tokens to draft for each of `rows` requests in the next step."""
        return self._size(rows).choose()

    def observe(self, width: int, accepted: Sequence[int], draft_s: float, verify_s: float) -> None:
        """What a step did: accepted tokens of each row, seconds of drafting and of the forward.

        `width` is the one that was chosen, or 0 where nothing was drafted and the forward was a
        plain one. A row that drafted less than the width counts as refused beyond. Raises
        ValueError for a width that is not among `widths`.
        """
        self._check(width)
        self._size(len(accepted)).observe(width, accepted, draft_s, verify_s)

    def measured(self, rows: int, width: int, draft_s: float, verify_s: float) -> None:
        """A cost alone, from a warm-up, width 0 first: three of each spare a long first wait."""
        self._check(width)
        self._size(rows).costs.add(width, draft_s, verify_s)

    def new_text(self) -> None:
        """Another kind of text may begin: trials that failed before say nothing of it."""
        for size in self._sizes.values():
            size.failures = 0

    def _check(self, width: int) -> None:
        if width not in self.widths:
            raise ValueError(f"width must be one of {self.widths}, not {width}.")

    def _size(self, rows: int) -> "_BatchSize":
        if rows < 1:
            raise ValueError(f"A step has at least one row, not {rows}.")
        return self._sizes.setdefault((rows - 1).bit_length(), _BatchSize(self.widths))


class _BatchSize:
    """Resting, with width 0, or drafting."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        self.costs = _Costs()
        self.failures = 0
        self._widths = widths
        self._acceptance = _Acceptance(widths[-1])
        self._account = 0.0
        self._at_start = 0.0  # in the account when the trial began
        self._width = 0
        self._has_won = False
        self._steps = 0

    def choose(self) -> int:
        if self._steps % PLAIN_EVERY < TRUSTED or len(self._widths) == 1:
            return 0
        if self._width == 0:
            self._begin()
        else:
            self._go_on()
        return self._width

    def _begin(self) -> None:
        """Draft again, as if nothing were known of the text, once a failure can be paid for."""
        if self._account >= self._toll():
            self._width = self._opening()
            self._has_won = False
            self._at_start = self._account
            self._acceptance = _Acceptance(self._widths[-1])

    def _go_on(self) -> None:
        if not self._acceptance.has_tried:  # the draft had nothing to propose so far
            return
        # A few refusals say little: what has gained so far goes on until it has lost that again.
        may_rest = self._account <= self._at_start
        choices = [w for w in self._widths[1:] if self._loss(w) <= self._account]
        if may_rest or not choices:
            choices.append(0)
        best = max(choices, key=self._worth)
        is_better = self._worth(best) > HYSTERESIS * self._worth(self._width)
        if is_better or best == 0 or self._width not in choices:
            self._width = best
        if self._width == 0:
            self.failures = 0 if self._has_won else min(self.failures + 1, MAX_DOUBLINGS)
            self._account = min(self._account, 0.0)

    def observe(self, width: int, accepted: Sequence[int], draft_s: float, verify_s: float) -> None:
        self._steps += 1
        self.costs.add(width, draft_s, verify_s)
        if len(self._widths) == 1:
            return
        if width:
            self._acceptance.observe(width, accepted)
        # Not this step's own time: a stall of the machine is not the draft's fault.
        cost = self.costs.of(width) if width else 1 + draft_s / self.costs.plain_s
        self._book((1 + SHARE) * (1 + fmean(accepted)) - cost, is_plain=width == 0)

    def _book(self, gain: float, is_plain: bool) -> None:
        """Plain steps save up for the next trial, drafting also for its own worse times."""
        limit = self._toll() + (0 if is_plain else RESERVE)
        self._account = min(self._account + gain, max(limit, self._account))
        self._has_won |= not is_plain and self._account >= limit

    def _worth(self, width: int) -> float:
        """Tokens of a row in the time of a plain step, as far as is known."""
        return self._acceptance.tokens(width) / self.costs.hoped(width)

    def _opening(self) -> int:
        """The width with the most to win: the best one if all drafts were accepted."""
        return max(self._widths[1:], key=lambda width: (1 + width) / self.costs.hoped(width))

    def _loss(self, width: int) -> float:
        """What a step costs beyond a plain one: all of it is lost where nothing is accepted."""
        guess = GUESS * width
        if not self.costs.has(width):
            return guess
        loss = max(0.0, self.costs.of(width) - 1)
        return loss if self.costs.is_known(width) else min(loss, guess)

    def _toll(self) -> float:
        return float(2**self.failures * self._loss(self._opening()))


class _Costs:
    """Of a step by width, in plain steps measured shortly before, so that a busy machine and a long
    context, which slow all widths down, change nothing."""

    def __init__(self) -> None:
        self._plain_s: deque[float] = deque(maxlen=SAMPLES)
        self._draft: dict[int, deque[float]] = {}
        self._verify: dict[int, deque[float]] = {}

    @property
    def plain_s(self) -> float:
        return median(self._plain_s)

    def add(self, width: int, draft_s: float, verify_s: float) -> None:
        if width == 0:
            self._plain_s.append(verify_s)
            return
        if not self._plain_s:
            raise ValueError("Measure a plain step first: costs are counted in plain steps.")
        for samples, seconds in ((self._draft, draft_s), (self._verify, verify_s)):
            samples.setdefault(width, deque(maxlen=SAMPLES)).append(seconds / self.plain_s)

    def has(self, width: int) -> bool:
        return width in self._verify

    def is_known(self, width: int) -> bool:
        return len(self._verify.get(width, ())) >= TRUSTED

    def of(self, width: int) -> float:
        """Of a measured width. Few samples may all be stalls: the least, and no more than what
        the tokens would cost one by one."""
        draft, verify = self._draft[width], self._verify[width]
        if self.is_known(width):
            return median(draft) + median(verify)
        return min(min(draft) + min(verify), 1 + width)

    def hoped(self, width: int) -> float:
        """The least that it can be: of a width not known no more than the others prove.

        It verifies in no less time than fewer tokens take, and drafts in time to its length.
        """
        if width == 0:
            return 1.0
        if self.is_known(width):
            return self.of(width)
        verify = max((median(self._verify[w]) for w in self._verify if w < width), default=1.0)
        nearest = min(
            (w for w in self._draft if w != width), key=lambda w: abs(w - width), default=0
        )
        draft = median(self._draft[nearest]) * min(1.0, width / nearest) if nearest else 0.0
        return draft + max(1.0, verify)


class _Acceptance:
    """The chance of each drafted position where the ones before were accepted: moving averages."""

    def __init__(self, positions: int) -> None:
        self._tried = [1.0] + [0.0] * (positions - 1)
        self._accepted = [PRIOR] + [0.0] * (positions - 1)
        self.has_tried = False

    def observe(self, width: int, accepted: Sequence[int]) -> None:
        self.has_tried = True
        for i in range(len(self._tried)):
            tried = sum(count >= i for count in accepted) if i < width else 0
            self._tried[i] = MEMORY * self._tried[i] + tried
            self._accepted[i] = MEMORY * self._accepted[i] + sum(count > i for count in accepted)

    def tokens(self, width: int) -> float:
        """Expected of one step. A later position is as good as the one before it, if untried."""
        total = product = 1.0
        chance = 0.0
        for i in range(width):
            doubt = 1 if i else 0
            chance = (self._accepted[i] + doubt * chance) / (self._tried[i] + doubt)
            product *= chance
            total += product
        return total
