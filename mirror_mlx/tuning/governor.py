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
from math import inf

from mirror_mlx.messages import HITS
from mirror_mlx.tuning import cutting, waiting
from mirror_mlx.tuning.belief import Beliefs
from mirror_mlx.tuning.budget import Budget
from mirror_mlx.tuning.checking import CHECK, Checks
from mirror_mlx.tuning.choice import Reach, finished, further
from mirror_mlx.tuning.costs import Costs, Way
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.doubt import Doubt
from mirror_mlx.tuning.lookout import Lookout
from mirror_mlx.tuning.observed import Observed
from mirror_mlx.tuning.policy import Account, Ask, Probed, Stepped
from mirror_mlx.tuning.stopping import Stop, least
from mirror_mlx.tuning.stretches import Stretches
from mirror_mlx.tuning.suits import Suits
from mirror_mlx.tuning.tally import Plained
from mirror_mlx.tuning.throughput import Prediction, Setting, predict
from mirror_mlx.tuning.varying import Varying

_BETTER = 1.03  # times the rate before something else is done
_WORSE = 0.98  # times plain decoding's before that is: what a few of its tokens took is no better known
_JUDGE = 4  # steps between two judgements of whether speculation is worth it
_NEW = 8  # steps after which each is judged, where something has just been decided
_SLOWS = 0.5  # of what is thought, by which a verification takes longer, and it is thought less
_TOGETHER = 800.0  # ms of steps that are thought of together then, not more of them than between two judgements,
_SETTLED = 24  # or twice as many, so long after something was decided;
_HURRIES, _THINKS = 0.03, 0.01  # and what share of their time may go into looking for others, until then and since
_LASTED = 128  # steps of speculation that was worth it for long
_ALIKE = 0.02  # by as much more or less is expected, and it is not looked for something else,
_SKIPPED = 3  # so many times at most, while plain decoding goes on
_OFFERED = 0.25  # and by so many tokens more or less of what a backup would have proposed
_BEFORE = 4  # settings that were done before and may be better again by now
_PROBE = 4  # proposals compared with them, at most


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
        self._reach, self._observed = reach, Observed(costs)
        self._known, self._slows = known, costs.thought > _SLOWS
        self._beliefs = Beliefs(costs.drafts, holds, backup)
        self._budget = Budget()
        self._stretches, self._checks = Stretches(), Checks(away=not known)
        self._facts: list[Stepped] = []  # of which nothing was made yet
        self._steps = 0  # of speculation, since it began
        self._changed = 0  # in which of them it was last decided to do otherwise
        self._entry = 0.0  # ms lost in the first step of speculation, which has no window, or a short one
        self._doubt = Doubt()
        self._varying = Varying(reach, costs.drafts)
        self._varied: Setting | None = None  # how the next step is done, if not as decided
        self._rows: Curve | None = None  # what verifying them costs; None: it has looked for others since
        self._wish = self._setting = Setting("ar")
        self._lookout = Lookout(reach, self._beliefs.of)
        self._choosing: Generator[None, None, Prediction] | None = None  # whether to speculate, between two stretches
        self._hoped, self._skipped = 0.0, 0  # of its wish the last time it was looked for it, in plain decoding's rate
        self._offered = 0.0  # of a backup's window, then
        self._suits = Suits(reach, self._beliefs.of)
        self._expected = self._said(self._setting)  # of the steps that were decided
        self._tried: list[str] = []
        self._before: list[Setting] = []  # what was done lately, the last one at the end
        self._choose(finished(self._best()), 1.0, doubt=False)

    # What holds now.

    @property
    def costs(self) -> Costs:
        return self._observed.costs

    @property
    def setting(self) -> Setting:
        """What was decided last."""
        return self._setting

    @property
    def parked(self) -> bool:
        return self._setting.mode == "ar"

    @property
    def gain(self) -> float:
        """Expected tokens a second ÷ plain decoding's."""
        return 1.0 if self.parked else self._expected.rate * self.costs.plain

    @property
    def slow(self) -> bool:
        """Whether the draft's device takes much longer than it should."""
        return self._observed.slow

    @property
    def choosing(self) -> bool:
        """Whether it is being found out if it had better speculate."""
        return self._choosing is not None

    def prospect(self) -> float:
        """As `gain`, if it were to speculate now; 0 where it must not."""
        said, plain = finished(self._best()), self.costs.plain
        return said.rate * plain if self._known and self._budget.may_try(plain, said.won(plain)) else 0.0

    def _rescale(self) -> None:
        self._observed.rescale(1 / self._expected.rate)

    def _best(self) -> Generator[None, None, Prediction]:
        """Of what it had better do, from now on its wish. Most often it is near to what was best the last time."""
        plain, offered = self.costs.plain, self._beliefs.of(self._wish).backup(_PROBE)
        alike = abs(offered - self._offered) < _OFFERED
        if self.parked and alike and self._hoped > 0 and self._skipped < _SKIPPED:
            self._observed.rescale(plain / max(1.0, self._hoped))
            said = self._said(self._wish)
            if abs(said.rate * self.costs.plain / self._hoped - 1) < _ALIKE:
                self._skipped += 1
                return said
        self._rescale()
        self._offered = offered
        self._wish, said = yield from self._lookout.search(self.costs, self._wish, near=self.slow)
        # Time is worth more once it is at work, and windows in turns end the sooner.
        if self.parked and self._wish.mode == "sd" and said.rate > self._expected.rate:
            self._observed.rescale(1 / said.rate)
            self._wish, said = yield from self._lookout.search(self.costs, self._wish, near=self.slow)
        self._hoped, self._skipped = said.rate * self.costs.plain if self._wish.mode != "ar" else 0.0, 0
        return said

    def _said(self, setting: Setting) -> Prediction:
        return predict(self.costs, setting, self._beliefs.of(setting))

    def _choose(self, said: Prediction, better: float, *, doubt: bool = True) -> bool:
        """Speculate if its wish, of which that is said, is expected to be so many times as fast as plain decoding; with
        doubt: or somewhat less."""
        plain, cost = self.costs.plain, 0.0
        if not self._known or self._wish.mode == "ar":
            return False
        doubted = said.rate * plain < better
        if doubted:
            if not doubt or not self._doubt.worth(said, plain):
                return False
            cost = self._doubt.cost(said, plain) + waiting.entering(self.costs, self._wish)
        if not self._budget.may_try(plain, said.won(plain), cost):
            return False
        self._doubt.begins(doubted)
        self._setting, self._expected = self._wish, said
        self._lookout.looked(said.rate)
        self._tried.append(f"{self._setting}: {self.gain:.2f} × plain expected")
        return True

    # Decision.

    def ask(self) -> Ask:
        if self.choosing:
            return Ask(self._setting, 1)
        if self.parked:
            return Ask(self._setting, self._stretches.left, probe=None if self._stretches.asked else self.probe)
        alone = self._setting.alone
        if self._checks.due(self.gain, watched=alone and self.slow):
            return Ask(self._setting, CHECK, probe=self.probe if alone else self._setting)
        return Ask(self._varied or self._suits.at(self._setting, self._beliefs.ease))

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
        length, draft = min(self._wish.length, _PROBE), self.costs.drafts.get(self._wish.way)
        if draft is not None:
            busy = draft.glue.at(1) + draft.jit(length)
            if not self._budget.may_probe(self._observed.hindrance(busy), self.costs.plain):
                return None
        return replace(self._wish, length=length, late=length)

    def enough(self, confidences: Sequence[float]) -> int:
        """See `cutting.enough`."""
        if self._rows is None:
            belief = self._beliefs.of(self._setting)
            self._rows = cutting.rows(self.costs, self._setting, belief, self._expected.rate)
        return cutting.enough(confidences, self._beliefs.sure(self._setting.way).worth, self._rows)

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
        self._beliefs.proposed(self._setting, confidences)

    def verified(self, length: int, accepted: int, confidences: Sequence[float]) -> None:
        """Nothing is decided before the step is over, but for how long a window the next one prepares."""
        if length and not self.parked and not self._setting.alone:
            self._beliefs.verified(self._setting, length, accepted, confidences)

    def stepped(self, fact: Stepped) -> None:
        """A step of speculation is over. It may have begun before what was decided last. Where the target is slowed by
        what is thought, short steps are thought of together: each by itself would find this out of the caches."""
        self._facts.append(fact)
        self._varied = None  # the step that was to be is under way
        if not (self._slows and self._one_of_several(fact)):
            self._learn()

    def _one_of_several(self, fact: Stepped) -> bool:
        """Whether a step is one of several alike, and there may be more of them before anything is made of it."""
        most = _JUDGE if self._since < _SETTLED else 2 * _JUDGE
        if fact.opening or self.parked or self._since < _NEW or len(self._facts) >= most:
            return False
        return self._within(fact.setting) and sum(one.whole for one in self._facts) < _TOGETHER

    def _within(self, setting: Setting) -> bool:
        """Whether that is what was decided, or suits where it was."""
        return self._suits.within(setting, self._setting)

    def _learn(self) -> None:
        """From all that has been told by now."""
        facts, self._facts = self._facts, []
        for fact in facts:
            self._saw(fact)
        if not facts or facts[-1].opening:
            return
        self._weigh(facts[-1])
        if self.parked:
            return
        done, judged = facts[-1].setting, self._since // _JUDGE
        self._steps += len(facts)
        varied = not self._within(done)
        if varied:
            lost = facts[-1].whole * self._expected.rate / self._said(done).tokens - 1
            self._varying.took(done, lost)
        if varied or self._since <= _NEW or self._since // _JUDGE > judged:
            self._judge(done if varied else None)
        share = _THINKS if self._since > _SETTLED else _HURRIES
        self._look(share * sum(fact.whole for fact in facts) if self._slows else inf)
        self._varied = self._varying.next(self._setting, self._rate_of, len(facts))

    def _saw(self, fact: Stepped) -> None:
        self._beliefs.stepped(fact)
        self._checks.stepped(fact.accepted + 1)
        worth = (fact.accepted + 1) * self.costs.plain
        if fact.opening:  # plain decoding would have the end of the prompt to do as well, but no window to wait for
            rows = min(fact.target, self.costs.verify.at(fact.length + 1))
            self._spend(fact, worth + fact.target - rows)
            return
        self._observed.verified(fact)
        self._observed.checked(*self._beliefs.agreed(fact))
        if fact.passed and fact.setting.way in self.costs.drafts:
            self._known = True
            self._observed.passed(fact.setting.way, fact.passed)
        self._spend(fact, worth)
        if self.parked:
            return
        if self._steps == 0:
            self._entry = max(0.0, fact.whole - worth)
        elif self._budget.lost <= 0:
            self._entry = 0.0

    def _weigh(self, fact: Stepped) -> None:
        """What a step took beside what its parts are expected to."""
        self._rescale()  # what has made a device slow is not to count twice
        if fact.ends:
            return
        if fact.setting.mode == "sd":
            self._observed.lasted(fact, self._observed.serial(fact))
            return
        expected = predict(self._observed.during(fact), fact.setting, self._beliefs.of(fact.setting))
        self._observed.lasted(fact, expected.hit if fact.source in HITS else expected.miss)
        if fact.opened:
            self._observed.prepared(fact, expected.share)

    @property
    def _since(self) -> int:
        """Steps that were done as was decided last."""
        return self._steps - self._changed

    def _spend(self, fact: Stepped, worth: float) -> None:
        self._budget.spend(fact.whole, worth, self.costs.plain)

    def _judge(self, other: Setting | None = None) -> None:
        """Is it worth it, and is there something better? other: was done, and is known better now."""
        self._rescale()
        self._expected = self._said(self._setting)
        better = other is not None and self._rate_of(other) > self._expected.rate
        rate = self._expected.rate
        changed = self._lookout.changed(rate)
        if better or self.gain < _WORSE or (changed and not self._slows):
            self._lookout.looked(rate, self._since)
            self._prefer(*self._lookout.best(self.costs, self._setting, near=self.slow))
        else:
            if self._slows and self._before:  # it is looked for others by and by, and these may be better at once
                known = [(one, self._said(one)) for one in self._before]
                self._prefer(*max(known, key=lambda pair: pair[1].rate))
            rate = self._expected.rate  # of what is done by now
            self._lookout.begin(self.costs, self._setting, rate, self._since, near=self.slow, now=changed)
        plain, why = self.costs.plain, ""
        if self.gain < _WORSE and not self._doubt.learning(self._steps):
            why = f"{self.gain:.2f} × plain expected"
        elif self._budget.over(plain, self._expected.won(plain), self._entry):
            why = f"{self._budget.lost / plain:.1f} tokens' time lost"
        if why and not self._checks.sooner():  # perhaps plain decoding is slower by now, too
            self.park(why)

    def _rate_of(self, setting: Setting) -> float:
        return self._said(setting).rate

    def plained(self, fact: Plained) -> None:
        """Tokens of a stretch of plain decoding. Once the draft is used, a lookup has to do with what was not foreseen,
        of which it knows less than of any text."""
        if self.parked:
            self._beliefs.plained(fact.count, fact.offers)
        if fact.count > 0:
            self._stretches.plained(fact.count)
            self._observed.plained(fact)
            self._budget.spend(fact.whole, fact.whole)
            self._budget.probe(self._observed.hindrance(fact.beside_ms))

    def probed(self, fact: Probed) -> None:
        """A window was proposed beside a stretch of plain decoding."""
        self._stretches.asked = True
        self._beliefs.probed(fact)
        if fact.one_pass is not None and fact.way in self.costs.drafts:
            self._known = True
            if self._observed.probed(fact.way, fact.one_pass):
                self._stretches.recovered()
                self._lookout.looked(0.0, self._since)  # amid speculation without it, there may be something better now
        if 4 * fact.accepted >= 3 * fact.length > 0:
            self._stretches.held()
            self._budget.held()

    def stretched(self, may: bool = True) -> None:
        """A stretch has ended: is it time to speculate? may: whether that is for this one to say."""
        self._learn()
        if self.choosing:
            self._chosen()
            return
        unchecked = self._checks.ended()
        self._stretches.ended()
        if not self.parked:
            before = self.costs.plain
            self._rescale()
            # What steps since the last time were compared with has become this meanwhile.
            self._budget.revalue(unchecked * (before - self.costs.plain) / 2, self.costs.plain)
            self._judge()
            self._observed.anchored()
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

    def resume(self) -> None:
        """Speculate, where that is expected to pay; that may take some tokens to find out."""
        self._choosing = self._best()
        self._chosen()

    def _chosen(self) -> None:
        """It is looked for no longer than a token takes, which is on its way; where it takes longer for it, at once."""
        assert self._choosing is not None
        said = finished(self._choosing) if self._slows else further(self._choosing, beside=self.costs.plain / 2)
        if said is None:
            return
        self._choosing = None
        if self._choose(said, _BETTER):
            self._steps, self._changed, self._varied = 0, 0, None

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
        tried, self._tried = tuple(self._tried), []
        return Account(str(self._setting), self.gain, self.costs.plain, tried)

    @property
    def drifted(self) -> bool:
        """Whether the target is not what was calibrated."""
        return self._observed.drifted

    def park(self, why: str) -> None:
        """Decode plainly."""
        self._tried.append(f"plain decoding: {why}")
        self._choosing = None
        self._stretches.parked(lasted=self._steps > _LASTED)
        self._setting = Setting("ar")
        self._expected = self._said(self._setting)
        self._lookout.looked(self._expected.rate)
        self._budget.forgive(self.costs.plain, self._entry, slow=self.slow)
        self._checks.dropped()
        self._entry = 0.0

    def _look(self, budget: float) -> None:
        """A bit further, while the devices are at work. budget: as in `choice.further`."""
        if self._lookout.looking:
            if found := self._lookout.further(budget):
                self._expected = self._said(self._setting)
                self._prefer(found[0], self._said(found[0]))
        elif self._beliefs.differs:
            self._suits.look(self.costs, self._setting, budget)

    def _prefer(self, setting: Setting, said: Prediction) -> None:
        self._rows = None
        if said.rate > _BETTER * self._expected.rate:
            self._lookout.looked(said.rate)
            self._before = [one for one in self._before if one not in (setting, self._setting)]
            self._before = [*self._before, self._setting][-_BEFORE:]
            self._wish = self._setting = setting
            self._expected, self._changed = said, self._steps
            self._tried.append(f"{setting}: {self.gain:.2f} × plain expected")
