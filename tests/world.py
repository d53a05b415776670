"""A pair and a machine that exist only as numbers: what a policy decides is played out, and time is added up."""

import random
from dataclasses import dataclass, replace
from math import exp, inf, log

from mirror_mlx.tuning.choice import Reach
from mirror_mlx.tuning.costs import Costs, DraftCosts, checked
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.governor import Governor
from mirror_mlx.tuning.policy import Passed, Probed, Stepped
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.tally import Plained
from mirror_mlx.tuning.throughput import known_outcome, predict

REACH = Reach(15, 64, ("draft", "hybrid"), (4,))
TOKENS = 400


def costs(one=20.0, plain=150.0, tokens=2.0, rows=0.012, way=(0, False)):
    """A target whose rows cost little each, and a draft."""
    draft = DraftCosts(Curve.of({1: one, 8: one}), Curve.of({1: one, 24: 1.1 * one}), tokens, 24, checks=checked(way))
    verify = Curve.of({count: plain * (1.01 + rows * (count - 1)) for count in (1, 8, 16)})
    return Costs(plain, verify, tap=0.03 * plain, exits={4: 0.5}, slower=1.01, exchange=0.1, drafts={way: draft})


@dataclass
class World:
    """alpha: how likely a proposal holds; hits: the share of outcomes among so many roots; noise: of all times; lookup:
    how likely one holds that the text has had before; None: there is no such thing."""

    costs: Costs
    alpha: float
    hits: object = staticmethod(lambda count: 1 - 0.5 * max(count, 1) ** -0.7 if count else 0.0)
    noise: float = 0.05
    seed: int = 1
    kills: int = 0  # each so many steps the draft dies; 0: never
    hindered: float = 1.0  # plain decoding beside a busy draft ÷ alone
    lookup: float | None = None
    tried = 1000  # windows that all this is from, see `throughput.Belief`
    bias: object = staticmethod(lambda setting: 1.0)  # what a step takes ÷ what the throughput model makes of it

    def __post_init__(self):
        self.rng = random.Random(self.seed)
        self.steps = 0
        self.plain = 0.0  # tokens of which it was not seen yet what a lookup would have had

    def answer(self):
        """Tokens of a text."""
        return inf

    def begins(self):
        """Another text does."""

    def passes(self, ms):
        """So much time does."""

    def filled(self):
        """The share of steps in which it has one."""
        return 0.0 if self.lookup is None else 1.0

    def backup(self, count):
        """Tokens of a window that the draft has no part in."""
        return 0.0 if self.lookup is None else sum(self.lookup**place for place in range(1, count + 1))

    def offers(self, count):
        """Amid so many tokens that are decoded plainly."""
        if self.lookup is None:
            return ()
        self.plain += count / 2
        found = []
        while self.plain >= 1:
            found.append((6, self.accepted(6, self.lookup)))
            self.plain -= 1 + found[-1][1]
        return tuple(found)

    def thought(self):
        """How long it was thought amid plain decoding since this was asked."""
        return 0.0

    def at(self, host):
        """The costs where the draft is there."""
        return self.costs

    def probing(self, probe, count):
        """Tokens of so many in which the draft is busy with a window nobody verifies."""
        draft = None if probe is None else self.at(probe.host).drafts.get(probe.way)
        return (
            0 if draft is None else min(count, round((draft.jit(probe.length) + draft.glue.at(1)) / self.costs.plain))
        )

    def alive(self, count):
        return [self.alpha**place for place in range(1, count + 1)]

    def windows(self, count):
        return [self.alive(count)]

    def jitter(self):
        return max(0.5, self.rng.gauss(1, self.noise))

    def accepted(self, length, alpha=None):
        held, alpha = 0, self.alpha if alpha is None else alpha
        while held < length and self.rng.random() < alpha:
            held += 1
        return held

    def place(self, roots):
        """Which of so many roots is the outcome; None: none of them."""
        drawn = self.rng.random()
        return next((at for at in range(roots) if drawn < self.hits(at + 1)), None)

    def load(self, target=1.0, draft=1.0):
        """The same with slower devices."""
        base = self.costs
        drafts = {
            way: replace(one, glue=one.glue.scaled(draft), one=one.one.scaled(draft))
            for way, one in base.drafts.items()
        }
        self.costs = replace(base, plain=base.plain * target, verify=base.verify.scaled(target), drafts=drafts)

    def step(self, setting, stop=None):
        """stop: when a window in turns is long enough; None: when it is as long as it may be."""
        costs = self.at(setting.host)
        draft = costs.drafts[setting.way]
        if setting.mode == "sd":
            return self.serial(setting, costs, draft, stop)
        expected = predict(costs, setting, self)
        place = self.place(setting.roots)
        hit = place is not None and self.hits(place + 1) <= expected.share + 1e-9  # something was prepared for it
        lasts, _ = known_outcome(costs, setting, self, place if hit else None, guessed=False)
        whole = lasts * self.jitter() * self.bias(setting)
        length, branches = setting.length, float(max(setting.roots, 1))
        lookup = None if hit or setting.late else self.lookup  # the window is as likely one of a step with such an end
        return Stepped(
            setting, length, self.accepted(length, lookup), by="hit" if lookup is None else "lookup",
            target=self.costs.verify.at(length + 1) * self.costs.slower,
            whole=whole, source="hit" if hit else "jit", opened=setting.roots, own=setting.roots // 2, place=place,
            passed=[Passed(draft.one.at(branches), branches)],
        )  # fmt: skip

    def serial(self, setting, costs, draft, stop):
        """In turns: passes are whole ones, as many as `stop` thinks worth while."""
        if setting.alone:
            accepted, target = self.accepted(setting.length, self.lookup or 0.0), costs.verify.at(setting.length + 1)
            return Stepped(
                setting, setting.length, accepted, target=target, whole=target * self.jitter(), source="lookup",
                by="lookup",
            )  # fmt: skip
        passes, length, enough = 0, 0, draft.passes(setting.late)
        while passes < enough and not (stop and stop.at([self.alpha] * length)):
            passes += 1
            length = draft.brought(min(passes, enough), setting.late)
        accepted, target = self.accepted(length), self.costs.verify.at(length + 1)
        whole = target + draft.waited(passes, accepted + 1) + costs.exchange
        return Stepped(
            setting, length, accepted, target=target, whole=whole * self.jitter() * self.bias(setting), source="jit",
            passed=[Passed(draft.one.at(1), 1.0)] * passes,
        )  # fmt: skip

    def enter(self, setting):
        """Speculation begins amid a text: there is no window yet, and the target waits for one."""
        costs = self.at(setting.host)
        target, draft = costs.verify.at(1) * self.jitter(), costs.drafts.get(setting.way)
        jit = 0.0 if draft is None else draft.jit(setting.late, window=setting.length) * self.jitter()
        return Stepped(setting, 0, 0, target=target, whole=target + jit, source="jit")


