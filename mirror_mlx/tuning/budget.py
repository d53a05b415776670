"""What may be lost to plain decoding by trying and by asking, and what has been. Pure. ms, and tokens' times of plain
decoding."""

from math import inf

_ALLOWED = 0.01  # of the time so far may be lost by trying
_CREDIT = 3.0  # and so many plain tokens,
_HOPE = 5.0  # more by so many times what is expected to be won with each,
_MOST = 7.0  # but no more than so many
_RESERVE = 12.0  # tokens' time that were won: a text that is hard to foresee for a while is no reason to give up
_TRY = 1.0  # plain tokens that another try may cost
_PROBES = 0.005  # of the time may be what probes slow plain decoding by
_FIRST = 1.0  # and so many plain tokens


class Budget:
    """
    >>> budget = Budget()
    >>> budget.spend(1000.0, 900.0)
    >>> budget.lost, round(budget.allowed(10.0), 1), budget.over(10.0), budget.may_try(10.0)
    (100.0, 40.0, True, False)
    >>> budget.spend(100.0, 200.0)  # won back
    >>> budget.lost, budget.may_try(10.0), budget.allowed(10.0) < budget.allowed(10.0, gain=1.5)
    (0.0, True, True)
    >>> budget.probe(10.0)
    >>> budget.may_probe(4.0, 10.0), budget.may_probe(8.0, 10.0)
    (True, False)
    """

    def __init__(self) -> None:
        self.lost = 0.0
        self._spent = self._probed = 0.0

    def spend(self, ms: float, worth: float, plain: float = 0.0) -> None:
        """So much time went into what plain decoding needs `worth` for. plain: a token's time, of a step that may have
        won some; of what was won, so many tokens' time may be lost again."""
        self._spent += ms
        least = -_RESERVE * plain if plain else min(0.0, self.lost)
        self.lost = max(least, self.lost + ms - worth)

    def probe(self, ms: float) -> None:
        """Plain decoding was slowed by so much, by a draft that proposed beside it."""
        self._probed += ms

    def allowed(self, plain: float, gain: float = 1.0) -> float:
        """gain: what is tried is expected to be so many times as fast as plain decoding; who promises more may have
        more bad luck."""
        return min(_MOST, _CREDIT + _HOPE * max(0.0, gain - 1)) * plain + _ALLOWED * self._spent

    def over(self, plain: float, gain: float = 1.0) -> bool:
        return self.lost > self.allowed(plain, gain)

    def may_try(self, plain: float, gain: float = 1.0, cost: float = 0.0) -> bool:
        """cost: what a try is expected to lose."""
        return self.lost + max(_TRY * plain, cost) < self.allowed(plain, gain)

    def may_probe(self, cost: float, plain: float) -> bool:
        """Whether something that costs so much may be asked for."""
        return cost <= 0 or self._probed + cost < _FIRST * plain + _PROBES * self._spent

    def forgive(self, plain: float) -> None:
        """A device that was slow for a while is no reason never to try; but who promised more than was kept waits
        longer."""
        self.lost = min(self.lost, self.allowed(plain, inf))
