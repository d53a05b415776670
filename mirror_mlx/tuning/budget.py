"""What may be lost to plain decoding by trying and by asking, and what has been. Pure. ms, and tokens' times of plain
decoding."""

_ALLOWED = 0.01  # of the time so far may be lost by trying
_CREDIT = 3.0  # and so many plain tokens,
_HOPE = 8.0  # more by what so many steps are expected to win,
_MOST = 10.0  # but no more than so many
_WORST = 12.0  # so many may have been lost when something else is tried again; what was lost beyond is forgotten,
_SLOW = 6.0  # and beyond so many where a device has become slow, which nobody could expect
_RESERVE = 12.0  # tokens' time that were won: a text that is hard to foresee for a while is no reason to give up
_TRY = 1.0  # plain tokens that another try may cost
_PROBES = 0.0025  # of the time may be what probes slow plain decoding by
_FIRST = 1.0  # and so many plain tokens,
_HELD = 2  # and one more for each probe that holds, of so many at most: that draft may be worth it


class Budget:
    """
    >>> budget = Budget()
    >>> budget.spend(1000.0, 900.0)
    >>> budget.lost, round(budget.allowed(10.0), 1), budget.over(10.0), budget.may_try(10.0)
    (100.0, 40.0, True, False)
    >>> budget.spend(100.0, 200.0)  # won back
    >>> budget.lost, budget.may_try(10.0), budget.allowed(10.0) < budget.allowed(10.0, won=4.0)
    (0.0, True, True)
    >>> budget.spend(100.0, 300.0)  # plain decoding would have been faster than was thought: it was no loss even so
    >>> budget.revalue(150.0), budget.lost
    (None, 0.0)
    >>> budget.probe(10.0)
    >>> budget.may_probe(2.0, 10.0), budget.may_probe(8.0, 10.0)
    (True, False)
    >>> budget.held(), budget.may_probe(8.0, 10.0)
    (None, True)
    """

    def __init__(self) -> None:
        self.lost = 0.0
        self._spent = self._probed = 0.0
        self._since = 0.0  # lost since the last time that its worth was corrected, or won
        self._held = 0  # probes, of those that count

    def spend(self, ms: float, worth: float, plain: float = 0.0) -> None:
        """So much time went into what plain decoding needs `worth` for. plain: a token's time, of a step that may have
        won some; of what was won, so many tokens' time may be lost again."""
        self._spent += ms
        least = -_RESERVE * plain if plain else min(0.0, self.lost)
        self.lost = max(least, self.lost + ms - worth)
        self._since += ms - worth

    def revalue(self, less: float, plain: float = 0.0) -> None:
        """What was done since the last time was worth so much less than was thought: to lose, it has to be less than
        what it took. plain: as in `spend`."""
        self.spend(0.0, -min(less, max(0.0, self._since + less)), plain)
        self._since = 0.0

    def probe(self, ms: float) -> None:
        """Plain decoding was slowed by so much, by a draft that proposed beside it."""
        self._probed += ms

    def allowed(self, plain: float, won: float = 0.0) -> float:
        """won: what a step is expected to win; who promises more may have more bad luck."""
        return min(_MOST * plain, _CREDIT * plain + _HOPE * won) + _ALLOWED * self._spent

    def over(self, plain: float, won: float = 0.0, entry: float = 0.0) -> bool:
        """entry: what it has taken to begin, which comes back later, if at all."""
        return self.lost > self.allowed(plain, won) + entry

    def may_try(self, plain: float, won: float = 0.0, cost: float = 0.0) -> bool:
        """cost: what a try may lose at least, before anything is known."""
        return self.lost + max(_TRY * plain, cost) < self.allowed(plain, won)

    def held(self) -> None:
        """What a probe brought holds."""
        self._held = min(self._held + 1, _HELD)

    def may_probe(self, cost: float, plain: float) -> bool:
        """Whether something that costs so much may be asked for."""
        first = (_FIRST + self._held) * plain
        return cost <= 0 or self._probed + cost < first + _PROBES * self._spent

    def forgive(self, plain: float, entry: float = 0.0, *, slow: bool = False) -> None:
        """A device that was slow for a while is no reason never to try; but who promised more than was kept, or was
        costly to begin, waits longer. slow: whether it is slow now."""
        self.lost = min(self.lost, (_SLOW if slow else _WORST) * plain + entry + _ALLOWED * self._spent)