def parts_of(observed, fact, world):
    """What the parts of a step beside the target come to, which had that outcome."""
    place = fact.place if fact.source == "hit" else None
    return known_outcome(observed.during(fact), fact.setting, world, place, guessed=False)[0]


def odds(rate):
    """Their logarithm, of what happens so often."""
    return log(rate / (1 - rate))


def drawn(rng, usual, spread):
    """How often it happens in one text, of those whose log odds differ by so much."""
    return 1 / (1 + exp(-rng.gauss(usual, spread)))


@dataclass
class Busy(World):
    """Where devices are slow for a while, each for itself, by chance; and one text is harder than another.

    slow    times as long as else everything takes then; often: in what share of the time; lasts: ms, on average
    spread  of texts, in log odds of a proposal's holding
    """

    slow: float = 1.8
    often: float = 0.7
    lasts: float = 300.0
    spread: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        self.usual, self.odds = self.costs, odds(self.alpha)
        self.factors, self.left = [1.0, 1.0], [0.0, 0.0]
        self.passes(0.0)
        self.begins()

    def begins(self):
        self.alpha = drawn(self.rng, self.odds, self.spread)

    def passes(self, ms):
        for device in (0, 1):
            self.left[device] -= ms
            while self.left[device] <= 0:
                self.factors[device] = self.slow if self.rng.random() < self.often else 1.0
                self.left[device] += self.rng.expovariate(1 / self.lasts)
        self.costs = self.usual
        self.load(*self.factors)


@dataclass
class Texts(Busy):
    """The same texts one after the other, whatever is decided: who decodes them in different ways can be compared. What
    one has had before is harder to make use of than in another, too.

    lookups  as `spread`, of what a lookup proposes
    """

    lookups: float = 0.9

    def __post_init__(self):
        self.number, self.found = 0, None if self.lookup is None else odds(self.lookup)
        super().__post_init__()

    def begins(self):
        text = random.Random(f"{self.seed} {self.number}")
        self.number += 1
        self.alpha = drawn(text, self.odds, self.spread)
        if self.found is not None:
            self.lookup = drawn(text, self.found, self.lookups)


def plainly(world, tokens, slowed=1.0):
    """What so many tokens take then, ms."""
    ms = 0.0
    for _ in range(tokens):
        took = slowed * world.costs.plain * world.jitter()
        world.passes(took)
        ms += took
    return ms


def play(policy, world, tokens, events=None, answer=inf):
    """Decode so many tokens; events: token → what happens to the world then; answer: tokens of a text. Returns ms, and
    what was done by token."""
    done, ms, said, events = 0, 0.0, [], dict(events or {})
    parked = False
    while done < tokens:
        for at in [at for at in events if at <= done]:
            events.pop(at)(world)
        ask = policy.ask()
        if ask.plain:
            count = int(min(ask.plain, tokens - done, answer - done % answer))
            beside = world.probing(ask.probe, count)
            alone, slowed = plainly(world, count - beside), plainly(world, beside, world.hindered)
            took = alone + slowed
            policy.plained(Plained(count - beside, alone, beside, slowed, world.offers(count), world.thought()))
            if ask.probe is not None and ask.probe.mode != "ar":
                length = ask.probe.length
                draft = world.at(ask.probe.host).drafts.get(ask.probe.way)
                one = None if draft is None else draft.one.at(1) * world.jitter()
                probe = ask.probe
                policy.probed(Probed(probe.way, length, world.accepted(length), one_pass=one, host=probe.host))
            policy.stretched()
        else:
            world.steps += 1
            fact = world.enter(ask.setting) if parked else world.step(ask.setting, policy.stop(ask.setting))
            count, took = fact.accepted + 1, fact.whole
            policy.verified(fact.length, fact.accepted, fact.confidences)
            policy.stepped(fact)
            if world.kills and world.steps % world.kills == 0:
                policy.failed()
            world.passes(took)
        parked = ask.plain > 0 and ask.setting.mode == "ar"  # amid speculation a window is asked for beside the text
        done, ms = done + count, ms + took
        said += [(ask.setting if not ask.plain else Setting("ar"), took / count)] * count
        if done // answer > (done - count) // answer:
            policy.answered(answer)
            world.begins()
    return ms, said


def governed(world, tokens=TOKENS, events=None, holds=0.6):
    """Decode so many tokens as a governor says. Returns it, ms, and what was done by token."""
    governor = Governor(world.costs, REACH, dict.fromkeys(world.costs.drafts, holds), backup=world.lookup is not None)
    ms, said = play(governor, world, tokens, events)
    return governor, ms, said
