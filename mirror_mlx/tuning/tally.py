"""What plain decoding takes, with the draft at rest and with the draft at work beside it. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

_FAR = 2.0  # times the median


@dataclass(frozen=True, slots=True)
class Plained:
    """So many tokens were decoded plainly, and others while the draft was at work. ms.

    offers   of each window that a proposer would have had, beside a draft, how long it was and how much of it held
    thought  what a policy has thought of how to go on, between two tokens
    """

    tokens: int = 0
    ms: float = 0.0
    beside: int = 0
    beside_ms: float = 0.0
    offers: Sequence[tuple[int, int]] = ()
    thought: float = 0.0

    @property
    def count(self) -> int:
        return self.tokens + self.beside

    @property
    def whole(self) -> float:
        return self.ms + self.beside_ms


class Tally:
    """From one token to the next. The first one finds caches cold, and is late; the second is on its way by then, and
    seems to be fast: it does not count.

    >>> tally = Tally()
    >>> for at, busy in ((3e6, 1), (12e6, 1), (24e6, 1), (36e6, 0), (46e6, 0), (56e6, 0), (956e6, 0)):
    ...     tally.token(at, bool(busy))
    >>> tally.take(), tally.take().count
    (Plained(tokens=3, ms=40.0, beside=2, beside_ms=24.0, offers=(), thought=0.0), 0)
    """

    def __init__(self) -> None:
        self._begun = False
        self._since: float | None = None
        self._busy = self._taken = False
        self._alone: list[float] = []
        self._beside: list[float] = []

    def token(self, at: float, busy: bool) -> None:
        """One was decoded at this time, ns; busy: whether the draft is at work."""
        if self._since is not None:
            ms = (at - self._since) / 1e6
            if busy or self._busy:
                self._beside.append(ms)
            elif not self._taken:
                self._alone.append(ms)
        if self._begun:
            self._since = at
        self._begun, self._busy, self._taken = True, busy, False

    def take(self) -> Plained:
        """What was counted. The time until the next token is only if the draft begins in it: something else is done in
        it too."""
        alone, beside = self._alone, self._beside
        self._alone, self._beside, self._taken = [], [], True
        return Plained(len(alone), undisturbed(alone), len(beside), undisturbed(beside))


def undisturbed(times: Sequence[float]) -> float:
    """Their sum, where one that took much longer than most was interrupted, and counts for less.

    >>> undisturbed([10.0, 12.0, 11.0, 900.0])
    56.0
    """
    most = _FAR * median(times) if times else 0.0
    return sum(min(ms, most) for ms in times)


def usual(times: Sequence[float]) -> float:
    """What one of them takes on average: what is decoded takes the sum of such times, not as often their median."""
    return undisturbed(times) / len(times)
