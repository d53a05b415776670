"""What is done, as was decided last, what of it is done otherwise, and what might be better by now. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mirror_mlx.tuning import cutting, waiting
from mirror_mlx.tuning.choice import Reach, resized
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.estimates import Estimates
from mirror_mlx.tuning.lookout import Lookout
from mirror_mlx.tuning.policy import Stepped
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.suits import Suits
from mirror_mlx.tuning.thinking import JUDGE, NEW
from mirror_mlx.tuning.throughput import Prediction
from mirror_mlx.tuning.varying import Varying
from mirror_mlx.tuning.wish import Wish

BETTER = 1.03
"""Times plain decoding's rate before it is speculated."""
WORSE = 0.98
"""Times plain decoding's rate before that is: what a few of its tokens took is no better known,"""
_LUCK = 2.25  # and less by this ÷ steps, times the share of a step's tokens that are proposals: bad luck is with these
_PROMISED = 32  # steps in which no less is expected to be won than when speculation began
_TRIED = 0.9  # times plain decoding's rate before what is tried is done otherwise
_OTHER = 1.01  # times the rate before it is speculated otherwise: a change costs nothing, and what is unknown is learnt
_SHORTER = 1.03  # and in shorter windows: among these nothing is learnt of proposals further on
_RIVALS, _NEARLY = 4, 0.95  # settings that may be better by now: done before, or tried and so good, as a share
_LENGTHS = 2  # and, by turns, windows of other lengths
_SAME = 0.02  # by so much more or less is expected, and what rows cost is the same


