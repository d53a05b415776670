"""What the draft takes when it proposes in one way, alone and beside a busy target; and whether its proposals hold."""

import time
from collections.abc import Callable, Sequence
from statistics import median

from mirror_mlx.ahead import Ahead
from mirror_mlx.calibration.verifying import steps
from mirror_mlx.messages import Outcome
from mirror_mlx.rendezvous import Rendezvous
from mirror_mlx.rounds import Plan
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.target import Target
from mirror_mlx.trace import Trace
from mirror_mlx.tuning.costs import DraftCosts, Way
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.worker import Ticket

_PATIENCE = 2.0  # seconds for two of the draft's passes; one that takes longer is of no use, and need not be known
_BUDGET = 1.0  # seconds for each way in which the draft proposes, after which no more is begun
_BESIDE = 3  # verifications measured beside it
_POSITIONS = 4  # where the draft's proposals are compared with the target's text


class FailedError(Exception):
    """The draft died, or takes too long."""


class Drafted:
    """The draft, proposing in one way.

    tokens  some text, which stays as it is
    length  of windows; roots, kappa: the most of a step, and of a row

    exchanges  hand-overs between the threads, ms
    names      whether the draft has named roots of its own
    """

    def __init__(
        self, draft: Rendezvous, target: Target, tokens: Sequence[int], way: Way, *, length: int, roots: int, kappa: int
    ) -> None:
        self._draft, self._target, self._tokens, self._way = draft, target, list(tokens), way
        self._length, self._roots, self._kappa = length, roots, kappa
        self._ends = time.perf_counter() + _BUDGET
        self.exchanges: list[float] = []
        self.names = True
        self._beside: list[float] = []
        self._one: dict[int, list[float]] = {}
        self._glue: list[float] = []

    def costs(self, width: Callable[[], int | None]) -> DraftCosts:
        """What a pass takes, by branches; alone and beside the target. width: how many it takes; None: all. Raises
        FailedError, as `holds` does."""
        self._draft.use(*self._way)
        self._rolled(self._roots)
        if self._in_time:  # that has warmed it up
            self._one, self._glue = {}, []
            for roots in sorted({self._roots, max(1, self._roots // 4)}):
                self._rolled(roots)
        alone = {branches: median(times) for branches, times in self._one.items()}
        glue = median(self._glue) if self._glue else min(alone.values())
        self._one = {}
        if self._in_time:
            text = list(self._tokens)
            self._target.prefill(text[:-1], Sampler(Sampling()))
            list(steps(self._target, text, self._length, 1))  # which has the end of the prompt to do as well
            for _ in range(_BESIDE):
                self._rolled(self._roots, beside=text)
        curve = Curve.of(alone)
        factors = [ms / max(curve.at(branches), 1e-9) for branches, times in self._one.items() for ms in times]
        return DraftCosts(
            Curve.of({self._length + 1: glue}), curve, self._tokens_each(), width(),
            max(1.0, median(factors)) if factors else 1.0,
        )  # fmt: skip

    def target_slower(self, verify: Curve) -> float:
        """What a verification takes beside the draft ÷ alone."""
        return max(1.0, median(self._beside) / verify.at(self._length + 1)) if self._beside else 1.0

    def holds(self, said: Sequence[int], first: int) -> float:
        """The share of proposals that are what the target said: `said` from `first` on."""
        held = tried = 0
        last = len(said) - self._length - 1
        for number in range(_POSITIONS):
            at = first + (last - first) * number // _POSITIONS
            if at < 2 or at >= len(said):
                continue
            if tried and not self._in_time:
                break
            ahead = Ahead(self._draft, None, Sampling(), Trace())
            ahead.open(said[: at + 1], self._plan(()))
            window = ahead.take(said[: at + 1])
            self._check()
            for proposed, real in zip(window.tokens if window else (), said[at + 1 :], strict=False):
                tried += 1
                if proposed != real:
                    break
                held += 1
        return (held + 0.5) / (tried + 1)

    @property
    def _in_time(self) -> bool:
        """Whether there is time for more of the same: a slow draft need not be known as well."""
        return time.perf_counter() < self._ends

    def _tokens_each(self) -> float:
        streams, exact = self._way
        return 1.0 if exact else 1.0 + streams

    def _plan(self, window: Sequence[int], roots: int = 0) -> Plan:
        """roots: prepared for beside the target; 0: nothing is proposed before the outcome is known."""
        return Plan(
            window=tuple(window), length=self._length, vocab_size=self._target.vocab_size,
            predictor="draft" if roots else None, kappa=self._kappa, max_roots=roots, tap=False,
            late=1 if roots else None,
        )  # fmt: skip

    def _rolled(self, roots: int, beside: list[int] | None = None) -> None:
        """A step: glue, two passes over the branches of so many roots, a window after a miss. beside: what the target
        goes on with meanwhile."""
        trace, tokens = Trace(), self._tokens
        self._draft.begin(Sampling(), trace, tokens[:-1])
        ticket = self._draft.start(0, self._plan([tokens[-1]] * self._length, roots), tokens)
        if ticket is None:
            raise FailedError(str(self._draft.fault))
        if beside is not None:
            self._beside += [whole for _, whole in steps(self._target, beside, self._length, 1)]
        self._wait(ticket, 2)
        self.names &= ticket.round.own > 0
        missed = next(t for t in range(self._target.vocab_size) if (0, t) not in ticket.round.cache)
        self._draft.resolve(ticket, Outcome(0, missed))
        self._draft.collect(ticket)
        self._check()
        for branches, ns in ticket.passes:
            self._one.setdefault(branches, []).append(ns / 1e6)
        self._glue += [(span.end - span.start) / 1e6 for span in trace.spans if span.name == "glue"]
        self.exchanges += [ns / 1e6 for ns in trace.exchanges]

    def _wait(self, ticket: Ticket, count: int) -> None:
        """Until the draft has made so many passes, or needs no more."""
        ends = time.perf_counter() + _PATIENCE
        while len(ticket.passes) < count and not ticket.round.idle and not ticket.reply.done():
            if time.perf_counter() > ends:
                self._draft.cancel()
                raise FailedError(f"two of its passes take more than {_PATIENCE:g} s")
            time.sleep(5e-4)

    def _check(self) -> None:
        if self._draft.fault is not None:
            raise FailedError(str(self._draft.fault))
