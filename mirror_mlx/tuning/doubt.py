"""Trying what is expected to be somewhat slower than plain decoding. Pure.

Calibration may have been wrong: what is never tried is never found to be better than was thought. In a few steps what
they take is learnt; each further try teaches less, and comes after twice as long.
"""

from mirror_mlx.tuning.throughput import Prediction

_LEAST = 0.8  # times plain decoding's rate: calibration may be wrong by that much
_STEPS = 4  # of a try, before it is judged by what is expected of it


class Doubt:
    """
    >>> doubt, slightly_slower = Doubt(), Prediction(step=22.0, tokens=2.0)
    >>> doubt.worth(slightly_slower, plain=10.0), doubt.cost(slightly_slower, plain=10.0)
    (True, 8.0)
    >>> doubt.begins(True)
    >>> doubt.worth(slightly_slower, plain=10.0), doubt.learning(3), doubt.learning(4)
    (False, True, False)
    >>> doubt.stretched()
    >>> doubt.worth(slightly_slower, plain=10.0), doubt.worth(Prediction(step=11.0, tokens=1.0), plain=10.0)
    (True, False)
    >>> doubt.begins(False), doubt.worth(slightly_slower, plain=10.0)
    (None, False)
    >>> doubt.parked(lasted=True), doubt.worth(slightly_slower, plain=10.0)
    (None, True)
    """

    def __init__(self) -> None:
        self._now = False  # whether such a try is under way
        self._tries = self._stretches = 0  # how many there were, and stretches of plain decoding since

    def worth(self, said: Prediction, plain: float) -> bool:
        """Whether this may be tried. What brings few tokens would not pay if it took no longer than one."""
        near = said.rate * plain >= _LEAST and said.tokens * _LEAST >= 1
        return near and self._stretches >= 2**self._tries - 1

    def cost(self, said: Prediction, plain: float) -> float:
        """What a try is expected to lose, ms."""
        return _STEPS * (said.step - said.tokens * plain)

    def begins(self, doubted: bool) -> None:
        """Speculation begins; doubted: as a try."""
        self._now, self._stretches = doubted, 0
        self._tries += doubted

    def parked(self, lasted: bool) -> None:
        """Speculation was given up; lasted: it was worth it for long, and what is known of others may be old by now."""
        if lasted:
            self._tries = 0

    def learning(self, steps: int) -> bool:
        """Whether it is too early to judge, after so many steps."""
        return self._now and steps < _STEPS

    def stretched(self) -> None:
        """A stretch of plain decoding has ended."""
        self._stretches += 1
