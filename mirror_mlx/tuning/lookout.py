"""When it is looked for a better setting, and how far that has come. Pure."""

from mirror_mlx.tuning.choice import BeliefOf, Reach, Search, finished, further, search
from mirror_mlx.tuning.costs import Costs
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.throughput import Prediction

_FIRST = 4  # steps after something was decided; each further look comes after twice as many,
_MOST = 64  # but no more than so many after the last one
_CHANGED = 1.25  # times as fast, or as slow, as at the last look, and another one is not put off
_EVERYWHERE = 4  # looks of which one is not only from what is done


def changed(rate: float, before: float) -> bool:
    """Whether that is much more than before, or much less."""
    return not before / _CHANGED < rate < before * _CHANGED


class Lookout:
    """By and by, while the devices are at work; and at once, where something has to be decided."""

    def __init__(self, reach: Reach, belief: BeliefOf) -> None:
        self._reach, self._belief = reach, belief
        self._count = 0  # of looks
        self._next = _FIRST  # steps after which there is another
        self._rate = 0.0  # what was expected of what is done at the last one
        self._looking: Search | None = None  # which is under way

    def best(self, costs: Costs, start: Setting, *, near: bool = False) -> tuple[Setting, Prediction]:
        """At once. start: something good of before; near: from there alone."""
        return finished(self.search(costs, start, near=near))

    def search(self, costs: Costs, start: Setting, *, near: bool = False) -> Search:
        """The same, by and by."""
        near = near or self._count % _EVERYWHERE > 0
        self._count += 1
        return search(costs, self._reach, self._belief, start, near=near)

    def looked(self, rate: float, since: int = 0) -> None:
        """Nothing is known to be better than what is done, of which so many tokens a millisecond are expected. since:
        steps since that was decided."""
        self._next, self._rate, self._looking = since + min(max(since, _FIRST), _MOST), rate, None

    def changed(self, rate: float) -> bool:
        """Whether much more is expected by now, or much less: a device is slow, or as fast as before."""
        return changed(rate, self._rate)

    @property
    def looking(self) -> bool:
        """Whether a look is under way."""
        return self._looking is not None

    def begin(
        self, costs: Costs, start: Setting, rate: float, since: int, *, near: bool = False, now: bool = False
    ) -> None:
        """If it is time, or now. start: what is done; rate, since: as for `looked`."""
        if self._looking is None and (now or since >= self._next):
            self.looked(rate, since)
            self._looking = self.search(costs, start, near=near)

    def further(self, budget: float) -> tuple[Setting, Prediction] | None:
        """Beside a verification: what is best, once the look has ended. budget: as in `choice.further`."""
        if self._looking is None or (found := further(self._looking, budget)) is None:
            return None
        self._looking = None
        return found
