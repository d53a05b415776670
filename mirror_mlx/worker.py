"""The draft's thread: typed jobs in, a window out for each step, errors as facts.

It plays one `Round` at a time: what the jobs say goes into the round, what the round decides is done with the draft.
"""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from numbers import Integral
from typing import Any

from mirror_mlx import threads
from mirror_mlx.draft.protocol import Confident, Draft, Guessing, Lawful, Movable, joining, streaming, width_of
from mirror_mlx.jobs import Begin, Close, Job, Pass, Resolved, Start, Tapped, Ticket, Use
from mirror_mlx.messages import Candidates, Fault, Key
from mirror_mlx.rounds import Advance, Expand, Glue, Settle, Wait
from mirror_mlx.sampling import Sampling
from mirror_mlx.trace import Trace, clock
from mirror_mlx.verify import common

_IDLE = 1.0  # seconds between looks at whether anybody is still there

Work = Callable[[], AbstractContextManager[Any]]
"""Made once inside the draft's thread: a context (a stream, a core) in which all its work is done."""


class FailedError(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault))
        self.fault = fault


class _Cancelled(BaseException):  # not an Exception: a draft's own handlers must not swallow these two
    pass


class _Closed(BaseException):
    pass


class Worker:
    """The draft's thread. Holds no reference to the `Rendezvous`, so that dropping that one ends this one."""

    def __init__(self, draft: Draft, work: Work) -> None:
        self._draft = draft
        self._work = work
        self._inbox: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._trace, self._sampling = Trace(), Sampling()
        self._trunk: list[int] = []
        self._free_since = 0
        self._dirty = False
        self._stopped = False
        self.fault: Fault | None = None  # of this request
        self.overdue = False  # a deadline passed, and the draft's call has not come back since

    # The engine's side.

    def post(self, job: Job) -> None:
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(target=self._run, name="mirror-draft", daemon=True)
            self._thread.start()
        self._inbox.put(job)

    def recover(self) -> Fault | None:
        """None if a request can begin, else what still stands in the way."""
        if self._stopped or (self._thread is not None and not self._thread.is_alive()):
            return Fault("died", "its thread has ended")
        self.fault = None
        return Fault("late", "still busy with an earlier request") if self.overdue else None

    def stop(self) -> None:
        """End the thread. A draft that hangs in Python is interrupted; one that hangs in C is left to its fate."""
        if self._stopped:
            return
        self._stopped = True
        thread = self._thread
        if thread is None:
            self._draft.close()
            return
        self._inbox.put(Close())
        if not threads.join(thread, 1.0):
            threads.interrupt(thread, _Closed)
            threads.join(thread, 2.0)

    # The draft's side.

    def _run(self) -> None:
        try:
            with self._work():
                while True:
                    self.overdue = False
                    self._serve(self._wait())
        except _Closed:
            pass
        except BaseException as error:  # the thread's own context; a draft's errors are caught where they are raised
            self.fault = Fault("died", f"{type(error).__name__}: {error}")
        finally:
            self._draft.close()

    def _wait(self) -> Job:
        while True:
            try:
                return self._inbox.get(timeout=_IDLE)
            except queue.Empty:
                if self._stopped:
                    raise _Closed from None

    def _serve(self, job: Job) -> None:
        if isinstance(job, Close):
            raise _Closed
        try:
            if isinstance(job, Begin):
                self._begin(job)
            elif isinstance(job, Use):
                self._use(job)
            elif isinstance(job, Start) and self.fault is None:
                self._play(job.ticket)
        except _NonsenseError as error:
            self.fault = Fault("nonsense", str(error))
        except (_Cancelled, _Closed):
            raise
        except BaseException as error:  # a library's SystemExit too
            self.fault = Fault("died", f"{type(error).__name__}: {error}")
        self._dirty |= self.fault is not None
        if isinstance(job, Start) and self.fault is not None and not job.ticket.reply.done():
            job.ticket.reply.set_exception(FailedError(self.fault))

    def _use(self, job: Use) -> None:
        draft = self._draft
        if job.host and isinstance(draft, Movable) and draft.place != job.host:
            draft.move(job.host)
            self._dirty = True  # until the text is there too
            draft.begin(self._sampling)
            draft.rewind(0)
            if self._trunk:
                draft.prefill(self._trunk)
            self._dirty = False
        if (found := streaming(draft)) is not None:
            found.use(job.streams, exact=job.exact, length=job.length)

    def _begin(self, job: Begin) -> None:
        """Make the trunk this request's prompt, keeping what the two share."""
        self._trace, self._sampling = job.trace, job.sampling
        with self._trace.span("draft", "prefill", -1):
            self._draft.begin(job.sampling)
            wanted = list(job.tokens)
            kept = 0 if self._dirty else common(self._trunk, wanted)
            if self._dirty or kept < len(self._trunk):
                self._draft.rewind(kept)
            self._dirty = False
            if kept < len(wanted):
                self._draft.prefill(wanted[kept:])
            self._trunk = wanted

    def _play(self, ticket: Ticket) -> None:
        """One step: facts from the inbox into the round, its actions onto the draft."""
        round_, span, step = ticket.round, self._trace.span, ticket.step
        draft, plan = self._draft, ticket.round.plan
        rows = [ticket.tokens[ticket.count - 1], *plan.window]
        width, joint = width_of(draft), joining(draft, len(rows))
        self._free_since = began = clock()
        pending = 0  # of the trunk's rows
        while True:
            try:
                self._take_facts(ticket, block=False)
                action = round_.next((clock() - ticket.began) / 1e6, width, joint is not None)
                if isinstance(action, Wait):
                    self._take_facts(ticket, block=True)
                    began = clock()
                    continue
            except _Cancelled:
                draft.commit(0)
                return
            if isinstance(action, Glue) and action.root is not None and joint is not None:
                with span("draft", "pass", step):
                    found, proposed = joint.join(rows, action.candidates, action.root, action.after)
                named = _checked_candidates(found, plan.window)
                round_.joined(named, action.root, _checked_proposals(proposed), *_besides(draft))
                ticket.passes.append(Pass(1, int(not action.after), 0, len(rows), began, clock() - began, False))
            elif isinstance(action, Glue):
                late = not round_.awaits_outcome
                with span("draft", "glue", step):
                    found = draft.glue(rows[: action.rows], action.candidates)
                round_.glued(_checked_candidates(found, plan.window))
                if action.candidates:
                    ticket.passes.append(Pass(0, 0, 0, action.rows, began, clock() - began, late))
                pending = 0 if action.candidates else action.rows
            elif isinstance(action, Expand):
                draft.expand(action.roots)
                round_.expanded(action.roots)
            elif isinstance(action, Advance):
                keys = action.keys
                made, late = [round_.cache.passes(key) for key in keys], not round_.awaits_outcome
                with span("draft", "pass", step):
                    proposed = draft.advance(keys)
                round_.advanced(keys, _checked_proposals(proposed), *_besides(draft))
                took = clock() - began
                ticket.passes.append(Pass(len(keys), made.count(0), made.count(1), pending, began, took, late))
                pending = 0
            else:
                self._settle(ticket, action, rows)
                return
            self._free_since = clock()
            if not isinstance(action, Expand):  # which is part of the pass that follows
                began = self._free_since

    def _settle(self, ticket: Ticket, action: Settle, rows: list[int]) -> None:
        ticket.reply.set_result(action.window)  # the engine goes on; the trunk is tidied beside the next verification
        with self._trace.span("draft", "commit", ticket.step):
            self._draft.commit(action.accepted + 1)
        ticket.round.learn()
        self._trunk += rows[: action.accepted + 1]

    def _take_facts(self, ticket: Ticket, *, block: bool) -> None:
        """Hand the round what has arrived for it. What comes after its outcome is the next step's, and is left."""
        if ticket.cancelled or self._stopped:
            raise _Cancelled
        while ticket.round.awaits_outcome:
            try:
                job = self._wait() if block else self._inbox.get_nowait()
            except queue.Empty:
                return
            block = False
            if isinstance(job, Close):
                raise _Closed
            if ticket.cancelled:
                raise _Cancelled
            if isinstance(job, Tapped) and job.ticket is ticket:
                self._trace.taps.append(job.posted)
                self._trace.exchanges.append(clock() - max(job.posted, self._free_since))
                ticket.round.tapped(job.candidates)
            elif isinstance(job, Resolved) and job.ticket is ticket and ticket.outcome is not None:
                ticket.round.resolved(ticket.outcome)


