"""When a step's outcome is due, and over how many branches a pass is still worth beginning before it. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from mirror_mlx.messages import PREDICTORS, Key
from mirror_mlx.speculation import SpeculationCache
from mirror_mlx.tuning.beside import worthwhile
from mirror_mlx.tuning.costs import Costs, Way, checked
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.drift import Ratio
from mirror_mlx.tuning.passes import Needed, needed
from mirror_mlx.tuning.policy import Stepped
from mirror_mlx.tuning.ranks import Ranks
from mirror_mlx.tuning.running import Brought
from mirror_mlx.tuning.setting import Setting


@dataclass(frozen=True, slots=True)
class Due:
    """What is expected of one step.

    at       when its outcome is known, ms after it begins
    whole    passes until a window is
    one      what a pass takes, ms, by its load
    setting  which says what the load is
    hits     the share of outcomes among the first so many roots
    """

    at: float
    whole: Needed
    one: Curve
    setting: Setting
    hits: Callable[[float], float]

    def branches(self, now: float, keys: Sequence[Key], of: SpeculationCache) -> int:
        """Over how many of these a pass is worth beginning so many ms after the step began. What is overdue is due."""
        made, places = [of.passes(key) for key in keys], [of.place(key) or 0 for key in keys]
        waited = accumulate(
            self.hits(at + 1) - self.hits(at) if of.count(key) < self.setting.late else 0.0
            for at, key in zip(places, keys, strict=True)
        )
        shares = [0.0, *waited]

        def takes(count: int) -> float:
            return self.one.at(self.setting.load(count, made[:count].count(0), made[:count].count(1)))

        need = self.whole.more(made[0])
        return worthwhile(max(0.0, self.at - now), need, len(keys), takes, shares.__getitem__, self.one.at(1))


@dataclass(slots=True)
class _Timed:
    """What something takes, ms, by how much of it there is.

    What is seen at one count says how fast the device is for all of them, at once, and what this count takes beside
    others, by and by.
    """

    _NEW = 0.2
    _HOPED = 0.5  # of what the least that was seen takes, until less is tried
    _FAR = 1.3  # what is further off may be an interruption, and counts for no more than that

    ratio: Ratio = field(default_factory=Ratio)
    means: dict[int, float] = field(default_factory=dict)  # as if the device were as fast as at first
    usual: Curve | None = None

    @classmethod
    def expecting(cls, curve: Curve) -> "_Timed":
        """As calibration says, until something is seen."""
        return cls(means={round(count): ms for count, ms in curve.points}, usual=curve)

    def saw(self, count: float, ms: float) -> None:
        usual = ms if self.usual is None else self.usual.at(count)
        off = ms / max(usual, 1e-9)
        bounded = usual * min(max(off / self.ratio.value, 1 / self._FAR), self._FAR)
        before = self.means.get(round(count), bounded)
        self.means[round(count)] = before + self._NEW * (bounded - before)
        self.ratio.saw(off)
        self.usual = Curve.of(self.means)

    @property
    def curve(self) -> Curve | None:
        """None: nothing was seen."""
        return None if self.usual is None else self.usual.scaled(self.ratio.value)

    @property
    def hoped(self) -> Curve | None:
        """The same, where less than was ever seen might take less: who does not hope for that never finds out."""
        if (found := self.curve) is None:
            return None
        least, ms = found.points[0]
        return Curve(((1.0, self._HOPED * ms), *found.points)) if least > 1 else found


class Timetable:
    """When outcomes come and what a draft's passes take, over all requests of an engine."""

    def __init__(self) -> None:
        self._outcomes = _Timed()
        self._passes: dict[Way, _Timed] = {}
        self._brought: dict[Way, Brought] = {}
        self._ranks = {predictor: Ranks() for predictor in PREDICTORS}

    def expect(self, costs: Costs) -> None:
        """What nothing was seen of takes what calibration says."""
        for way, draft in costs.drafts.items():
            if way not in self._passes:
                self._passes[way] = _Timed.expecting(draft.beside)
        if self._outcomes.usual is None:
            self._outcomes = _Timed.expecting(costs.verify.scaled(costs.slower))

    def saw(self, fact: Stepped) -> None:
        """A step of speculation is over."""
        setting = fact.setting
        one = self._passes.setdefault(setting.way, _Timed())
        for passed in fact.passed:
            if passed.branches:
                one.saw(passed.branches + setting.carried(passed.rows), passed.ms)
        if fact.checked[0]:
            self._brought.setdefault(setting.way, Brought()).saw(*fact.checked)
        if not fact.opening:  # a step in turns tells as well how fast the target is: the next one may be beside it
            self._outcomes.saw(fact.length + 1, fact.known or fact.target)
        if setting.mode == "mirror" and fact.opened and not fact.opening:
            self._ranks[setting.predictor].saw(fact.place, fact.opened)

    def of(self, length: int, setting: Setting) -> Due | None:
        """For a step that verifies so many proposals; None: nothing is known yet."""
        way, outcomes, ranks = setting.way, self._outcomes.curve, self._ranks[setting.predictor]
        one = self._passes[way].hoped if way in self._passes else None
        if outcomes is None or one is None:
            return None
        each = self._each(way)
        return Due(outcomes.at(length + 1), needed(each, setting.length, checks=checked(way)), one, setting, ranks.hits)

    def _each(self, way: Way) -> float:
        """Tokens that a pass brings: of streams that are checked it depends on the text."""
        streams, exact = way
        return self._brought.get(way, Brought()).value if exact else 1.0 + streams
