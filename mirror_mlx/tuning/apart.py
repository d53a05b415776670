"""How far apart windows are whose proposals hold more often and more seldom, as far as the draft's own probabilities
tell before they are verified: in log odds, by which all of a window's are taken to be higher. Pure."""

from collections.abc import Sequence
from math import log, sqrt

from mirror_mlx.tuning.ease import MOST
from mirror_mlx.tuning.running import unsure


def shift(rates: Sequence[float], likely: Sequence[float]) -> float:
    """By how much the log odds of all that holds so often on the whole have to be higher for all of it to hold as often
    as is likely. (To first order, and no more than 3.)

    >>> round(shift([0.8, 0.8], [0.9, 0.9]), 2), shift([0.8], [0.8])
    (0.59, 0.0)
    """
    pairs = [(unsure(rate), unsure(one)) for rate, one in zip(rates, likely, strict=False)]
    off = sum(log(one / rate) for rate, one in pairs) / max(sum(1 - rate for rate, _ in pairs), 1e-9)
    return min(max(off, -MOST), MOST)


class Apart:
    """spread: of log odds, over windows.

    >>> apart = Apart()
    >>> for off in [1.0, -1.0] * 50:
    ...     apart.saw(off)
    >>> round(apart.spread, 1)
    1.0
    """

    _KEEP = 0.98
    _PRIOR, _WEIGHT = 0.5, 8.0

    def __init__(self) -> None:
        self._squares, self._count = self._WEIGHT * self._PRIOR**2, self._WEIGHT

    def saw(self, off: float) -> None:
        """A window. off: see `shift`."""
        self._squares, self._count = self._KEEP * self._squares + off * off, self._KEEP * self._count + 1

    @property
    def spread(self) -> float:
        return sqrt(self._squares / self._count)
