"""How many tokens a millisecond a way of decoding brings: the latency law, completed by what the text decides. Pure.

ALGORITHMS 6.1: X = [π E_hit + (1 − π) E_miss] ÷ [π T_hit + (1 − π) T_miss], with π the share of hits and E the tokens
of a step. Unlike there, a rollout that is not finished when the outcome is known goes on until it has `late` tokens;
with `late` 0 a window after a miss is the backup's, which takes no time (SSD's choice between slow and fast backup).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from operator import mul
from statistics import fmean
from typing import NamedTuple, Protocol

from mirror_mlx.tuning.beside import Known, Work, lasting, overdue
from mirror_mlx.tuning.costs import Costs, DraftCosts
from mirror_mlx.tuning.setting import Setting
from mirror_mlx.tuning.stopping import Kinds, ends

_FEW = 1e-9  # a share of steps that is none
_FAR = 2.0  # times as likely: what comes before the other in most steps


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of a step, on average; of one whose outcome something was prepared for, and of another; the share of those. ms,
    tokens."""

    step: float
    tokens: float
    hit: float = 0.0
    miss: float = 0.0
    share: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens a millisecond."""
        return self.tokens / self.step

    def won(self, plain: float) -> float:
        """What it saves of the time that plain decoding takes for as many tokens, so much for each; 0: nothing."""
        return max(0.0, self.tokens * plain - self.step)


class Belief(Protocol):
    """What the text and the draft decide: see `running`."""

    def alive(self, count: int) -> Sequence[float]: ...
    def windows(self, count: int) -> Kinds:
        """The same for windows that the draft's own probabilities tell apart before they are verified."""

    def hits(self, count: float) -> float:
        """The share of outcomes among the first so many roots."""

    @property
    def tried(self) -> int:
        """How many windows of the draft's all this is from."""

    def filled(self) -> float:
        """The share of steps for which there is a proposal at all, where no model makes them."""

    def guessed(self) -> float:
        """Where a whole window holds: how often the draft has known the target's next token when it proposed it."""

    def backup(self, count: int) -> float:
        """How many tokens hold of a window of what proposes at no cost, where the draft has none; 0: there is no such
        thing."""

    def answer(self) -> float:
        """How many tokens an answer has; inf: it does not end."""


def predict(costs: Costs, setting: Setting, belief: Belief) -> Prediction:
    """Tokens and time of a step.

    >>> from mirror_mlx.tuning.curve import Curve
    >>> class Sure:
    ...     def alive(self, count): return [0.8**i for i in range(1, count + 1)]
    ...     def windows(self, count): return [self.alive(count)]
    ...     def hits(self, count): return 0.9
    ...     def guessed(self): return 0.0
    ...     def backup(self, count): return 0.0
    ...     def answer(self): return inf
    >>> draft = DraftCosts(Curve.of({1: 10.0}), Curve.of({1: 10.0}), tokens=2.0)
    >>> costs = Costs(plain=100.0, verify=Curve.of({1: 100.0, 8: 110.0}), drafts={(0, False): draft})
    >>> mirror = predict(costs, Setting("mirror", 7, 7, 16, "draft"), Sure())
    >>> round(mirror.hit), round(mirror.miss), round(mirror.tokens, 2)
    (110, 150, 4.16)
    >>> round(predict(costs, Setting("sd", 7, 7), Sure()).step)
    150
    """
    if setting.mode == "ar":
        return Prediction(costs.plain, 1.0, miss=costs.plain)
    alive = belief.alive(setting.length)
    said, factor = _of_parts(costs, setting, belief, alive), costs.excess(setting.kind, setting.length)
    answer, step = belief.answer(), said.step * factor
    tokens = said.tokens * _wanted(answer, alive[: setting.late] if setting.mode == "sd" else alive)
    begins = 0.0 if setting.alone else costs.opening + first_window(costs, setting)
    tokens /= 1 + begins * tokens / (answer * step)
    return Prediction(step, tokens, said.hit * factor, said.miss * factor, said.share)


def known_outcome(
    costs: Costs, setting: Setting, belief: Belief, place: int | None, guessed: bool
) -> tuple[float, float]:
    """A step beside the target whose outcome was the root at that place, ms; None: nothing was prepared for it. And the
    share of outcomes that something is prepared for. guessed: the draft has expected that outcome."""
    draft = costs.drafts[setting.way]
    known, states = _steps(costs, draft, setting, belief, belief.alive(setting.length))
    if known is not None and place is not None and (guessed or place >= known.place):
        place = known.place if guessed else max(place, known.place + 1)
    missing, factor = _missing(costs, draft, setting), costs.excess(setting.kind, setting.length)
    lasts = sum(often * step.lasts(place, missing) for often, step in states)
    return factor * lasts, sum(often * step.share for often, step in states)


