"""How many outcomes are among the roots: counts by their number. Pure."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial

from mirror_mlx.tuning.running import KEEP


class Ranks:
    """How often the outcome was among the first so many roots.

    Beyond as many as were ever prepared, misses go down as a power of their number (SSD, arXiv 2603.03251,
    definition 11); and from one on, where little was seen.

    >>> seen = Ranks()
    >>> for place in [0, 0, 1, 5, None] * 40:
    ...     seen.saw(place, 8)
    >>> [round(seen.hits(count), 1) for count in (1, 2, 8)]
    [0.4, 0.6, 0.8]
    >>> 0.8 < seen.hits(64) < 1
    True
    >>> Ranks().hits(1), Ranks().believing(first=0.9)(1)
    (0.5, 0.9)
    """

    _STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    _EXPONENT = 0.7
    _WEIGHT = 2.0
    _FADE = 0.995
    FIRST = 0.5  # of outcomes that are the first root, where nobody knows better

    def __init__(self, keep: float = KEEP) -> None:
        self._keep = keep
        self._tried = [self._WEIGHT] * len(self._STEPS)
        self._found = self._prior()
        self._rates: list[float] = []  # as `hits` wants them: it is asked a thousand times a decision
        self._seen = 0  # how many of the steps have been prepared for

    def _prior(self, first: float = FIRST) -> list[float]:
        return [self._WEIGHT * (1 - (1 - first) * count**-self._EXPONENT) for count in self._STEPS]

    def faded(self) -> None:
        """A step went by in which nobody was asked for roots of these: what was seen of them counts for less."""
        self._tried = [self._WEIGHT + self._FADE * (tried - self._WEIGHT) for tried in self._tried]
        pairs = zip(self._found, self._prior(), strict=True)
        self._found = [prior + self._FADE * (found - prior) for found, prior in pairs]
        self._rates = []

    def saw(self, place: int | None, opened: int) -> None:
        """The outcome was the root at this place, from 0 on, of so many; None: it was none of them."""
        self._rates = []
        for at, count in enumerate(self._STEPS):
            if count > opened and (place is None or at >= self._seen):
                break
            self._found[at] = self._keep * self._found[at] + (place is not None and place < count)
            self._tried[at] = self._keep * self._tried[at] + 1
            self._seen = max(self._seen, at + 1)

    def _believed(self, first: float) -> list[float]:
        counted = zip(self._found, self._prior(), self._prior(first), self._tried, strict=True)
        return [(found - usual + prior) / tried for found, usual, prior, tried in counted]

    def hits(self, count: float) -> float:
        """The share of outcomes among the first `count` roots."""
        self._rates = self._rates or self._believed(self.FIRST)
        return self._among(self._rates, count)

    def believing(self, first: float) -> Callable[[float], float]:
        """`hits`, where the first root is believed to be the outcome so often: that counts where little was seen."""
        return partial(self._among, self._believed(first))

    def _among(self, rates: Sequence[float], count: float) -> float:
        if count < 1:
            return 0.0
        last = max(self._seen - 1, 0)
        if count >= self._STEPS[last]:
            return 1.0 - (1.0 - rates[last]) * float((count / self._STEPS[last]) ** -self._EXPONENT)
        at = bisect_left(self._STEPS, count)
        if self._STEPS[at] == count or at == 0:
            return rates[at]
        share = (count - self._STEPS[at - 1]) / (self._STEPS[at] - self._STEPS[at - 1])
        return rates[at - 1] + share * (rates[at] - rates[at - 1])
