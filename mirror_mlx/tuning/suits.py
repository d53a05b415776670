"""Windows as they suit a text that is easier or harder of late than it is on the whole. Pure."""

from collections.abc import Callable, Generator, Mapping

from mirror_mlx.tuning.choice import Reach, further, sized
from mirror_mlx.tuning.costs import Costs
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.throughput import Belief, predict

_GRADES = (-1.5, -1.0, -0.5, 0.5, 1.0, 1.5)  # log odds
_USUAL = 0.25  # what is less is as on the whole
_BETTER = 1.01  # times the rate before another one suits
_AGAIN, _MOST = 32, 128  # steps between two looks at what does, and where they keep finding the same

BeliefOf = Callable[[Setting, float], Belief]
"""What is believed of the text and the draft in this setting, where the text is so much easier than on the whole."""
Found = Mapping[float, Setting]
"""By how easy it is."""


class Suits:
    """Only a window's length differs, and how much of it is waited for: the next step may have another one.

    What suits is looked for by and by, and again and again: a draft's passes and what holds change.
    """

    def __init__(self, reach: Reach, belief: BeliefOf) -> None:
        self._reach, self._belief = reach, belief
        self._of: Setting | None = None  # for which one it was looked
        self._found: Found = {}
        self._looking: Generator[None, None, Found] | None = None
        self._steps, self._next = 0, _AGAIN  # since it was, and until it is again

    def at(self, setting: Setting, ease: float) -> Setting:
        """What had better be done where this was decided."""
        if abs(ease) < _USUAL or setting != self._of or not self._found:
            return setting
        return self._found[min(self._found, key=lambda grade: abs(grade - ease))]

    def within(self, setting: Setting, decided: Setting) -> bool:
        """Whether that is done where this was decided."""
        return setting == decided or (decided == self._of and setting in self._found.values())

    def look(self, costs: Costs, setting: Setting, budget: float) -> None:
        """A bit further, after each step. budget: as in `further`."""
        self._steps += 1
        if setting != self._of:
            self._of, self._found, self._looking = setting, {}, None
        if self._looking is None and (not self._found or self._steps > self._next):
            self._looking, self._steps = self._look(costs, setting), 0
        if self._looking is not None and (found := further(self._looking, budget)) is not None:
            self._next = min(2 * self._next, _MOST) if found == self._found else _AGAIN
            self._found, self._looking = found, None

    def _look(self, costs: Costs, setting: Setting) -> Generator[None, None, Found]:
        """One step for each setting that is looked at."""
        found = {}
        for grade in _GRADES:
            best, rate = setting, _BETTER * predict(costs, setting, self._belief(setting, grade)).rate
            for other in sized(self._reach, costs, setting):
                said = predict(costs, other, self._belief(other, grade))
                if said.rate > rate:
                    best, rate = other, said.rate
                yield
            found[grade] = best
        return found