class Course:
    """slows: whether the target is slowed by looking for something better.

    setting   what was decided; expected: of its steps
    steps     of speculation, since it began; since: of these, since something else was decided
    """

    def __init__(self, reach: Reach, estimates: Estimates, lookout: Lookout, wish: Wish, slows: bool) -> None:
        self._reach, self._estimates, self._lookout, self._wish = reach, estimates, lookout, wish
        self._slows = slows
        self.setting = Setting("ar")
        self.expected = estimates.of(self.setting)
        self.steps = self._changed = 0  # changed: in which of them it was last decided to do otherwise
        self._promised = 0.0  # ms that a step was expected to win when speculation began
        self._suits = Suits(reach, estimates.beliefs.of)
        self._varying = Varying(reach, estimates.costs.drafts)
        self._varied: Setting | None = None  # how the next step is done, if not as decided
        self._other: Setting | None = None  # how the last one was done, if that has just become better known
        self._rivals: list[Setting] = []  # see `_RIVALS`; the last one that was added at the end
        self._turn = 0  # lengths that were compared
        self._rows: tuple[Setting, float, Curve] | None = None  # see `rows`, and for what it was at which rate
        self._tried: list[str] = []

    @property
    def parked(self) -> bool:
        return self.setting.mode == "ar"

    @property
    def gain(self) -> float:
        """Expected tokens a second ÷ plain decoding's."""
        return 1.0 if self.parked else self.expected.rate * self._estimates.costs.plain

    @property
    def wins(self) -> float:
        """What a step is expected to win, ms. Bad luck is no reason to give a try less time than it was granted."""
        wins = self.expected.won(self._estimates.costs.plain)
        return max(wins, self._promised) if self.steps < _PROMISED else wins

    @property
    def entering(self) -> float:
        """What a stretch of plain decoding costs when it is over, in tokens of that: nothing is prepared then."""
        costs = self._estimates.costs
        return waiting.entering(costs, self.setting) / costs.plain

    @property
    def failing(self) -> bool:
        """Whether plain decoding is expected to be faster, by more than bad luck explains."""
        proposals = max(0.0, 1 - 1 / self.expected.tokens)
        return self.gain < WORSE - _LUCK * proposals / max(1, self.steps)

    @property
    def since(self) -> int:
        return self.steps - self._changed

    def begins(self, setting: Setting, said: Prediction) -> None:
        """Speculation does, of which that is expected."""
        self.setting, self.expected = setting, said
        self.steps, self._changed, self._varied = 0, 0, None
        self._promised = said.won(self._estimates.costs.plain)
        self._lookout.looked(said.rate)
        self._tried.append(f"{setting}: {self.gain:.2f} × plain expected")

    def ends(self, why: str) -> None:
        """Plain decoding goes on."""
        self.setting = Setting("ar")
        self.expected = self._estimates.of(self.setting)
        self._lookout.looked(self.expected.rate)
        self._tried.append(f"plain decoding: {why}")

    def told(self) -> tuple[str, ...]:
        """What was decided since the last time this was asked, in words."""
        tried, self._tried = tuple(self._tried), []
        return tried

    def next(self) -> Setting:
        """How the next step is done."""
        return self._varied or self._suits.at(self.setting, self._estimates.beliefs.ease)

    def under_way(self) -> None:
        """The step that was to be next has begun."""
        self._varied = None

    @property
    def rows(self) -> Curve:
        """What verifying so many proposals of a window costs, in tokens: see `cutting.rows`."""
        rate = self.expected.rate
        if self._rows is None or self._rows[0] != self.setting or abs(rate / self._rows[1] - 1) > _SAME:
            belief = self._estimates.beliefs.of(self.setting)
            self._rows = self.setting, rate, cutting.rows(self._estimates.costs, self.setting, belief, rate)
        return self._rows[2]

    def within(self, setting: Setting) -> bool:
        """Whether that is what was decided, or suits where it was."""
        return self._suits.within(setting, self.setting)

    def rescale(self) -> None:
        """What has made a device slow is known by now."""
        self._estimates.rescale(1 / self.expected.rate)

    def went(self, facts: Sequence[Stepped]) -> bool:
        """These steps are over. Whether it is time to judge what is done."""
        last, judged = facts[-1], self.since // JUDGE
        self.steps += len(facts)
        self._other = None if self.within(last.setting) else last.setting
        if self._other is not None:
            lost = last.whole * self.expected.rate / self._estimates.of(self._other).tokens - 1
            self._varying.took(self._other, lost)
        return self._other is not None or self.since <= NEW or self.since // JUDGE > judged

    def judge(self, early: bool) -> None:
        """Is there something better? early: too early to say that plain decoding is. A try that seems to fail goes on
        otherwise only where that is nearly as fast."""
        estimates, lookout = self._estimates, self._lookout
        self.rescale()
        self.expected = estimates.of(self.setting)
        other, self._other = self._other, None
        rate, least = self.expected.rate, _TRIED / estimates.costs.plain if early else 0.0
        tried = 0.0 if other is None else estimates.rate(other)
        if other is not None and tried > _NEARLY * rate:
            self._rival(other)
        changed = lookout.changed(rate)
        worse = self.gain < WORSE and not (early and self._slows)
        if tried > rate or worse or (changed and not self._slows):
            lookout.looked(rate, self.since)
            self._prefer(*lookout.best(estimates.costs, self.setting, near=estimates.slow), least=least)
            return
        if self._slows:  # it is looked for others by and by, and these may be better at once
            known = [(one, estimates.of(one)) for one in (*self._rivals, *self._resized())]
            if known:
                self._prefer(*max(known, key=lambda pair: pair[1].rate), least=least)
        rate = self.expected.rate  # of what is done by now
        lookout.begin(estimates.costs, self.setting, rate, self.since, near=estimates.slow, now=changed)

    def look(self, budget: float, steps: int) -> None:
        """A bit further, while the devices are at work, and how the next step is done. budget: as in `choice.further`;
        steps: since the last time."""
        if self._lookout.looking:
            if found := self._lookout.further(budget):
                self.expected = self._estimates.of(self.setting)
                self._prefer(found[0], self._estimates.of(found[0]))
        elif self._estimates.beliefs.differs:
            self._suits.look(self._estimates.costs, self.setting, budget)
        self._varied = self._varying.next(self.setting, self._estimates.rate, steps)

    def look_again(self) -> None:
        """There may be something better now."""
        self._lookout.looked(0.0, self.since)

    def _prefer(self, setting: Setting, said: Prediction, least: float = 0.0) -> None:
        """If it is so much better, and no slower than that."""
        better = _SHORTER if setting.length < self.setting.length else _OTHER
        if said.rate > max(better * self.expected.rate, least):
            self._lookout.looked(said.rate)
            self._rivals = [one for one in self._rivals if one != setting]
            self._rival(self.setting)
            self._wish.setting = self.setting = setting
            self.expected, self._changed = said, self.steps
            self._tried.append(f"{setting}: {self.gain:.2f} × plain expected")

    def _resized(self) -> Iterator[Setting]:
        """What is done, in windows of some other lengths: what holds changes which one is best sooner than anything."""
        setting = self.setting
        lengths = [n for n in self._reach.lengths() if n != setting.length]
        for _ in range(min(_LENGTHS, len(lengths))):
            length = lengths[self._turn % len(lengths)]
            self._turn += 1
            all_of_it = setting.late == setting.length  # is waited for
            yield replace(setting, length=length, late=length) if all_of_it else resized(setting, length)

    def _rival(self, setting: Setting) -> None:
        """It is compared with what is done at each judgement from now on."""
        self._rivals = [*(one for one in self._rivals if one != setting), setting][-_RIVALS:]
