"""When plain decoding is measured amid speculation that lasts: what that is compared with may have changed. Pure."""

CHECK = 6  # tokens decoded plainly each time
_SHARE = 0.005  # of the time goes into that
_OFTEN = 64  # tokens between two such checks, at least
_DOUBTFUL = 2.0  # times as fast as plain decoding: nobody has seen a calibration that is wrong by as much
_OFF = 0.5  # by such a share it takes longer than was thought, or less long, and another check is to say how long
_AWAY = 128  # and that many where the draft is not where it belongs, or left out as its device is slow


class Checks:
    """away: whether the draft is not where it belongs.

    >>> checks = Checks()
    >>> checks.stepped(100)
    >>> checks.due(gain=1.1), checks.due(gain=3.0), checks.ended()
    (True, False, 100)
    >>> checks.found(1.02), checks.stepped(100)
    (None, None)
    >>> checks.due(gain=1.1), checks.sooner(), checks.due(gain=1.1)
    (False, True, True)
    >>> checks.ended(), checks.sooner(), checks.stepped(200)
    (100, False, None)
    >>> checks.due(gain=1.1), checks.due(gain=1.1, entering=2.0)
    (True, False)
    """

    def __init__(self, away: bool = False) -> None:
        self._away = away
        self._since = 0  # tokens since the last one
        self._known = False  # whether that has found what was thought
        self._asked = False  # whether one is wanted whatever it costs

    def stepped(self, tokens: int) -> None:
        """So many came of a step of speculation."""
        self._since += tokens

    def due(self, gain: float, entering: float = 0.0, watched: bool = False) -> bool:
        """gain: tokens a second ÷ plain decoding's; entering: tokens of that which are lost when it goes on otherwise;
        watched: the draft is left out, and its device may recover."""
        return self._asked or self._since >= (_AWAY if watched else self._every(gain, entering))

    def _every(self, gain: float, entering: float) -> float:
        """So many tokens that its loss is a small share. What is not known by now is checked sooner, where that might
        change what is done."""
        if self._away:
            return _AWAY
        known = self._known or gain > _DOUBTFUL
        lost = CHECK * (gain - 1) + max(gain - 1, gain * entering if known else 0.0)
        return max(_OFTEN, lost / _SHARE / (1 if known else 4))

    def sooner(self) -> bool:
        """One is wanted now, if the last one is some time ago; whether that is so."""
        self._asked = self._asked or self._since > _OFTEN
        return self._asked

    def ended(self) -> int:
        """Plain decoding was measured. How many tokens speculation has brought since the last time."""
        since, self._since, self._asked = self._since, 0, False
        return since

    def found(self, times: float) -> None:
        """It takes so many times as long as was thought."""
        self._known = abs(times - 1) < _OFF

    def dropped(self) -> None:
        """Speculation is given up, and with it what was wanted."""
        self._asked = False
