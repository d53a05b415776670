"""A running mean. Pure."""


class Mean:
    """Of what was seen, as far as that is not long past.

    >>> seen = Mean()
    >>> for ms in [10.0, 30.0] * 50:
    ...     seen.saw(ms, keep=0.95)
    >>> round(seen.value(usual=0.0, weight=2.0)), Mean().value(usual=5.0, weight=2.0)
    (18, 5.0)
    """

    __slots__ = ("count", "total")

    def __init__(self, total: float = 0.0, count: float = 0.0) -> None:
        self.total, self.count = total, count

    def saw(self, value: float, keep: float) -> None:
        """One more. keep: of those before it."""
        self.total, self.count = keep * self.total + value, keep * self.count + 1

    def faded(self, keep: float) -> None:
        """They are longer past."""
        self.total, self.count = keep * self.total, keep * self.count

    def value(self, usual: float, weight: float) -> float:
        """usual: what is believed of others, and counts for so many."""
        return (self.total + weight * usual) / (self.count + weight)
