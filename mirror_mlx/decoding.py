"""The loop: the target verifies a window while the draft prepares the next.

A token is emitted only after the target chose it. Caches are committed before it is emitted, so an abandoned generator
leaves them consistent. The draft is never waited for while the target has work.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import dataclass, replace

import mlx.core as mx

from mirror_mlx.ahead import Ahead, Offers
from mirror_mlx.briefing import Briefing
from mirror_mlx.jobs import Ticket
from mirror_mlx.lookup import Proposer
from mirror_mlx.messages import HITS, Outcome, Window
from mirror_mlx.options import Options
from mirror_mlx.pooling import Pooling
from mirror_mlx.reader import Reader
from mirror_mlx.rendezvous import Rendezvous
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.target import Target
from mirror_mlx.target.target import Progress
from mirror_mlx.trace import StepTrace, Trace, clock
from mirror_mlx.tuning.due import Timetable
from mirror_mlx.tuning.fanout import Fan
from mirror_mlx.tuning.policy import Ask, Policy, Probed, Stepped
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.tally import Plained, Tally
from mirror_mlx.verify import shorten, verify

_CLEAR = 256  # steps between returns of unused memory, as in mlx-lm, the first of a request included


@dataclass(slots=True)
class Emitted:
    """One token, where it came from ("draft" or "target"), and its log-probabilities [V]."""

    token: int
    origin: str
    logprobs: mx.array


class Decoding:
    """One request: what its steps need to know.

    policy    what says how each of them is done
    fan       what says how many of the draft's own outcomes are prepared for at each row
    pooling   by exit layer, what says how much the draft counts beside the tap
    times     what says when an outcome is due, and what passes take; None: every pass is worth beginning
    proposer  what proposes windows where the draft has none: on a miss, or as there is no draft at all
    tokens    the prompt; what is decoded is appended
    limit     how many tokens to decode
    stops     tokens after which nothing is decoded
    """

    def __init__(
        self,
        target: Target,
        draft: Rendezvous | None,
        options: Options,
        policy: Policy,
        *,
        fan: Fan,
        pooling: Mapping[int, Pooling],
        times: Timetable | None,
        proposer: Proposer | None = None,
        tokens: list[int],
        limit: int,
        stops: Collection[int],
        sampling: Sampling,
        trace: Trace,
    ) -> None:
        self.options, self.reason = options, ""
        self._policy, self._target, self._draft, self._proposer = policy, target, draft, proposer
        self._briefing = Briefing(target, options, fan=fan, pooling=pooling, times=times, stops=stops)
        self._tokens, self._prompt, self._limit, self._eos = tokens, len(tokens), limit, stops
        self._sampling, self._trace = sampling, trace
        self._ahead = Ahead(draft, proposer, sampling, trace)
        self._offers = Offers(proposer) if draft is not None and proposer is not None else None
        self._fact: tuple[int, Stepped] | None = None  # when the last step of speculation began, and what it was
        self._tuned = Setting()  # what target and draft were told last
        self._tally = Tally()  # of plain decoding since it was last accounted for
        self._stretch = 0  # the text's length at which a stretch of it ends
        self._thought = 0  # ns of it in which the policy has thought
        self._left_out = True  # whether the draft does not know the text so far
        self._reader = Reader[Emitted]()
        self._patient = 0  # until when a window that was asked for ahead may be to come
        if options.mode != "ar" and target.window_refusal is not None:
            self._step_down(target.window_refusal)

    def prefill(self, progress: Progress | None) -> None:
        """Both devices take in the prompt, all but its last token: that one is the first step's pending token."""
        if self._proposer is not None:
            self._proposer.begin(self._tokens)
        self._look_ahead(self._policy.opening(len(self._tokens)))
        with self._trace.span("target", "prefill", -1):
            self._target.prefill(self._tokens[:-1], Sampler(self._sampling), progress)

    def steps(self) -> Generator[Emitted, None, None]:
        """The loop."""
        target, draft, tokens, window = self._target, self._draft, self._tokens, None
        while self._left:
            began, step = self._reader.now(), len(self._trace.steps)
            last, ask = self._last(began), self._policy.ask()
            if ask.plain and last:
                self._policy.stepped(last)
                continue
            if ask.plain:
                yield from self._plain(ask)
                window = None
                continue
            if window is None and self._late:
                yield from self._plainly(replace(ask, plain=1), 1, self._meanwhile)
                continue
            window = self._opened(ask) if window is None else window
            ready = self._reader.now()
            ticket = self._start(step, window, ask.setting)
            with self._trace.span("target", "verify", step):
                tap = target.begin(tokens[-1], window.tokens, tokens, tap=_tapped(ask.setting), laws=window.laws)
                if draft and ticket and tap:
                    draft.roots(ticket, tap)
                target.proceed()
                thought = self._think(last)
                chosen = target.finish()
            outcome = verify(window.tokens, chosen)
            outcome = shorten(outcome, window.tokens, self._eos, self._left)
            if draft and ticket:
                draft.resolve(ticket, outcome)
            if self._proposer:
                self._teach(self._proposer, window, outcome)
            target.commit(outcome)
            tokens += [*window.tokens[: outcome.accepted], outcome.token]
            note = self._note(ask, self._reader.now() - ready, window, outcome, ticket, thought)
            yield from self._emitted(window, outcome)
            window = self._collect(ask, ticket, note, began, ready)

    def _plain(self, ask: Ask) -> Iterator[Emitted]:
        """A stretch without the draft, which may propose beside it."""
        self._look_ahead(ask.ahead)
        self._stretch = len(self._tokens) + ask.plain
        yield from self._plainly(ask, min(ask.plain, self._left), self._go_on)

    def _plainly(self, ask: Ask, count: int, more: Callable[[], int]) -> Iterator[Emitted]:
        """So many tokens; more: as for `Target.plain`."""
        began, self._tally = clock(), Tally()
        if self._offers:
            self._offers.begin(len(self._tokens))
        try:
            for token, logprobs in self._target.plain(self._tokens, count, more):
                self._trace.add("target", "verify", len(self._trace.steps), began, clock())
                self._tokens.append(token)
                if self._proposer and not self._offers:
                    self._proposer.extend([token])
                self._note(ask, clock() - began, Window(), Outcome(0, token), None)
                yield from self._reader.given(Emitted(token, "target", logprobs))
                began = clock()
                self._tally.token(self._reader.now(), self._ahead.busy)
        except GeneratorExit:  # the request ends, and the stretch goes on in the next
            self._tell_plained()
            raise
        if self._offers:
            self._offers.follow(self._tokens, ends=True)

    def _tell_plained(self) -> None:
        """The policy learns what plain decoding took, and how the window compares that was proposed beside it."""
        self._policy.plained(self._plained)
        if (found := self._ahead.compare(self._tokens)) is not None:
            window, held, one_pass = found
            tuned = self._tuned
            self._policy.probed(Probed(tuned.way, len(window.tokens), held, window.confidences, one_pass, tuned.host))

    def _go_on(self) -> int:
        """A stretch is about to end, or the request is: by how many tokens it is to be longer."""
        self._tell_plained()
        if len(self._tokens) + 1 < self._stretch:
            return 0
        began = clock()
        self._policy.stretched()
        self._thought += clock() - began
        ask = self._policy.ask()
        if ask.plain and self._left > 1:
            self._look_ahead(ask.ahead)
        self._stretch += ask.plain
        return min(ask.plain, self._left - 1)

    def _meanwhile(self) -> int:
        """The first window is to come: by how many tokens the text goes on without it."""
        if self._left > 1 and self._awaited:
            return 1
        self._policy.plained(self._plained)
        return 0

    @property
    def _plained(self) -> Plained:
        """What was decoded plainly since the last time this was asked."""
        thought, self._thought = self._thought / 1e6, 0
        offers = self._offers.take(self._tokens) if self._offers else ()
        return replace(self._tally.take(), offers=offers, thought=thought)

    @property
    def _late(self) -> bool:
        """Whether the first window is to come, and the text had better go on without it."""
        seconds = self._policy.waits(self._tuned) if self._awaited else None
        return seconds is not None and self._ahead.waited(seconds)

    @property
    def _awaited(self) -> bool:
        """Whether the draft is at work on the first window, and may be for some time yet."""
        return self._ahead.busy and clock() < self._patient

    def _look_ahead(self, setting: Setting | None) -> None:
        """The draft takes in the text, and proposes what follows it."""
        if setting is None or setting.mode == "ar":
            return
        self._tune(setting)
        self._patient = clock() + int(1e9 * self.options.draft_timeout)
        self._ahead.open(self._tokens, replace(self._briefing.plan(Window(), setting, self._left - 1), predictor=None))

    @property
    def _left(self) -> int:
        return self._prompt + self._limit - len(self._tokens)

    def _tune(self, setting: Setting) -> None:
        """Target and draft are told what they are not told with each step."""
        if setting == self._tuned:
            return
        self._tuned = setting
        if setting.exit_layer:
            self._target.exit_layer = setting.exit_layer
        if self._draft is not None:
            self._draft.use(*setting.way, setting.length, setting.host)

    def _think(self, last: Stepped | None) -> int:
        """What follows from the last step is decided while both devices are at work. How long that takes, ns."""
        began = clock()
        if last:
            self._policy.stepped(last)
        return clock() - began

    def _start(self, step: int, window: Window, setting: Setting) -> Ticket | None:
        if self._draft is None or setting.alone:
            self._left_out = True
            return None
        if self._left_out and self._draft.fault is None:  # it catches up beside this verification
            self._draft.begin(self._sampling, self._trace, self._tokens[:-1])
            self._left_out = False
        self._tune(setting)
        plan = self._briefing.plan(window, setting, self._left - 2, self._policy.stop(setting))
        ticket = self._draft.start(step, plan, self._tokens)
        if self._draft.fault is not None:
            self._step_down(str(self._draft.fault))
        return ticket

    def _emitted(self, window: Window, outcome: Outcome) -> Iterator[Emitted]:
        """An accepted proposal is the draft's; so is the token a shortened outcome ends with."""
        for row, token in enumerate([*window.tokens[: outcome.accepted], outcome.token]):
            proposed = row < len(window.tokens) and window.tokens[row] == token
            yield from self._reader.given(Emitted(token, "draft" if proposed else "target", self._target.logprobs(row)))

    def _note(
        self, ask: Ask, busy: int, window: Window, outcome: Outcome, ticket: Ticket | None, thought: int = 0
    ) -> StepTrace:
        step = len(self._trace.steps)
        mode = "ar" if ask.plain else ask.setting.mode
        predictor = ask.setting.predictor if mode == "mirror" else ""
        roots = ticket.roots if ticket else 0
        note = StepTrace(step, window, outcome, roots=roots, busy=busy, mode=mode, predictor=predictor, thought=thought)
        self._trace.steps.append(note)
        self._policy.verified(len(window.tokens), outcome.accepted, window.confidences)
        if step % _CLEAR == 0:
            mx.clear_cache()
        return note

    def _opened(self, ask: Ask) -> Window:
        """The window that speculation begins with."""
        began = clock()
        window = self._ahead.take(self._tokens)
        self._left_out = window is None
        if window is None:
            window = self._proposed(Window(), ask.setting)
        self._trace.add("target", "collect", len(self._trace.steps) - 1, began, clock())
        return self._fitting(window)

    def _collect(self, ask: Ask, ticket: Ticket | None, note: StepTrace, step_began: int, ready: int) -> Window:
        """The next window. ready: when the step's own window was there."""
        began, outcome = clock(), note.outcome
        if outcome.token in self._eos:
            return Window()
        made = window = Window()
        if self._room > 0:
            if self._draft is not None and ticket is not None:
                made = window = self._draft.collect(ticket, self._policy.patience(ask.setting))
            window = self._fitting(self._proposed(window, self._policy.ask().setting))
        note.waited, note.next = clock() - began, window.source
        if ticket is not None:
            note.place = ticket.round.place(outcome.key)
            if window.source in HITS:
                note.foreseen = ticket.round.foreseen(outcome.key)
        waited = (ready - step_began) / 1e6
        self._fact = step_began, self._briefing.learnt(ask.setting, ticket, note, made, self._room, waited)
        note.busy += note.waited
        self._trace.add("target", "collect", note.step, began, began + note.waited)
        return window

    def _proposed(self, window: Window, setting: Setting) -> Window:
        """What a proposer has where the draft has nothing."""
        if window.tokens or self._proposer is None:
            return window
        length = min(setting.length, self._room)
        found = self._proposer.propose(length) if length > 0 else []
        return Window(tuple(found), "lookup" if found else "empty")

    def _fitting(self, window: Window) -> Window:
        """As much of a window as there is room for and is worth verifying. Steps down where the draft has failed."""
        if self._draft is not None and self._draft.fault is not None:
            self._step_down(str(self._draft.fault))
        length = self._room
        # Where a proposal has to come from a known law, whether it is kept must not depend on which it is.
        if window.confidences and self._sampling.coupled:
            self._policy.proposed(window.confidences)
            length = min(length, self._policy.enough(window.confidences))
        return window.cut(max(length, 0))

    @property
    def _room(self) -> int:
        """How many proposals the next window may have at all."""
        room = self._target.room()
        return self._left - 1 if room is None else min(self._left - 1, room)

    def _last(self, now: int) -> Stepped | None:
        """What the last step of speculation came to, of which the policy has not been told."""
        found, self._fact = self._fact, None
        return None if found is None else replace(found[1], whole=(now - found[0]) / 1e6)

    def _teach(self, proposer: Proposer, window: Window, outcome: Outcome) -> None:
        if proposer.wants:
            proposer.learn([self._tokens[-1], *window.tokens], self._target.likeliest(proposer.wants))
        proposer.extend([*window.tokens[: outcome.accepted], outcome.token])

    def _step_down(self, reason: str) -> None:
        self.reason = reason
        self._trace.fault = self._draft.fault if self._draft else None
        self._policy.failed()


def _tapped(setting: Setting) -> bool:
    return setting.mode == "mirror" and setting.predictor != "draft"
