"""How much easier the text is of late than it is on the whole: a draft's proposals hold more often for a while, or more
seldom. Pure.

The log odds of every proposal are taken to be higher by that. It goes back to nothing by and by, and each window that
is verified says more of it: an extended Kalman filter of a logistic model. How far texts differ is not known
beforehand; of some guesses, one of which is that they do not, that counts which has said best, before windows were
verified, which proposals would hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from mirror_mlx.tuning.running import likelier, unsure

_SPREADS = (0.0, 0.7, 1.4)  # of log odds, over all texts: guesses
_LASTS = 0.9  # of it, with each window
_KEEP = 0.99  # of what the guesses were worth, with each window
MOST = 3.0


def eased(rate: float, ease: float) -> float:
    """What holds so often on the whole does as often as this in a text that is so much easier, in log odds.

    >>> [round(eased(0.8, ease), 2) for ease in (-1.0, 0.0, 1.0)]
    [0.6, 0.8, 0.92]
    """
    return likelier(rate, exp(ease)) if ease else rate


@dataclass(slots=True)
class _Guess:
    """One of the guesses: what it makes of the text, how sure it is of that, and how good it has been."""

    spread: float
    ease: float = 0.0
    variance: float = 0.0
    worth: float = 0.0

    def begins(self) -> None:
        self.ease, self.variance = 0.0, self.spread**2

    def saw(self, rates: Sequence[float], held: Sequence[float]) -> None:
        self.ease, self.variance, said = self.after(rates, held)
        logs = (one * log(rate) + (1 - one) * log(1 - rate) for rate, one in zip(said, held, strict=True))
        self.worth = _KEEP * self.worth + sum(logs)

    def after(self, rates: Sequence[float], held: Sequence[float]) -> tuple[float, float, Sequence[float]]:
        """What a window makes of it, and how often its proposals were expected to hold."""
        ease, variance = self.ease * _LASTS, self.spread**2 + _LASTS**2 * (self.variance - self.spread**2)
        said = [eased(unsure(rate), ease) for rate in rates]
        if variance:
            variance = 1 / (1 / variance + sum(rate * (1 - rate) for rate in said))
            ease += variance * sum(one - rate for rate, one in zip(said, held, strict=True))
        return min(max(ease, -MOST), MOST), variance, said


class Ease:
    """value: log odds.

    >>> ease = Ease()
    >>> for _ in range(8):
    ...     ease.begins()  # another text
    ...     for accepted in (4, 4, 4, 4):
    ...         ease.saw([0.8] * 4, [1.0] * 4)
    ...     easy = ease.value
    ...     ease.begins()
    ...     for _ in range(4):
    ...         ease.saw([0.8], [0.0])
    >>> easy > 0.5, ease.value < -0.5
    (True, True)
    """

    def __init__(self) -> None:
        self._guesses = [_Guess(spread) for spread in _SPREADS]
        self.begins()

    @property
    def _best(self) -> _Guess:
        return max(self._guesses, key=lambda one: one.worth)

    @property
    def differs(self) -> bool:
        """Whether it seems to be more for some texts than for others."""
        return self._best.spread > 0

    def begins(self) -> None:
        """A text of which nothing is known."""
        self.value = 0.0
        for one in self._guesses:
            one.begins()

    def proposed(self, rates: Sequence[float], likely: Sequence[float]) -> None:
        """A window that is not verified yet, of which the draft itself says how likely its proposals are to hold."""
        self.value = self._best.after(rates[: len(likely)], likely)[0] if likely else self._best.ease

    def saw(self, rates: Sequence[float], held: Sequence[float]) -> None:
        """Proposals that hold so often on the whole did, or did not: 1, or 0, or how likely it was."""
        for one in self._guesses if held else ():
            one.saw(rates[: len(held)], held)
        self.value = self._best.ease
