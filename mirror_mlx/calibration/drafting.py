"""What the draft takes when it proposes in one way, alone and beside a busy target; and whether its proposals hold."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace

from mirror_mlx.calibration.verifying import steps
from mirror_mlx.jobs import Pass, Ticket
from mirror_mlx.messages import Outcome, Window
from mirror_mlx.rendezvous import Rendezvous
from mirror_mlx.rounds import Plan
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.target import Target
from mirror_mlx.trace import Trace, clock
from mirror_mlx.tuning.costs import SAME, DraftCosts, Way, carried, checked
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.tally import undisturbed, usual
from mirror_mlx.verify import common

_PATIENCE = 2.0  # seconds for two of the draft's passes; one that takes longer is of no use, and need not be known
_BUDGET = 1.4  # seconds for each way in which the draft proposes, after which no more is begun
_ROLLED = 2  # steps alone, with all roots and with parts of them, each time
_SINGLE = 2  # others with one, each time: what most passes are over, where the target waits
_PARTS = (1, 2, 4)  # of how many equal ones: what a pass takes begins to grow with its branches somewhere
_WAITED = 3  # proposals that the target waits for, as in decoding: who has been idle for so long finds caches cold
_WORK = ("glue", "pass")  # of the draft's, in a step
_ALIKE = 3  # times as much the target hinders some work as it does any, before it was seen
_POSITIONS = 8  # where the draft's proposals are compared with the target's text


class FailedError(Exception):
    """The draft died, or takes too long."""


class Drafted:
    """The draft, proposing in one way.

    tokens    some text, which stays as it is
    length    of windows; roots, kappa: the most of a step, and of a row
    sampling  how tokens are chosen

    exchanges  what windows take that are waited for, beside their passes, ms
    starts     from the beginning of a step beside the target until the draft is at work, ms
    slower     verifications of windows of `length` beside the draft ÷ those just before, without it
    names      whether the draft has named roots of its own
    """

    def __init__(
        self,
        draft: Rendezvous,
        target: Target,
        tokens: Sequence[int],
        way: Way,
        *,
        length: int,
        roots: int,
        kappa: int,
        sampling: Sampling,
    ) -> None:
        self._draft, self._target, self._tokens, self._way = draft, target, list(tokens), way
        self._length, self._roots, self._kappa, self._sampling = length, roots, kappa, sampling
        self._left, self._ends = _BUDGET, 0.0
        self.exchanges: list[float] = []
        self.starts: list[float] = []
        self.slower: list[float] = []
        self.names = True
        self._glue: list[float] = []
        self._joint: list[float] = []
        self._alone: dict[float, list[float]] = {}  # passes, by what they have to do
        self._hindered: dict[float, list[float]] = {}  # glue and passes beside the target ÷ alone then, by the same
        self._windows: list[Window] = []

    def turn(self) -> Sequence[Pass]:
        """The draft has its turn, and the target waits for a window. Raises FailedError."""
        self._draft.use(*self._way)
        trace, tokens, plan = Trace(), self._tokens, replace(self._plan(()), late=_WAITED)
        ticket = self._started(trace, tokens[:-1], plan)
        self._ended(ticket, tokens[-1])
        return ticket.passes

    def measure(self) -> None:
        """Passes, alone and beside the target; more of them each time. Raises FailedError, as `holds` does."""
        with self._budgeted():
            if self._in_time:
                self._draft.use(*self._way)
                self._measure()

    def _measure(self) -> None:
        known = deepcopy((self._alone, self._glue, self._joint))
        self._rolled(self._roots)
        if not self._in_time:
            return
        self._alone, self._glue, self._joint = known  # what has warmed it up does not count
        counts = sorted({max(1, self._roots // part) for part in _PARTS})
        for _ in range(_ROLLED):
            for roots in counts:
                self._rolled(roots)
            for _ in range(_SINGLE):
                self._rolled(1, expects=True)
        if self._in_time:
            text = list(self._tokens)
            self._target.prefill(text[:-1], Sampler(self._sampling))
            list(steps(self._target, text, self._length, 1))  # which has the end of the prompt to do as well
            for roots in [*reversed(counts), *[1] * _SINGLE]:
                self.turn()  # who comes after the draft finds caches cold
                ((_, alone),) = steps(self._target, text, self._length, 1)
                before = self.turn()
                took, hindered = self._rolled(roots, beside=text, expects=roots == 1)
                self.slower.append(took / alone)
                slow = self._slow([*before, *self.turn()])
                for load, ratio in hindered:
                    self._hindered.setdefault(load, []).append(ratio / slow)

    def holds(self, said: Sequence[int], first: int) -> float:
        """The share of proposals that are what the target said: `said` from `first` on."""
        with self._budgeted():
            self._draft.use(*self._way)
            return self._held(said, first)

    def _held(self, said: Sequence[int], first: int) -> float:
        held = tried = 0
        last = len(said) - self._length - 1
        for number in range(_POSITIONS):
            at = first + (last - first) * number // _POSITIONS
            if at < 2 or at >= len(said):
                continue
            if tried and not self._in_time:
                break
            window = self._window(said[: at + 1])
            self._windows.append(window)
            real = said[at + 1 :]
            good = common(window.tokens, real)
            held += good
            tried += min(good + 1, len(window.tokens), len(real))
        return (held + 0.5) / (tried + 1)

    def costs(self, width: int | None, joins: bool) -> DraftCosts:
        """What a pass takes, by branches; alone and beside the target. width, joins: as in `Wanted`."""
        one = self._passes()
        glue = usual(self._glue) if self._glue else one.at(1)
        return DraftCosts(
            self._by_rows(glue, one), one, self._tokens_each(), width,
            self._slower(),
            self._by_rows(usual(self._joint), one) if joins and self._joint else None, checked(self._way),
        )  # fmt: skip

    def _slower(self) -> Curve:
        """What that takes beside the target ÷ alone; where that was seen seldom, much as it is otherwise."""
        if not self._hindered:
            return SAME
        everywhere = usual([ratio for seen in self._hindered.values() for ratio in seen])
        return Curve.through(
            (
                (load, max(1.0, (undisturbed(seen) + _ALIKE * everywhere) / (len(seen) + _ALIKE)))
                for load, seen in self._hindered.items()
            ), level=True,
        )  # fmt: skip

    def _by_rows(self, ms: float, one: Curve) -> Curve:
        """Of what takes so long with the rows of a window, and with one row what a pass takes, or less."""
        return Curve.of({1: min(ms, one.at(1)), self._length + 1: ms})

    def _passes(self) -> Curve:
        """What one takes alone, by what it has to do, in branches."""
        return Curve.of((load, usual(times)) for load, times in self._alone.items())

    @contextmanager
    def _budgeted(self) -> Iterator[None]:
        """Time that is spent in here is what there is a budget of."""
        self._ends = time.perf_counter() + self._left
        try:
            yield
        finally:
            self._left = self._ends - time.perf_counter()

    @property
    def _in_time(self) -> bool:
        """Whether there is time for more of the same: a slow draft need not be known as well."""
        return time.perf_counter() < self._ends

    def _tokens_each(self) -> float:
        """That a pass brings a branch: where streams are checked, one and as many as hold."""
        passes, held = (sum(window.checked[part] for window in self._windows) for part in (0, 1))
        return 1.0 + (held / max(passes, 1) if checked(self._way) else self._way[0])

    def _plan(self, window: Sequence[int], roots: int = 0, expects: bool = False) -> Plan:
        """roots: prepared for beside the target; 0: nothing is proposed before the outcome is known; expects: the draft
        has an idea of it, as far as it goes when it proposes in this way."""
        known = 1 + checked(self._way) if expects else 0
        return Plan(
            window=tuple(window), length=self._length, vocab_size=self._target.vocab_size,
            predictor="draft" if roots else None, kappa=self._kappa, max_roots=roots, tap=False,
            late=1 if roots else None, beyond=tuple(window[-1:]) * known,
        )  # fmt: skip

    def _rolled(
        self, roots: int, beside: list[int] | None = None, expects: bool = False
    ) -> tuple[float, list[tuple[float, float]]]:
        """A step: glue, two passes over the branches of so many roots, a window after a miss. beside: what the target
        goes on with meanwhile; returns what that takes, ms, and the draft's work in that time ÷ what it usually takes
        alone, by what there was to do. expects: as in `_plan`."""
        trace, tokens = Trace(), self._tokens
        plan = self._plan([tokens[-1]] * self._length, roots, expects)
        ticket = self._started(trace, tokens, plan, ready=beside is not None)
        took, began, ended = 0.0, clock(), 0
        if beside is not None:
            ((_, took),) = steps(self._target, beside, self._length, 1)
            ended = clock()
        self._wait(
            lambda: sum(one.branches > 0 for one in ticket.passes) >= 2 or ticket.round.idle or ticket.reply.done()
        )
        self.names &= ticket.round.own > 0
        missed = next(t for t in range(self._target.vocab_size) if (0, t) not in ticket.round.cache)
        self._ended(ticket, missed)
        if beside is None:
            self._keep(ticket)
            self._glue += [one.ns / 1e6 for one in ticket.passes if not one.branches]
            self._joint += [one.ns / 1e6 for one in ticket.passes if one.branches and one.rows > 1]
        else:
            self.starts += [(span.start - ticket.began) / 1e6 for span in trace.spans if span.name in _WORK][:1]
        return took, self._compared(ticket, began, ended)

    def _slow(self, made: Sequence[Pass]) -> float:
        """What these passes took alone ÷ what such passes usually take."""
        alone, counted = self._passes(), _bare(made)
        usually = sum(alone.at(self._load(one)) for one in counted)
        return sum(one.ns for one in counted) / 1e6 / usually if counted else 1.0

    def _compared(self, ticket: Ticket, began: int, ended: int) -> list[tuple[float, float]]:
        """All that was done in that time, most of it at least: what there was to do, and how many times as long as
        usually alone it took."""
        alone, found = self._passes(), []
        for one in ticket.passes:
            load, alike = self._load(one), self._joint if one.branches else self._glue
            usually = alone.at(load)
            if one.rows > 1:
                load, usually = self._rows(), usual(alike) if alike else 0.0
            if usually and began < one.began + one.ns / 2 < ended:
                found.append((load, one.ns / 1e6 / usually))
        return found

    def _window(self, text: Sequence[int]) -> Window:
        """What the draft proposes after `text`, while the target waits."""
        trace = Trace()
        ticket = self._started(trace, text[:-1], self._plan(()), ready=True)
        asked = clock()
        window = self._ended(ticket, text[-1])
        waited = (clock() - asked) / 1e6
        self.exchanges.append(max(0.0, waited - sum(one.ns for one in ticket.passes) / 1e6))
        self._keep(ticket)
        return window

    def _started(self, trace: Trace, text: Sequence[int], plan: Plan, ready: bool = False) -> Ticket:
        """A step. ready: it begins once the draft has taken in the text, as in decoding."""
        self._draft.begin(self._sampling, trace, text[:-1])
        if ready:
            self._wait(lambda: any(span.name == "prefill" for span in trace.spans))
        ticket = self._draft.start(0, plan, text)
        if ticket is None:
            raise FailedError(str(self._draft.fault))
        return ticket

    def _ended(self, ticket: Ticket, token: int) -> Window:
        """The window after an outcome."""
        self._draft.resolve(ticket, Outcome(0, token))
        window = self._draft.collect(ticket)
        self._check()
        return window

    def _keep(self, ticket: Ticket) -> None:
        """What its passes took, alone."""
        for one in _bare(ticket.passes):
            self._alone.setdefault(self._load(one), []).append(one.ns / 1e6)

    def _load(self, one: Pass) -> float:
        """See `Setting.load`, to a tenth. The draft is not told of a length: all streams propose in its first pass."""
        setting = Setting("mirror", 1 + self._way[0], way=self._way)
        return round(setting.load(one.branches, one.fresh, one.second), 1)

    def _rows(self) -> float:
        """The same of a window's rows."""
        return round(carried(self._way, self._length + 1), 1)

    def _wait(self, until: Callable[[], bool]) -> None:
        ends = time.perf_counter() + _PATIENCE
        while not until():
            if time.perf_counter() > ends:
                self._draft.cancel()
                raise FailedError(f"two of its passes take more than {_PATIENCE:g} s")
            time.sleep(5e-4)

    def _check(self) -> None:
        if self._draft.fault is not None:
            raise FailedError(str(self._draft.fault))


def _bare(made: Sequence[Pass]) -> list[Pass]:
    """Those over branches, which have no rows of a window to carry."""
    return [one for one in made if one.branches and one.rows <= 1]
