"""How long plain decoding goes on before speculation is thought of again. Pure."""

_LENGTHS = (8, 16, 32, 64)  # tokens decoded plainly, the first time and on
_WATCHED = 0  # the longest of them while a draft's device is slow: it may be fast again at any time
_TRIES = 2  # that have come to nothing before windows that hold are followed up less soon


class Stretches:
    """One after another, each longer; they go on from one request to the next.

    asked  whether this one's probe has come back

    >>> stretches = Stretches()
    >>> stretches.left, stretches.plained(5), stretches.left
    (8, None, 3)
    >>> stretches.ended(), stretches.longer(), stretches.left
    (None, None, 16)
    >>> stretches.held(), stretches.ended(), stretches.longer(), stretches.left
    (None, None, None, 8)
    """

    def __init__(self) -> None:
        self.asked = False
        self._since = 0  # tokens of this one
        self._number = self._failed = 0  # failed: times that speculation did not last

    @property
    def left(self) -> int:
        """Tokens to its end, one at least. Where the next one is to be short, this one is."""
        return max(1, _LENGTHS[max(0, self._number)] - self._since)

    def plained(self, count: int) -> None:
        """So many tokens of it were decoded."""
        self._since += count

    def held(self) -> None:
        """The window that its probe brought holds: that is followed up soon, unless it has come to nothing before."""
        self._number = min(self._number, max(-1, self._failed - _TRIES))

    def recovered(self) -> None:
        """The draft's device is as fast again as it was."""
        self._number, self._failed = -1, 0

    def ended(self) -> None:
        """The next one begins."""
        self._since, self.asked = 0, False

    def longer(self, watched: bool = False) -> None:
        """It had better be longer than the last one; watched: but not by much, as what makes it last may end."""
        most = _WATCHED if watched else len(_LENGTHS) - 1
        self._number = max(self._number, min(self._number + 1, most))

    def parked(self, lasted: bool) -> None:
        """Speculation was given up; lasted: it was worth it for long."""
        self.ended()
        if lasted:
            self._number = self._failed = 0
        else:
            self._failed += 1