def _besides(draft: Draft) -> tuple[Mapping[Key, Any], Mapping[Key, Any], Mapping[Key, Any]]:
    """What it says of its last pass: how sure it is, what it drew from, what it takes to follow."""
    sure = draft.confidences if isinstance(draft, Confident) else {}
    laws = draft.laws if isinstance(draft, Lawful) else {}
    return sure, laws, draft.guesses if isinstance(draft, Guessing) else {}


class _NonsenseError(Exception):
    pass


def _checked_candidates(found: Any, window: Sequence[int]) -> Candidates | None:
    if found is None:
        return None
    if isinstance(found, Candidates):
        rows = len(window) + 1
        if len(found.tokens) == len(found.probs) == len(found.own) + 1 == rows:
            return found
    raise _NonsenseError(f"candidates for {len(window) + 1} rows were {str(found)[:80]}")


def _checked_proposals(proposed: Any) -> Mapping[Key, Sequence[int]]:
    if not isinstance(proposed, Mapping):
        raise _NonsenseError(f"proposals were {str(proposed)[:80]}")
    for tokens in proposed.values():
        if not isinstance(tokens, Sequence) or not all(isinstance(t, Integral) for t in tokens):
            raise _NonsenseError(f"proposals were {str(tokens)[:80]}")
    return proposed
