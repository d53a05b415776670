"""No regret: what to do next, from what has been measured so far. Pure: facts in, one `Ask` at a time out.

               goes on while                                   then
    SPECULATE  it is expected to bring more than plain         PARKED
    PARKED     a stretch of plain decoding lasts, longer each  SPECULATE, where it is expected to pay; else a longer
               time; a draft's window beside it is compared    stretch

A stretch tells what plain decoding takes now: a load on the target's device slows both, and is no reason to park. What
was lost to plain decoding is kept account of, and bounds what may be tried. Speculation that lasts is interrupted by a
short stretch now and then, the more rarely the more it brings: what it is compared with is measured too. Windows are
longer or shorter than was decided while the text is easier or harder than it is on the whole; in turns each ends once
it is unlikely to hold.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

from mirror_mlx.tuning import cutting, waiting
from mirror_mlx.tuning.budget import Budget
from mirror_mlx.tuning.checking import CHECK, Checks
from mirror_mlx.tuning.choice import Reach, finished, further
from mirror_mlx.tuning.costs import Costs, Way
from mirror_mlx.tuning.course import BETTER, Course
from mirror_mlx.tuning.doubt import Doubt
from mirror_mlx.tuning.estimates import Estimates
from mirror_mlx.tuning.lookout import Lookout
from mirror_mlx.tuning.policy import Account, Ask, Probed, Stepped
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.stopping import Stop, least
from mirror_mlx.tuning.stretches import Stretches
from mirror_mlx.tuning.tally import Plained
from mirror_mlx.tuning.thinking import Thinking
from mirror_mlx.tuning.throughput import Prediction
from mirror_mlx.tuning.wish import Wish

_SLOWS = 0.5  # of what is thought, by which a verification takes longer, and it is thought less
_LASTED = 128  # steps of speculation that was worth it for long


class Governor:
    """One for an engine: what it has learnt of a draft serves the next request.

    costs   as calibrated
    reach   what may be chosen from
    holds   the share of proposals that held when it was calibrated, by how the draft proposes
    backup  whether something proposes at no cost where the draft has nothing
    known   whether costs are those of the draft's device; if not, it has to be probed first, and what plain decoding
            takes is measured often, since the draft ought to be elsewhere
    """

    def __init__(
        self,
        costs: Costs,
        reach: Reach,
        holds: Mapping[Way, float] = {},
        *,
        backup: bool = False,
        known: bool = True,
    ) -> None:
        self._reach, self._known = reach, known
        self._estimates = Estimates(costs, holds, backup)
        self._observed, self._beliefs = self._estimates.observed, self._estimates.beliefs
        lookout = Lookout(reach, self._beliefs.of)
        self._wish = Wish(self._estimates, lookout)
        self._thinking = Thinking(slows=costs.thought > _SLOWS)
        self._course = Course(reach, self._estimates, lookout, self._wish, self._thinking.slows)
        self._budget, self._doubt = Budget(), Doubt()
        self._stretches, self._checks = Stretches(), Checks(away=not known)
        self._entry = 0.0  # ms lost in the first step of speculation, which has no window, or a short one
        self._choosing: Generator[None, None, Prediction] | None = None  # whether to speculate, between two stretches
        self._choose(finished(self._search()), 1.0, doubt=False)

    # What holds now.

    @property
    def costs(self) -> Costs:
        return self._estimates.costs

    @property
    def setting(self) -> Setting:
        """What was decided last."""
        return self._course.setting

    @property
    def parked(self) -> bool:
        return self._course.parked

    @property
    def gain(self) -> float:
        """Expected tokens a second ÷ plain decoding's."""
        return self._course.gain

    @property
    def slow(self) -> bool:
        """Whether the draft's device takes much longer than it should."""
        return self._estimates.slow

    @property
    def choosing(self) -> bool:
        """Whether it is being found out if it had better speculate."""
        return self._choosing is not None

    @property
    def drifted(self) -> bool:
        """Whether the target is not what was calibrated."""
        return self._observed.drifted

    def prospect(self) -> float:
        """As `gain`, if it were to speculate now; 0 where it must not."""
        said, plain = finished(self._search()), self.costs.plain
        return said.rate * plain if self._known and self._budget.may_try(plain, said.won(plain)) else 0.0

    # Decision.

    def ask(self) -> Ask:
        if self.choosing:
            return Ask(self.setting, 1)
        if self.parked:
            return Ask(self.setting, self._stretches.left, probe=None if self._stretches.asked else self.probe)
        alone = self.setting.alone
        if self._checks.due(self.gain, self._course.entering, watched=alone and self.slow):
            return Ask(self.setting, CHECK, probe=self.probe if alone else self.setting)
        return Ask(self._course.next())

    def opening(self, prompt: int) -> Setting | None:
        """As much of a window as the draft has time for beside the prompt, which takes no less than so many rows do.
        Where plain decoding comes first the draft is asked beside that: nobody measures what it slows the prompt by."""
        ask = self.ask()
        setting = None if ask.plain or ask.setting.alone else ask.setting
        if setting is None or setting.way not in self.costs.drafts:
            return setting
        rows = min(prompt, self._reach.length + 1)
        return replace(setting, late=waiting.late_beside(self.costs, setting, rows))

    def waits(self, setting: Setting) -> float:
        """See `waiting.for_the_first`."""
        tokens = 1 + sum(self._beliefs.of(setting).alive(setting.late))
        return waiting.for_the_first(self.costs, setting, tokens) / 1e3

    @property
    def probe(self) -> Setting | None:
        """What the draft is asked for beside plain decoding; None: what that slows the target by is too much."""
        probe = self._wish.probe
        draft = self.costs.drafts.get(probe.way)
        if draft is not None:
            busy = draft.glue.at(1) + draft.jit(probe.length)
            if not self._budget.may_probe(self._observed.hindrance(busy), self.costs.plain):
                return None
        return probe

    def enough(self, confidences: Sequence[float]) -> int:
        """See `cutting.enough`."""
        return cutting.enough(confidences, self._beliefs.sure(self.setting.way).worth, self._course.rows)

    def stop(self, setting: Setting) -> Stop | None:
        """See `stopping`."""
        draft = self.costs.drafts.get(setting.way) if setting.mode == "sd" else None
        if draft is None:
            return None
        alive = self._beliefs.of(setting, self._beliefs.ease).alive(setting.length)
        return Stop(self._beliefs.sure(setting.way).now, least(self.costs, draft, setting.length, alive))

    def patience(self, setting: Setting) -> float | None:
        """See `waiting.for_the_next`."""
        ms = waiting.for_the_next(self.costs, setting)
        return None if ms is None else ms / 1e3

    # Facts.

    def proposed(self, confidences: Sequence[float]) -> None:
        """What the draft says of a window tells how easy the text is."""
        self._beliefs.proposed(self.setting, confidences)

    def verified(self, length: int, accepted: int, confidences: Sequence[float]) -> None:
        """Nothing is decided before the step is over, but for how long a window the next one prepares."""
        if length and not self.parked and not self.setting.alone:
            self._beliefs.verified(self.setting, length, accepted, confidences)

    def stepped(self, fact: Stepped) -> None:
        """A step of speculation is over. It may have begun before what was decided last."""
        self._course.under_way()
        alike = not fact.opening and not self.parked and self._course.within(fact.setting)
        if self._thinking.told(fact, self._course.since, alike):
            self._learn()

    def plained(self, fact: Plained) -> None:
        """Tokens of a stretch of plain decoding. Once the draft is used, a lookup has to do with what was not foreseen,
        of which it knows less than of any text."""
        if self.parked:
            self._beliefs.plained(fact.count, fact.offers)
        if fact.count > 0:
            self._stretches.plained(fact.count)
            self._observed.plained(fact)
            self._budget.spend(fact.whole, fact.whole)
            self._thinking.plained(fact)
            self._budget.probe(self._observed.hindrance(fact.beside_ms))

    def probed(self, fact: Probed) -> None:
        """A window was proposed beside a stretch of plain decoding."""
        self._stretches.asked = True
        self._beliefs.probed(fact)
        if fact.one_pass is not None and fact.way in self.costs.drafts:
            self._known = True
            if self._observed.probed(fact.way, fact.one_pass):
                self._stretches.recovered()
                self._course.look_again()  # amid speculation without it
        if 4 * fact.accepted >= 3 * fact.length > 0:
            self._stretches.held()
            self._budget.held()

    def stretched(self, may: bool = True) -> None:
        """A stretch has ended: is it time to speculate? may: whether that is for this one to say."""
        before = self.costs.plain
        self._learn()
        if self.choosing:
            self._chosen()
            return
        unchecked = self._checks.ended()
        self._stretches.ended()
        if not self.parked:
            self._course.rescale()
            # What steps since the last time were compared with has become this meanwhile.
            self._budget.revalue(unchecked * (before - self.costs.plain) / 2, self.costs.plain)
            self._judge()
            self._observed.anchored()
            self._checks.found(self._observed.plain / before)
            return
        self._stretches.longer(watched=self.slow)
        self._doubt.stretched()
        self.rested()
        if may:
            self.resume()

    def rested(self, ms: float = 0.0) -> None:
        """What steps took is long past. ms: of the time since, what was not told by `plained`."""
        self._budget.spend(ms, ms)
        self._observed.rested()

    def failed(self) -> None:
        """The draft died, or was silent for too long."""
        self._learn()
        self.park("the draft failed")

    def answered(self, tokens: int) -> None:
        """A request is over. What wastes less at the end is worth more where answers are short."""
        self._learn()
        if tokens > 0:
            self._beliefs.answered(tokens)

    def account(self) -> Account:
        """What was decided since the last time this was asked."""
        return Account(str(self.setting), self.gain, self.costs.plain, self._course.told())

    # From plain decoding to speculation, and back.

    def resume(self) -> None:
        """Speculate, where that is expected to pay; that may take some tokens to find out."""
        self._choosing = self._search()
        self._chosen()

    def park(self, why: str) -> None:
        """Decode plainly."""
        self._choosing = None
        lasted = self._course.steps > _LASTED
        self._stretches.parked(lasted)
        self._doubt.parked(lasted)
        self._beliefs.paused()
        self._course.ends(why)
        self._budget.forgive(self.costs.plain, self._entry, slow=self.slow)
        self._checks.dropped()
        self._entry = 0.0

    def _search(self) -> Generator[None, None, Prediction]:
        return self._wish.search(self._course.expected.rate, self._thinking.may_look)

    def _chosen(self) -> None:
        """It is looked for no longer than a token takes, which is on its way; where it takes longer for it, at once."""
        assert self._choosing is not None
        slows = self._thinking.slows
        said = finished(self._choosing) if slows else further(self._choosing, beside=self.costs.plain / 2)
        if said is not None:
            self._choosing = None
            self._choose(said, BETTER)

    def _choose(self, said: Prediction, better: float, *, doubt: bool = True) -> None:
        """Speculate if its wish, of which that is said, is expected to be so many times as fast as plain decoding; with
        doubt: or somewhat less."""
        plain, wish = self.costs.plain, self._wish.setting
        cost = said.step - plain  # of one step in which nothing holds
        if not self._known or wish.mode == "ar":
            return
        doubted = said.rate * plain < better
        if doubted:
            if not doubt or not self._doubt.worth(said, plain):
                return
            cost = max(cost, self._doubt.cost(said, plain) + waiting.entering(self.costs, wish))
        if self._budget.may_try(plain, said.won(plain), cost):
            self._doubt.begins(doubted)
            self._course.begins(wish, said)

    def _learn(self) -> None:
        """From all that has been told by now."""
        facts = self._thinking.facts()
        for fact in facts:
            self._saw(fact)
        if not facts or facts[-1].opening:
            return
        self._course.rescale()  # what has made a device slow is not to count twice
        self._estimates.weigh(self._thinking.closely(facts))
        if self.parked:
            return
        if self._course.went(facts):
            self._judge()
        self._course.look(self._thinking.budget(facts, self._course.since), len(facts))

    def _saw(self, fact: Stepped) -> None:
        self._beliefs.stepped(fact)
        self._checks.stepped(fact.accepted + 1)
        worth = (fact.accepted + 1) * self.costs.plain
        if fact.opening:  # plain decoding would have the end of the prompt to do as well, but no window to wait for
            prompt = max(0.0, fact.target - self.costs.verify.at(fact.length + 1))
            self._spend(fact, worth + prompt)
            self._estimates.opened(fact, fact.whole - prompt)
            return
        self._observed.verified(fact)
        self._observed.checked(*self._beliefs.agreed(fact))
        if fact.passed and fact.setting.way in self.costs.drafts:
            self._known = True
            self._observed.passed(fact.setting.way, fact.passed)
        self._spend(fact, worth)
        if self.parked:
            return
        if self._course.steps == 0:
            self._entry = max(0.0, fact.whole - worth)
        elif self._budget.lost <= 0:
            self._entry = 0.0

    def _spend(self, fact: Stepped, worth: float) -> None:
        self._budget.spend(fact.whole, worth, self.costs.plain)

    def _judge(self) -> None:
        """Is there something better, and is it worth it?"""
        early = self._doubt.learning(self._course.steps)
        self._course.judge(early)
        plain, why = self.costs.plain, ""
        if self._course.failing and not early:
            why = f"{self.gain:.2f} × plain expected"
        elif self._budget.over(plain, self._course.wins, self._entry):
            why = f"{self._budget.lost / plain:.1f} tokens' time lost"
        if why and not self._checks.sooner():  # perhaps plain decoding is slower by now, too
            self.park(why)
