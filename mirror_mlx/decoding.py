"""The loop: the target verifies a window while the draft prepares the next.

A token is emitted only after the target chose it. Caches are committed before it is emitted, so an abandoned generator
leaves them consistent. The draft is never waited for while the target has work.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import mlx.core as mx

from mirror_mlx.lookup import Proposer
from mirror_mlx.messages import HITS, Outcome, Window
from mirror_mlx.options import Options
from mirror_mlx.rendezvous import Rendezvous
from mirror_mlx.rounds import Plan
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.target import Target
from mirror_mlx.target.target import Progress
from mirror_mlx.trace import StepTrace, Trace, clock
from mirror_mlx.verify import shorten, verify
from mirror_mlx.worker import Ticket

_TRIAL = 32  # steps after which mode "auto" looks at what the draft has brought
_CLEAR = 256  # steps between returns of unused memory, as in mlx-lm
_WORTH = 0.15  # accepted proposals a window, below which it decodes plainly
_FIRST = 5  # tokens of the first window where lengths adapt


@dataclass(slots=True)
class Emitted:
    """One token, where it came from ("draft" or "target"), and its log-probabilities [V]."""

    token: int
    origin: str
    logprobs: mx.array


class Decoding:
    """One request: what its steps need to know, and which mode is left of the one asked for.

    proposer   what proposes windows where the draft has none: on a miss, or as there is no draft at all
    tokens     the prompt; what is decoded is appended
    limit      how many tokens to decode
    max_roots  outcomes to prepare for in a step
    stops      tokens after which nothing is decoded
    """

    def __init__(
        self,
        target: Target,
        draft: Rendezvous | None,
        options: Options,
        *,
        proposer: Proposer | None = None,
        tokens: list[int],
        limit: int,
        max_roots: int,
        stops: Collection[int],
        sampling: Sampling,
        trace: Trace,
    ) -> None:
        self.options = o = options
        self.mode = "mirror" if o.mode == "auto" else str(o.mode)
        self.reason = ""
        self._target, self._draft, self._eos, self._max_roots = target, draft, stops, max_roots
        self._proposer = proposer
        self._length = min(_FIRST, o.num_draft_tokens) if o.adaptive else o.num_draft_tokens
        self._opening: Ticket | None = None
        self._tokens, self._prompt, self._limit = tokens, len(tokens), limit
        self._sampling, self._trace = sampling, trace
        if self.mode != "ar" and self._draft is None:
            if proposer is None:
                self._step_down("there is no draft")
            else:
                self.mode = "sd"  # a proposal takes no time: there is nothing to do beside the target
        if self.mode != "ar" and self._target.window_refusal is not None:
            self._step_down(self._target.window_refusal)
        elif self._wants_tap and self._target.tap_refusal is not None:
            self.reason = f"draft predictor: {self._target.tap_refusal}"
        elif self._wants_tap and self._target.adapter_refusal is not None:
            self.reason = f"untrained tap: {self._target.adapter_refusal}"

    @property
    def _wants_tap(self) -> bool:
        return self.mode == "mirror" and self.options.predictor != "draft"

    def prefill(self, progress: Progress | None) -> None:
        """Both devices take in the prompt, all but its last token: that one is the first step's pending token."""
        context = self._tokens[:-1]
        if self._proposer is not None:
            self._proposer.begin(self._tokens)
        if self._draft is not None and self.mode != "ar":
            self._open(self._draft, context)
        with self._trace.span("target", "prefill", -1):
            self._target.prefill(context, Sampler(self._sampling), progress)

    def _open(self, draft: Rendezvous, context: list[int]) -> None:
        """The draft begins, and goes on to the first window, which follows the prompt whatever the target makes of it:
        a step before the first, whose outcome is the prompt's last token."""
        plan = replace(self._plan(Window(), ahead=1), predictor=None)
        waits = plan.fallback == "jit" and plan.length > 0 and len(context) > 0
        draft.begin(self._sampling, self._trace, context[:-1] if waits else context)
        if waits and (ticket := draft.start(-1, plan, context)):
            draft.resolve(ticket, Outcome(0, self._tokens[-1]))
            self._opening = ticket

    def steps(self) -> Iterator[Emitted]:
        """The loop."""
        target, draft, tokens, window, step = self._target, self._draft, self._tokens, self._opened(), 0
        while self._left and self.mode != "ar":
            began = clock()
            ticket = self._start(step, window)
            with self._trace.span("target", "verify", step):
                tap = target.begin(tokens[-1], window.tokens, tokens, tap=self._wants_tap)
                if draft and ticket and tap:
                    draft.roots(ticket, tap)
                chosen = target.finish()
            outcome = verify(window.tokens, chosen)
            outcome = shorten(outcome, window.tokens, self._eos, self._left)
            if draft and ticket:
                draft.resolve(ticket, outcome)
            if self._proposer:
                self._tell(self._proposer, window, outcome)
            target.commit(outcome)
            tokens += [*window.tokens[: outcome.accepted], outcome.token]
            note = self._note(step, clock() - began, window, outcome, ticket)
            yield from self._emitted(window, outcome)
            window, step = self._collect(ticket, outcome, note), step + 1
        yield from self._plain(step)

    def _plain(self, step: int) -> Iterator[Emitted]:
        """What is left of the request, without the draft."""
        began = clock()
        for token, logprobs in self._target.plain(self._tokens, self._left):
            self._trace.add("target", "verify", step, began, clock())
            self._tokens.append(token)
            self._note(step, clock() - began, Window(), Outcome(0, token), None)
            yield Emitted(token, "target", logprobs)
            began, step = clock(), step + 1

    @property
    def _left(self) -> int:
        return self._prompt + self._limit - len(self._tokens)

    def _start(self, step: int, window: Window) -> Ticket | None:
        if self._draft is None or self.mode == "ar":
            return None
        ticket = self._draft.start(step, self._plan(window), self._tokens)
        if self._draft.fault is not None:
            self._step_down(str(self._draft.fault))
        return ticket

    def _plan(self, window: Window, ahead: int = 2) -> Plan:
        """What the draft may do in this step. At least one token is emitted by it, one by the next: `ahead`."""
        o = self.options
        return Plan(
            window=window.tokens,
            length=max(0, min(self._length, self._left - ahead)),
            vocab_size=self._target.vocab_size,
            predictor=None if self.mode == "sd" else o.predictor,
            fallback="jit" if self.mode == "sd" or o.fallback == "jit" else "empty",
            kappa=o.kappa,
            max_roots=self._max_roots,
            tap=self._target.tap_refusal is None,
        )

    def _emitted(self, window: Window, outcome: Outcome) -> Iterator[Emitted]:
        """An accepted proposal is the draft's; so is the token a shortened outcome ends with."""
        for row, token in enumerate([*window.tokens[: outcome.accepted], outcome.token]):
            proposed = row < len(window.tokens) and window.tokens[row] == token
            yield Emitted(token, "draft" if proposed else "target", self._target.logprobs(row))

    def _note(self, step: int, busy: int, window: Window, outcome: Outcome, ticket: Ticket | None) -> StepTrace:
        note = StepTrace(step, window, outcome, roots=ticket.roots if ticket else 0, busy=busy)
        self._trace.steps.append(note)
        if self.options.adaptive and window.tokens:
            grown = self._length + (2 if outcome.accepted == len(window.tokens) else -1)
            self._length = max(1, min(grown, self.options.num_draft_tokens))
        if step % _CLEAR == _CLEAR - 1:
            mx.clear_cache()
        if self.options.mode == "auto" and self.mode != "ar" and step + 1 == _TRIAL:
            gained = sum(s.outcome.accepted for s in self._trace.steps)
            tried = sum(self._draft is not None or bool(s.window.tokens) for s in self._trace.steps)
            if gained < _WORTH * tried:
                self._step_down(f"only {gained} of the draft's tokens held in {_TRIAL} steps")
        return note

    def _opened(self) -> Window:
        """The first window."""
        began = clock()
        window = self._window(self._opening)
        self._trace.add("target", "collect", -1, began, clock())
        return window

    def _collect(self, ticket: Ticket | None, outcome: Outcome, note: StepTrace) -> Window:
        """The next window."""
        if outcome.token in self._eos:
            return Window()
        began = clock()
        window = self._window(ticket)
        note.waited, note.next = clock() - began, window.source
        if ticket is not None and window.source in HITS:
            note.foreseen = ticket.round.foreseen(outcome.key)
        note.busy += note.waited
        self._trace.add("target", "collect", note.step, began, began + note.waited)
        return window

    def _window(self, ticket: Ticket | None) -> Window:
        """What the draft has for this ticket, as long as it may be; empty once there is no draft to ask."""
        room = self._target.room()
        length = self._left - 1 if room is None else min(self._left - 1, room)
        if self.mode == "ar" or length < 1:
            return Window()
        window = Window() if self._draft is None or ticket is None else self._draft.collect(ticket)
        if not window.tokens and self._proposer is not None:
            found = self._proposer.propose(min(self._length, length))
            window = Window(tuple(found), "lookup" if found else "empty")
        if self._draft is not None and self._draft.fault is not None:
            self._step_down(str(self._draft.fault))
        return Window(window.tokens[:length], window.source)

    def _tell(self, proposer: Proposer, window: Window, outcome: Outcome) -> None:
        if proposer.wants:
            proposer.learn([self._tokens[-1], *window.tokens], self._target.likeliest(proposer.wants))
        proposer.extend([*window.tokens[: outcome.accepted], outcome.token])

    def _step_down(self, reason: str) -> None:
        self.mode, self.reason = "ar", reason
        self._trace.fault = self._draft.fault if self._draft else None
