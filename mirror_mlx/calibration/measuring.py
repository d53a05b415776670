"""A few seconds with target and draft: what a verification takes by rows, where the tap is, what a draft's pass takes
alone and beside a busy target, and whether its proposals hold (ALGORITHMS 6.2).

Everything is done by the calls that decoding makes, on the threads that it makes them on.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from mirror_mlx.messages import Outcome
from mirror_mlx.rendezvous import Rendezvous
from mirror_mlx.rounds import Plan
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.target import Target
from mirror_mlx.trace import Trace
from mirror_mlx.tuning.costs import Costs, DraftCosts, Way
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.verify import verify
from mirror_mlx.worker import Ticket

_PLAIN = 24  # tokens decoded plainly
_REPEATS = 3
_WINDOWS = (1, 3, 7, 15)  # proposals verified
_PATIENCE = 2.0  # seconds for two of the draft's passes; one that takes longer is of no use, and need not be known
_BUDGET = 1.0  # seconds for each way in which the draft proposes, after which no more is begun
_POSITIONS = 4  # where the draft's proposals are compared with the target's text

Report = Callable[[float], None]
"""Told which share is done."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to find out.

    length, roots, kappa  the longest window, the most roots of a step, and of a row
    ways                  in which the draft proposes
    exits                 of the tap; none: there is no tap
    width                 how many branches one of the draft's passes takes, by way
    """

    length: int = 15
    roots: int = 64
    kappa: int = 8
    ways: Sequence[Way] = ((0, False),)
    exits: Sequence[int] = ()
    width: Callable[[], int | None] = lambda: None


@dataclass(frozen=True, slots=True)
class Found:
    """What was found.

    costs    of both devices
    holds    the share of proposals that held, by way
    names    whether the draft names roots of its own
    refusal  why the draft has no costs
    """

    costs: Costs
    holds: Mapping[Way, float] = field(default_factory=dict)
    names: bool = True
    refusal: str = ""

    def as_dict(self) -> dict[str, Any]:
        holds = [[streams, exact, share] for (streams, exact), share in self.holds.items()]
        return {"costs": self.costs.as_dict(), "holds": holds, "names": self.names, "refusal": self.refusal}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "Found":
        """Raises KeyError, TypeError or ValueError for what `as_dict` did not write."""
        holds = {(int(streams), bool(exact)): float(share) for streams, exact, share in given["holds"]}
        return cls(Costs.from_dict(given["costs"]), holds, bool(given["names"]), str(given["refusal"]))


def measure(
    target: Target,
    draft: Rendezvous | None,
    text: Sequence[int],
    wanted: Wanted,
    report: Report = lambda share: None,
) -> Found:
    """text: some tokens to begin with, which the target goes on with. Leaves both without a text of theirs."""
    told = _Told(report, 1 + len(_WINDOWS) + len(wanted.exits) + (2 * len(wanted.ways) if draft else 0))
    tokens = list(text)
    target.prefill(tokens[:-1], Sampler(Sampling()))
    plain = _plain(target, tokens)
    told.done()
    said = list(tokens)
    rows = _verifications(target, tokens, wanted, told)
    tap, exits = _taps(target, tokens, wanted, rows, told)
    costs = Costs(plain, Curve.of(rows), tap, exits)
    if draft is None:
        return Found(costs)
    drafts: dict[Way, DraftCosts] = {}
    holds: dict[Way, float] = {}
    names, slower, exchanges = True, 1.0, [0.0]
    for way in wanted.ways:
        one = _Drafted(draft, target, tokens, wanted, way)
        try:
            drafts[way], names = one.costs(), one.names
            slower = max(slower, one.target_slower(Curve.of(rows)))
            exchanges += one.exchanges
            told.done()
            holds[way] = one.holds(said, len(text))
            told.done()
        except _FailedError as failed:
            return Found(replace(costs, drafts=drafts), holds, names, str(failed))
    return Found(replace(costs, slower=slower, exchange=median(exchanges), drafts=drafts), holds, names)


class _FailedError(Exception):
    """The draft died, or takes too long."""


class _Told:
    def __init__(self, report: Report, parts: int) -> None:
        self._report, self._parts, self._done = report, parts, 0

    def done(self) -> None:
        self._done += 1
        self._report(min(1.0, self._done / self._parts))


def _plain(target: Target, tokens: list[int]) -> float:
    """A token, ms. `tokens` grows."""
    times, before = [], time.perf_counter()
    for token, _ in target.plain(tokens, _PLAIN):
        tokens.append(token)
        times.append(time.perf_counter() - before)
        before = time.perf_counter()
    return 1e3 * median(times[2:])


def _verifications(target: Target, tokens: list[int], wanted: Wanted, told: _Told) -> dict[int, float]:
    found = {1: _verified(target, tokens, 0)}
    for length in _WINDOWS:
        if length < wanted.length or length == _WINDOWS[0]:
            found[length + 1] = _verified(target, tokens, length)
        told.done()
    if wanted.length + 1 not in found:
        found[wanted.length + 1] = _verified(target, tokens, wanted.length)
    return found


def _verified(target: Target, tokens: list[int], length: int, tap: bool = False) -> float:
    return median(list(_steps(target, tokens, length, _REPEATS + 1, tap))[1:])


def _steps(target: Target, tokens: list[int], length: int, count: int, tap: bool = False) -> Iterator[float]:
    """Steps with windows of nonsense, ms each."""
    for _ in range(count):
        window = tokens[-length:] if length else []
        window = [window[i % len(window)] for i in range(length)] if window else []
        began = time.perf_counter()
        seen = target.begin(tokens[-1], window, tokens, tap=tap)
        if seen is not None:
            seen.read()
        outcome = verify(window, target.finish())
        target.commit(outcome)
        yield 1e3 * (time.perf_counter() - began)
        tokens += [*window[: outcome.accepted], outcome.token]


def _taps(
    target: Target, tokens: list[int], wanted: Wanted, rows: Mapping[int, float], told: _Told
) -> tuple[float, dict[int, float]]:
    """What the tap costs, ms, and at which share of a verification it has spoken."""
    if not wanted.exits:
        return 0.0, {}
    chosen, shares, costs = target.exit_layer, {}, []
    length = min(7, wanted.length)
    bare = Curve.of(rows).at(length + 1)
    for layer in wanted.exits:
        target.exit_layer = layer
        ends = []
        for _ in range(_REPEATS):
            window = [tokens[-1]] * length
            began = time.perf_counter()
            seen = target.begin(tokens[-1], window, tokens, tap=True)
            if seen is not None:
                seen.read()
            ends.append(1e3 * (time.perf_counter() - began))
            outcome = verify(window, target.finish())
            target.commit(outcome)
            costs.append(1e3 * (time.perf_counter() - began) - bare)
            tokens += [*window[: outcome.accepted], outcome.token]
        shares[layer] = min(1.0, median(ends) / bare)
        told.done()
    target.exit_layer = chosen
    return max(0.0, median(costs)), shares


class _Drafted:
    """The draft, proposing in one way."""

    def __init__(self, draft: Rendezvous, target: Target, tokens: Sequence[int], wanted: Wanted, way: Way) -> None:
        self._draft, self._target, self._tokens, self._wanted, self._way = draft, target, list(tokens), wanted, way
        self._ends = time.perf_counter() + _BUDGET
        self.exchanges: list[float] = []
        self.names = True
        self._beside: list[float] = []
        self._one: dict[int, list[float]] = {}
        self._glue: list[float] = []

    def costs(self) -> DraftCosts:
        """What a pass takes, by branches; alone and beside the target."""
        self._draft.use(*self._way)
        self._rolled(self._wanted.roots)
        if self._in_time:  # that has warmed it up
            self._one, self._glue = {}, []
            for roots in sorted({self._wanted.roots, max(1, self._wanted.roots // 4)}):
                self._rolled(roots)
        alone = {branches: median(times) for branches, times in self._one.items()}
        glue = median(self._glue) if self._glue else min(alone.values())
        self._one = {}
        if self._in_time:
            self._rolled(self._wanted.roots, busy=True)
        curve = Curve.of(alone)
        factors = [ms / max(curve.at(branches), 1e-9) for branches, times in self._one.items() for ms in times]
        return DraftCosts(
            Curve.of({self._length + 1: glue}), curve, self._tokens_each(), self._wanted.width(),
            max(1.0, median(factors)) if factors else 1.0,
        )  # fmt: skip

    def target_slower(self, verify: Curve) -> float:
        """What a verification takes beside the draft ÷ alone."""
        return max(1.0, median(self._beside) / verify.at(self._length + 1)) if self._beside else 1.0

    @property
    def _in_time(self) -> bool:
        """Whether there is time for more of the same: a slow draft need not be known as well."""
        return time.perf_counter() < self._ends

    @property
    def _length(self) -> int:
        return min(7, self._wanted.length)

    def _tokens_each(self) -> float:
        streams, exact = self._way
        return 1.0 if exact else 1.0 + streams

    def _plan(self, roots: int, window: Sequence[int]) -> Plan:
        return Plan(
            window=tuple(window), length=self._length, vocab_size=self._target.vocab_size, predictor="draft",
            kappa=self._wanted.kappa, max_roots=roots, tap=False, late=1,
        )  # fmt: skip

    def _rolled(self, roots: int, busy: bool = False) -> None:
        """A step: glue, two passes over the branches of so many roots, a window after a miss."""
        trace, tokens = Trace(), self._tokens
        self._draft.begin(Sampling(), trace, tokens[:-1])
        window = [tokens[-1]] * self._length
        ticket = self._started(self._plan(roots, window), tokens)
        if busy:
            self._target.prefill(tokens[:-1], Sampler(Sampling()))
            self._beside += list(_steps(self._target, list(tokens), self._length, 2))[1:]
        self._wait(ticket, 2)
        self.names &= ticket.round.own > 0
        missed = next(t for t in range(self._target.vocab_size) if (0, t) not in ticket.round.cache)
        self._draft.resolve(ticket, Outcome(0, missed))
        self._collected(ticket)
        for branches, ns in ticket.passes:
            self._one.setdefault(branches, []).append(ns / 1e6)
        self._glue += [(span.end - span.start) / 1e6 for span in trace.spans if span.name == "glue"]
        self.exchanges += [ns / 1e6 for ns in trace.exchanges]

    def holds(self, said: Sequence[int], first: int) -> float:
        """The share of proposals that are what the target said: `said` from `first` on."""
        held = tried = 0
        last = len(said) - self._length - 1
        for number in range(_POSITIONS):
            at = first + (last - first) * number // _POSITIONS
            if at < 2 or at >= len(said):
                continue
            context = list(said[:at])
            self._draft.begin(Sampling(), Trace(), context[:-1])
            if tried and not self._in_time:
                break
            ticket = self._started(replace(self._plan(1, ()), predictor=None, late=None), context)
            self._draft.resolve(ticket, Outcome(0, said[at]))
            window = self._collected(ticket)
            for proposed, real in zip(window, said[at + 1 :], strict=False):
                tried += 1
                if proposed != real:
                    break
                held += 1
        return (held + 0.5) / (tried + 1)

    def _started(self, plan: Plan, tokens: Sequence[int]) -> Ticket:
        ticket = self._draft.start(0, plan, tokens)
        if ticket is None:
            raise _FailedError(str(self._draft.fault))
        return ticket

    def _wait(self, ticket: Ticket, count: int) -> None:
        """Until the draft has made so many passes, or needs no more."""
        ends = time.perf_counter() + _PATIENCE
        while len(ticket.passes) < count and not ticket.round.idle and not ticket.reply.done():
            if time.perf_counter() > ends:
                self._draft.cancel()
                raise _FailedError(f"two of its passes take more than {_PATIENCE:g} s")
            time.sleep(5e-4)

    def _collected(self, ticket: Ticket) -> tuple[int, ...]:
        window = self._draft.collect(ticket)
        if self._draft.fault is not None:
            raise _FailedError(str(self._draft.fault))
        return window.tokens