def first_window(costs: Costs, setting: Setting) -> float:
    """An answer's first is waited for, ms, or its tokens are missing. (In turns each step waits for its own.)"""
    return costs.drafting(setting.way, setting.length) if setting.mode == "mirror" else 0.0


def _wanted(answer: float, alive: Sequence[float]) -> float:
    """The share of a step's tokens that are wanted: an answer ends somewhere among those of its last step, which takes
    no less for that. (What is left of an interval, on average, where a point falls that knows nothing of it.)"""
    if answer == inf:
        return 1.0
    mean = 1 + sum(alive)
    squares = 1 + sum((2 * place + 1) * share for place, share in enumerate(alive, 1))
    return answer / (answer + (squares / mean - 1) / 2)


def _of_parts(costs: Costs, setting: Setting, belief: Belief, alive: Sequence[float]) -> Prediction:
    draft = costs.drafts.get(setting.way)
    if draft is None or setting.alone:
        filled = belief.filled()
        step = filled * costs.verify.at(setting.length + 1) + (1 - filled) * costs.verify.at(1)
        held = filled * sum(alive) if draft is None else belief.backup(setting.length)
        return Prediction(step, 1 + held, miss=step)
    if setting.mode == "sd":
        ended = ends(costs, draft, setting.late, alive, belief.windows)
        tokens = 1 + fmean(one.held for one in ended)
        verify, passes = fmean(costs.verify.at(one.length + 1) for one in ended), fmean(one.passes for one in ended)
        step = verify + draft.waited(passes, tokens) + costs.exchange
        return Prediction(step, tokens, miss=step)
    return _mirror(costs, draft, setting, belief, alive)


def _steps(
    costs: Costs, draft: DraftCosts, setting: Setting, belief: Belief, alive: Sequence[float]
) -> tuple[Known | None, Sequence[tuple[float, "_Beside"]]]:
    """Steps beside the target, and the share of each; what the draft expects in them."""
    hits = _reached(belief.hits, costs.reached.get(setting.kind, 1.0))
    known = None
    if _expects(draft, setting):
        right = alive[setting.length - 1] * belief.guessed()
        known = _known(costs, draft, setting, hits, right)
        if known is not None and not known.place:
            hits = _at_most(hits, right)
    return known, _in_a_row(lambda late: _Beside.of(costs, draft, setting, hits, late, known))


def _missing(costs: Costs, draft: DraftCosts, setting: Setting) -> float:
    """What the target waits for where nothing was prepared for the outcome, ms."""
    return draft.jit(setting.late, setting.length) + costs.exchange


def _mirror(costs: Costs, draft: DraftCosts, setting: Setting, belief: Belief, alive: Sequence[float]) -> Prediction:
    known, states = _steps(costs, draft, setting, belief, alive)
    missing, held = _missing(costs, draft, setting), sum(alive[: setting.late])
    missed = 1 + (held if setting.late else belief.backup(setting.length))
    share = hit = miss = tokens = 0.0
    for often, step in states:
        wrong = often * (1 - step.share)
        share += often * step.share
        hit += often * sum(part.share * part.takes for part in step.parts)
        miss += wrong * (step.free + missing)
        tokens += wrong * missed
        for part in step.parts:
            more = 0.0
            if setting.late < setting.length:
                there = draft.there(part.passes, setting.length, known.cut if known and part.known else None)
                more = sum(map(mul, there[setting.late :], alive[setting.late :]))
            tokens += often * part.share * (1 + held + more if part.passes >= 1 else missed)
    free = states[0][1].free  # there may be no hits, or nothing else
    each_hit = hit / share if share > _FEW else free
    each_miss = miss / (1 - share) if share < 1 - _FEW else free + missing
    return Prediction(hit + miss, tokens, each_hit, each_miss, share)


def _in_a_row(step: Callable[[float], "_Beside"]) -> Sequence[tuple[float, "_Beside"]]:
    """Steps, and the share of each: after one that the target did not wait in, the draft may be busy for so much
    longer."""
    rested = step(0.0)
    if not rested.left or not rested.busy:
        return [(1.0, rested)]
    busy = step(rested.left)
    often = _often(rested.busy, busy.busy)
    return [(1 - often, rested), (often, busy)]


def _often(begins: float, stays: float) -> float:
    """The share of steps, in a long row, of something that begins after so many of the others and stays so after so
    many of its own."""
    return begins / (1 - stays + begins)


def _reached(hits: Callable[[float], float], factor: float) -> Callable[[float], float]:
    """The same, where something is prepared so many times as often as that: see `Costs.reached`."""
    return hits if factor == 1.0 else lambda count: min(1.0, factor * hits(count))


def _at_most(hits: Callable[[float], float], first: float) -> Callable[[float], float]:
    """The same, where the first root alone is the outcome in such a share of steps at most."""
    return lambda count: min(hits(count), first) if count <= 1 else hits(count)


def _expects(draft: DraftCosts, setting: Setting) -> bool:
    """Whether the draft may have an idea of the outcome when a step begins, so that the first pass takes it as well."""
    return draft.joint is not None and setting.guesses and setting.own > 0


