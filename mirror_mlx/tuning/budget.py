"""What may be lost to plain decoding by trying, and what has been. Pure. ms, and tokens' times of plain decoding."""

_ALLOWED = 0.015  # of the time so far
_CREDIT = 2.0  # and so many plain tokens
_TRY = 1.0  # plain tokens that another try may cost


class Budget:
    """
    >>> budget = Budget()
    >>> budget.spend(1000.0, 900.0)
    >>> budget.lost, round(budget.allowed(10.0), 1), budget.over(10.0), budget.may_try(10.0)
    (100.0, 35.0, True, False)
    >>> budget.spend(100.0, 200.0)  # won back
    >>> budget.lost, budget.may_try(10.0), budget.may_probe(20.0, 10.0)
    (0.0, True, True)
    """

    def __init__(self) -> None:
        self.lost = 0.0
        self._spent = 0.0

    def spend(self, ms: float, worth: float) -> None:
        """So much time went into what plain decoding needs `worth` for."""
        self._spent += ms
        self.lost = max(0.0, self.lost + ms - worth)

    def allowed(self, plain: float) -> float:
        return _CREDIT * plain + _ALLOWED * self._spent

    def over(self, plain: float) -> bool:
        return self.lost > self.allowed(plain)

    def may_try(self, plain: float) -> bool:
        return self.lost + _TRY * plain < self.allowed(plain)

    def may_probe(self, cost: float, plain: float) -> bool:
        """Something that costs so much, and still try after it."""
        return cost <= 0 or (self.may_try(plain) and self.lost + cost + _TRY * plain < self.allowed(plain))

    def forgive(self, plain: float) -> None:
        """A device that was slow for a while is no reason never to try."""
        self.lost = min(self.lost, self.allowed(plain))
