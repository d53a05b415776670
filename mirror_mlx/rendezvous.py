"""Where the two devices meet: the draft's thread, and the two exchanges of a step.

The engine's thread posts facts (`start`, `roots`, `resolve`) and never waits for the draft while the target has work.
The draft's thread plays the round that follows from them. `collect` is the only wait, and it has a deadline. Whatever
goes wrong in the draft becomes a `Fault`; it never reaches the engine as an exception.
"""

import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import nullcontext

from mirror_mlx.draft.protocol import Draft
from mirror_mlx.jobs import Begin, Resolved, Start, Tapped, Ticket, Use, Wake
from mirror_mlx.messages import Fault, Outcome, Window
from mirror_mlx.ranking import Ranking
from mirror_mlx.rounds import Plan, Round
from mirror_mlx.sampling import Sampling
from mirror_mlx.trace import Trace, clock
from mirror_mlx.worker import FailedError, Work, Worker


class Rendezvous:
    """The engine's end. One request at a time; the thread starts with the first and lives until `close`."""

    def __init__(self, draft: Draft, *, timeout: float = 2.0, work: Work = nullcontext) -> None:
        self.fault: Fault | None = None
        self._timeout = timeout
        self._worker = Worker(draft, work)
        self._reader: ThreadPoolExecutor | None = None
        self._prefill = 0
        self._ticket: Ticket | None = None
        # An engine that is dropped without `close` must not leave its thread behind.
        self._finalizer = weakref.finalize(self, self._worker.stop)

    def begin(self, sampling: Sampling, trace: Trace, tokens: Sequence[int]) -> None:
        """A request begins: the draft's trunk becomes `tokens`, beside the target's prefill."""
        self.fault = self._worker.recover()
        self._prefill = len(tokens)
        if self.fault is None:
            self._worker.post(Begin(sampling, trace, tokens))

    def start(self, step: int, plan: Plan, tokens: Sequence[int]) -> Ticket | None:
        """A step begins: glue and the draft's own roots go ahead. None once the draft has failed.

        tokens  everything committed, pending included; later only appended to
        """
        self.fault = self.fault or self._worker.fault
        if self.fault is not None:
            return None
        ticket = self._ticket = Ticket(step, Round(plan), tokens, len(tokens))
        self._worker.post(Start(ticket))
        return ticket

    def use(self, streams: int, exact: bool, length: int | None = None, host: str = "") -> None:
        """From the next step on: see `mirror_mlx.draft.protocol.Streaming` and `Movable`. Nothing to a draft without
        streams, and to one with a single host. host: "": where it is."""
        self._worker.post(Use(streams, exact, length, host))

    def roots(self, ticket: Ticket, tap: Ranking) -> None:
        """The tap's ids go out: now if they are there, else as soon as they are."""
        if tap.ready:
            self._worker.post(Tapped(ticket, tap.read(), clock()))
            return
        if self._reader is None:
            self._reader = ThreadPoolExecutor(1, thread_name_prefix="mirror-tap")
        self._reader.submit(lambda: self._worker.post(Tapped(ticket, tap.read(), clock())))

    def resolve(self, ticket: Ticket, outcome: Outcome) -> None:
        """Verification has ended: the draft turns to this outcome alone."""
        ticket.outcome, ticket.roots, ticket.known = outcome, len(ticket.round.cache), clock() - ticket.began
        self._worker.post(Resolved(ticket))

    def collect(self, ticket: Ticket, patience: float | None = None) -> Window:
        """The next window. Empty, with `fault` set, if the draft fails or its deadline passes.

        patience  seconds to wait at most, where that is less than the deadline
        """
        assert ticket.outcome is not None
        # A finished window is taken at once, whatever the draft's thread is doing: it is complete before it counts
        # as finished, and nothing writes to it afterwards. (One that was finished since has another source.)
        cache, key = ticket.round.cache, ticket.outcome.key
        if cache.finished(key) and ticket.round.awaits_outcome:
            return cache.window(key, "hit")
        timeout = self._timeout * (1 + self._prefill / 256)
        timeout = timeout if patience is None or self._prefill else min(timeout, patience)
        self._prefill = 0
        try:
            return ticket.reply.result(timeout)
        except FutureTimeout:
            self.fault = Fault("late", f"no window within {timeout:.2g} s")
            self._worker.overdue = True
        except FailedError as failed:
            self.fault = failed.fault
        self.cancel()
        return Window()

    def cancel(self) -> None:
        """The request is over or abandoned: the draft stops what it is doing."""
        if self._ticket is not None:
            self._ticket.cancelled = True
            self._worker.post(Wake())
            self._ticket = None

    def close(self) -> None:
        """Stop the thread and close the draft. Idempotent; returns even if the draft hangs."""
        if self._reader is not None:
            self._reader.shutdown(cancel_futures=True)
            self._reader = None
        self._finalizer()
