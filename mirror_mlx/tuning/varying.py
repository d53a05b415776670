"""Steps that are done otherwise now and then: what that costs, and whether more proposals hold, is not known where only
one thing is ever done. Pure."""

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import replace

from mirror_mlx.messages import Predictor
from mirror_mlx.tuning.choice import Reach, beside, resized
from mirror_mlx.tuning.costs import Way
from mirror_mlx.tuning.setting import Setting

_VARY = 12  # steps of which one at most is done otherwise
_ASK = 4  # and so many until it is asked again whether one is
_VARIED, _ELSEWHERE = 0.006, 0.01  # of the time may be lost by that, in the same mode and in another
_HOPE = 0.15  # by such a share windows of a length that was not seen may be better than is expected,
_KEEP = 0.995  # and so much counts of what was, with each step
_AGAIN = 48  # steps after which it is asked again what is expected of them
_MOST = 2.0  # steps that one counts for, at most: it may have been interrupted
_ROW = 8  # steps in a row with a draft that is left out: the first of them has no window, and one window says little
_RARELY = 4  # times as seldom as the first there are such rows, at most


class Varying:
    """With windows of another length; beside the target instead of in turns; or, seldom, with another predictor
    or proposed in another way; with a draft that is left out, for several steps in a row. The worse it is expected to
    be, or was the last time, the more rarely."""

    def __init__(self, reach: Reach, ways: Collection[Way]) -> None:
        self._reach, self._ways = reach, ways
        self._steps = self._alike = self._next = 0  # next: how many alike before it is asked again
        self._last: dict[str, int] = {}  # in which step, by mode
        self._lost: dict[str, float] = {}  # by that one, or by all of its row, in steps
        self._asked: Setting | None = None
        self._seen: dict[int, float] = {}  # steps in windows of each length that are not long past
        self._of: Setting | None = None  # for which one it was looked what is expected of other lengths,
        self._rates: dict[Setting, float] = {}
        self._again = 0  # and in which step it is again
        self._left = self._rows = 0  # steps of a row still to be done, and rows since the draft was left out
        self._told: deque[float] = deque(maxlen=1)  # what the steps lost that were done otherwise the last time

    def next(self, setting: Setting, rate: Callable[[Setting], float], steps: int) -> Setting | None:
        """How the next step is done, if not as decided. rate: expected, in any unit; steps: since this was asked."""
        self._steps += steps
        if self._left and setting.alone:
            self._left -= 1
            return self._asked
        self._left = 0
        self._did(setting.length, steps)
        self._alike += steps
        if self._alike < max(_VARY, self._next) or setting.mode == "ar":
            return None
        self._next = self._alike + _ASK
        elsewhere = setting.mode == "sd" and self._goes_beside(setting)
        mode, share = ("mirror", _ELSEWHERE) if elsewhere else (setting.mode, _VARIED)
        row = _ROW if setting.alone and elsewhere else 1
        if not setting.alone:
            self._rows = 0
        elif row > 1:  # each further one teaches less
            share /= min(1 + self._rows, _RARELY)
        may = share * (self._steps - self._last.get(mode, 0))
        if self._lost.get(mode, 0.0) > may:  # what is expected takes longer to say
            return None
        other = self._other(setting, rate)
        if row * (rate(setting) / rate(other) - 1) > may:
            return None
        self._alike, self._next = 0, 0
        self._last[mode], self._asked = self._steps, other
        self._left, self._told = row - 1, deque(maxlen=row)
        self._rows += row > 1
        self._did(other.length, 1)
        return other

    def _did(self, length: int, steps: int) -> None:
        """So many steps in windows of that length."""
        self._seen = {known: _KEEP**steps * count for known, count in self._seen.items()}
        self._seen[length] = self._seen.get(length, 0.0) + steps

    def took(self, setting: Setting, lost: float) -> None:
        """A step that was not done as decided: by how many steps longer, for as many tokens as are expected of it."""
        if setting == self._asked:
            self._told.append(min(lost, _MOST))
            self._lost[setting.mode] = max(0.0, sum(self._told))

    @property
    def _turn(self) -> int:
        return self._steps // _VARY

    def _others(self, setting: Setting) -> list[Predictor]:
        return [one for one in self._reach.predictors if setting.mode == "sd" or one != setting.predictor]

    def _goes_beside(self, setting: Setting) -> bool:
        """Whether another predictor has its turn, or in turns the target."""
        return bool(self._others(setting)) and (self._turn % 4 < 2 if setting.mode == "sd" else self._turn % 8 == 0)

    def _other(self, setting: Setting, rate: Callable[[Setting], float]) -> Setting:
        turn = self._turn
        if setting.alone:  # what the draft is worth is told by asking it
            setting = replace(setting, late=setting.length)
        if self._goes_beside(setting):
            return self._beside(setting, self._others(setting), rate)
        if turn % 8 == 4 and (ways := [replace(setting, way=way) for way in self._ways if way != setting.way]):
            return max(ways, key=rate)
        return self._resized(setting, rate)

    def _resized(self, setting: Setting, rate: Callable[[Setting], float]) -> Setting:
        """In windows of another length: of those most is expected of, if the ones that were seldom seen may be better
        than is thought."""
        if setting != self._of or self._steps >= self._again:
            others = [resized(setting, n) for n in self._reach.lengths() if n != setting.length]
            self._of, self._again = setting, self._steps + _AGAIN
            self._rates = {one: rate(one) for one in others}
        hoped = {one: said * (1 + _HOPE / (1 + self._seen.get(one.length, 0.0))) for one, said in self._rates.items()}
        return max(hoped, key=hoped.__getitem__, default=setting)

    def _beside(self, setting: Setting, predictors: Collection[Predictor], rate: Callable[[Setting], float]) -> Setting:
        """Beside the target, by one of these. What is best in turns is often too long a window there."""
        sized, counts = [setting], self._reach.counts()
        if setting.mode == "sd":
            sized = [resized(setting, n) for n in self._reach.lengths()]
        usual = counts[len(counts) // 2]
        named = [replace(beside(self._reach, one, by), roots=usual) for one in sized for by in predictors]
        best = max(named, key=rate)
        return max((replace(best, roots=n) for n in counts), key=rate)