def _known(
    costs: Costs, draft: DraftCosts, setting: Setting, hits: Callable[[float], float], right: float
) -> Known | None:
    """The idea that a draft has of it, of those that may have one, see `_expects`; None: it has none. Streams that are
    checked are one, and one more of them is to be checked if something is cut off a whole window; else it comes with a
    whole window. right: how often it is the outcome."""
    length, late, place = setting.length, setting.late, _place(hits, right, setting.own)
    cut = draft.beyond(length, right) if draft.checks else 0.0

    def after(often: float) -> Known:
        """So often after a whole window."""
        more = often * cut
        whole, enough = draft.following(more, length), draft.following(more, late, length)
        return Known(1.0 if draft.checks else often, place, more, whole, enough)

    def whole(known: Known | None) -> float:
        return _Beside.of(costs, draft, setting, hits, 0.0, known).whole

    if late >= length:
        return after(1.0)
    # A whole window after another comes with more of it: what keeps itself going need not begin.
    begins = whole(after(0.0) if draft.checks else None)
    often = _often(begins, whole(after(1.0))) if begins > _FEW else 0.0
    return after(often) if often or draft.checks else None


def _place(hits: Callable[[float], float], often: float, own: int) -> int:
    """How many of so many roots are served before one that is the outcome so often, in most steps."""
    place, before = 0, 0.0
    while place < own - 1:
        more = max(1, place)
        found = hits(place + more)
        if found - before < _FAR * often * more:
            break
        place, before = place + more, found
    return min(place, own - 1)


class _Part(NamedTuple):
    """Roots that are as far when the outcome is known: their places, the share of outcomes among them, how long a step
    takes then, ms, and how many passes they have had when nothing is waited for any more; known: it is the one that the
    draft expects."""

    places: range
    share: float
    takes: float
    passes: float
    known: bool


@dataclass(frozen=True, slots=True)
class _Beside:
    """A step beside the target that begins while the draft is busy for so much longer with the last one. ms.

    parts  of the outcomes that something was prepared for
    free   when the draft can turn to another
    left   how long it goes on after the step where nobody waits for it
    busy   the share of steps of which that is so
    whole  the share of steps that bring a whole window, one that was prepared for
    """

    parts: Sequence[_Part]
    free: float
    left: float
    busy: float
    whole: float

    @property
    def share(self) -> float:
        return sum(part.share for part in self.parts)

    def lasts(self, place: int | None, missing: float) -> float:
        """One whose outcome was the root at that place; None: nothing was prepared for it, which takes so long."""
        return next((part.takes for part in self.parts if place in part.places), self.free + missing)

    @classmethod
    def of(
        cls,
        costs: Costs,
        draft: DraftCosts,
        setting: Setting,
        hits: Callable[[float], float],
        late: float,
        known: Known | None = None,
    ) -> "_Beside":
        """late: for how long the draft is busy; known: as `_known` says."""
        verify = costs.verify.at(setting.length + 1) * costs.slower
        if setting.predictor != "draft":
            verify += costs.tap
        slower = draft.slower.at(setting.carried(setting.length + 1))
        glue, single = draft.glue.at(setting.length + 1), draft.one.at(1)
        all_of, enough = draft.needed(setting.length), draft.needed(setting.late, setting.length)
        spoken = inf if setting.predictor == "draft" else costs.exits.get(setting.exit_layer, 0.5) * verify
        own = setting.own
        work = Work(
            own, setting.roots - own, all_of, enough, draft.beside, draft.slower, *setting.shares(), hits,
            draft.beside.at(1) if setting.late else None, draft.width, known,
        )  # fmt: skip
        turns, first, carried = max(late, costs.starts), glue, 0.0
        if known is not None and draft.joint is not None:
            first = draft.joint.at(setting.length + 1)
        elif not own:  # the first pass has the rows of the window with it
            first, carried = 0.0, max(0.0, glue - single)
        begins = turns + lasting(first * slower, slower, max(0.0, verify - turns))
        done = work.until(verify, begins, spoken, carried)
        under_way, over = overdue(done.late, costs.spread * verify)
        parts, place, before, busy, whole = list[_Part](), 0, 0.0, 0.0, 0.0
        for group in done.groups:
            places = range(place, place + group.roots)
            found = hits(places.stop)
            if group.ended:
                waited = work.whole_of(group).after(group.passes)
                busy += under_way * (1 - waited) * (found - before)
                late_passes = work.enough_of(group).left(group.ended)
                takes = verify + waited * over + late_passes * single + costs.exchange
                passes = group.ended + late_passes
                whole += (1 - work.whole_of(group).after(passes)) * (found - before)
                parts.append(_Part(places, found - before, takes, passes, group.known))
            place, before = places.stop, found
        return cls(tuple(parts), verify + over + done.carried, over / under_way if under_way else 0.0, busy, whole)
