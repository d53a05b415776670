"""How many tokens a millisecond a way of decoding brings: the latency law, completed by what the text decides. Pure.

ALGORITHMS 6.1: X = [π E_hit + (1 − π) E_miss] ÷ [π T_hit + (1 − π) T_miss], with π the share of hits and E the tokens
of a step. Unlike there, a rollout that is not finished when the outcome is known goes on until it has `late` tokens;
with `late` 0 a window after a miss is the backup's, which takes no time (SSD's choice between slow and fast backup).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, Protocol

from mirror_mlx.messages import Predictor, first_pass
from mirror_mlx.tuning.costs import Costs, DraftCosts, Kind, Way
from mirror_mlx.tuning.latency import Rollout


@dataclass(frozen=True, slots=True)
class Setting:
    """A way of decoding.

    length      proposals in a window, at most
    late        so many are enough where the target waits for them
    roots       outcomes prepared for in a step
    predictor   who names them
    exit_layer  of the tap, where there is one
    way         how the draft proposes
    host        where it runs; "": where it is
    """

    mode: Literal["mirror", "sd", "ar"] = "ar"
    length: int = 0
    late: int = 0
    roots: int = 0
    predictor: Predictor = "hybrid"
    exit_layer: int = 0
    way: Way = (0, False)
    host: str = ""

    def load(self, branches: float, fresh: float = 0, second: float = 0) -> float:
        """What a pass over so many branches has to do, in branches that have had several: for so many of them it is the
        first one, for so many the second.

        A branch takes in what its last pass has proposed, and its streams. The first pass takes in one token, and
        proposes what is left over of the window; with streams that are checked, each token has streams of its own.
        """
        streams, exact = self.way
        if exact:
            return branches - fresh * streams / (1 + streams)
        first, whole = first_pass(self.length, 1 + streams), 1 + 2 * streams
        return branches - fresh * (1 - first / whole) - second * (1 - (first + streams) / whole)

    @property
    def kind(self) -> Kind:
        return self.mode, self.way

    def __str__(self) -> str:
        """In a few words.

        >>> print(Setting("mirror", 7, 3, 16, "draft", way=(2, True)))
        mirror: windows of 7 (3 where the target waits), 2 streams checked, 16 roots by draft
        """
        if self.mode == "ar":
            return "plain decoding"
        streams, exact = self.way
        how = f", {streams} streams{' checked' if exact else ''}" if streams else ""
        how += f", draft on {self.host}" if self.host else ""
        if self.mode == "sd":
            return f"in turns: windows of {self.late}{how}"
        late = "" if self.late == self.length else f" ({self.late} where the target waits)"
        tap = f", tap after layer {self.exit_layer}" if self.predictor != "draft" and self.exit_layer else ""
        return f"mirror: windows of {self.length}{late}{how}, {self.roots} roots by {self.predictor}{tap}"


@dataclass(frozen=True, slots=True)
class Prediction:
    """Of a step, on average; of one whose outcome was prepared for, and of another. ms, tokens."""

    step: float
    tokens: float
    hit: float = 0.0
    miss: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens a millisecond."""
        return self.tokens / self.step

    def won(self, plain: float) -> float:
        """What it saves of the time that plain decoding takes for as many tokens, so much for each; 0: nothing."""
        return max(0.0, self.tokens * plain - self.step)

    def times(self, factor: float) -> "Prediction":
        """Of steps that take so many times as long."""
        return Prediction(self.step * factor, self.tokens, self.hit * factor, self.miss * factor)


class Belief(Protocol):
    """What the text and the draft decide: see `running`."""

    def alive(self, count: int) -> Sequence[float]: ...
    def hits(self, count: float) -> float: ...
    def own(self, count: float) -> float:
        """The share of the hits of a hybrid that the draft itself has named."""

    def filled(self) -> float:
        """The share of steps for which there is a proposal at all, where no model makes them."""

    def backup(self, count: int) -> float:
        """How many tokens hold of a window of what proposes at no cost, where the draft has none; 0: there is no such
        thing."""


def predict(costs: Costs, setting: Setting, belief: Belief) -> Prediction:
    """Tokens and time of a step.

    >>> from mirror_mlx.tuning.curve import Curve
    >>> class Sure:
    ...     def alive(self, count): return [0.8**i for i in range(1, count + 1)]
    ...     def hits(self, count): return 0.9
    ...     def own(self, count): return 0.8
    ...     def backup(self, count): return 0.0
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
    return _of_parts(costs, setting, belief).times(costs.more.get(setting.kind, 1.0))


def _of_parts(costs: Costs, setting: Setting, belief: Belief) -> Prediction:
    alive = belief.alive(setting.length)
    draft = costs.drafts.get(setting.way)
    if draft is None:
        filled = belief.filled()
        step = filled * costs.verify.at(setting.length + 1) + (1 - filled) * costs.verify.at(1)
        return Prediction(step, 1 + filled * sum(alive), miss=step)
    if setting.mode == "sd":
        tokens = 1 + sum(alive[: setting.late])
        step = costs.verify.at(setting.late + 1) + draft.jit(setting.late, tokens) + costs.exchange
        return Prediction(step, tokens, miss=step)
    return _mirror(costs, draft, setting, belief, alive)


def _mirror(costs: Costs, draft: DraftCosts, setting: Setting, belief: Belief, alive: Sequence[float]) -> Prediction:
    rested = _Beside.of(costs, draft, setting, 0.0)
    # Where the target did not wait, the draft may be busy still when the next step begins.
    step = _Beside.of(costs, draft, setting, rested.left) if rested.left else rested
    share = belief.hits(min(setting.roots, step.served))
    own = {"draft": 1.0, "tap": 0.0}.get(setting.predictor, belief.own(setting.roots))
    after_hit, after_miss = (own * one.own + (1 - own) * one.tapped for one in (step, rested))
    hit = share * after_hit + (1 - share) * after_miss
    late_passes = draft.passes(setting.late, setting.length)
    miss = step.free + late_passes * draft.one.at(1) + costs.exchange
    length = draft.brought(max(step.done, late_passes), setting.length)
    hit_tokens, miss_tokens = (
        1 + (sum(alive[:count]) if count else belief.backup(setting.length)) for count in (length, setting.late)
    )
    tokens = share * hit_tokens + (1 - share) * miss_tokens
    return Prediction(share * hit + (1 - share) * miss, tokens, hit, miss)


@dataclass(frozen=True, slots=True)
class _Beside:
    """A step beside the target that begins while the draft is busy for so much longer with the last one. ms.

    own, tapped  how long it takes if the outcome was a root of the draft's own, or the tap's
    free         when the draft can turn to an outcome that was none
    left         how long it goes on after the step where nobody waits for it
    done         passes that the likeliest roots have had when the outcome is known
    served       roots for which there is time
    """

    own: float
    tapped: float
    free: float
    left: float
    done: float
    served: int

    @classmethod
    def of(cls, costs: Costs, draft: DraftCosts, setting: Setting, late: float) -> "_Beside":
        def one(full: float, fresh: float = 0, second: float = 0) -> float:
            """A pass over so many branches, and so many for which it is the first, or the second."""
            return draft.one.at(setting.load(full + fresh + second, fresh, second))

        whole = costs.verify.at(setting.length + 1) * costs.slower
        if setting.predictor != "draft":
            whole += costs.tap
        # From here on as the draft's own time goes by, which is slower until the target has finished.
        verify = whole / draft.slower
        width = min(setting.roots, draft.width or setting.roots)
        passes, enough = draft.passes(setting.length), draft.passes(setting.late, setting.length)
        glue, single = draft.glue.at(setting.length + 1), draft.one.at(1)
        spoken = costs.exits.get(setting.exit_layer, 0.5) * verify
        before = 0.0  # passes of the draft's own roots before those of the tap join them
        if setting.predictor == "hybrid":
            half = min(setting.roots // 2, width)
            own = one(0, half), one(0, 0, half)
            first = goes_on = Rollout(late + glue, one(half), passes, own)
            joins = first.free(spoken)
            before = first.done(joins) if joins < verify else 0.0
            # Its own windows go on, while those of the tap begin.
            rest = width - half
            if before:
                both = one(half, rest) if before > 1 else one(0, rest, half), one(half, 0, rest)
            else:
                both = one(0, width), one(0, 0, width)
            last = first.joined(spoken, passes, one(width), both)
            if joins < verify:
                goes_on = Rollout(joins, one(width), passes - before, both)
        else:
            # The tap's first pass has the rows of the window with it.
            carried = max(0.0, glue - single)
            starts = late + glue if setting.predictor == "draft" else max(late, spoken) + carried
            first = last = goes_on = Rollout(starts, one(width), passes, (one(0, width), one(0, 0, width)))
        waits = goes_on.waits(verify, enough - before, single)
        tapped = last.waits(verify, enough, single)
        # The likeliest roots are in the first group, which is rolled out to its end before the others begin.
        groups, busy = ceil(setting.roots / width), last if last.starts < verify else first
        if groups > 1 and verify > busy.ends:
            count = (setting.roots - width) / (groups - 1)
            busy = Rollout(busy.ends, one(count), (groups - 1) * passes, (one(0, count), one(0, 0, count)))
            served = width + int(busy.done(verify) / passes) * round(count)
        else:
            served = width
        left = busy.free(verify) - verify
        return cls(
            whole + waits + costs.exchange, whole + tapped + costs.exchange, whole + left, 0.0 if waits else left,
            before + goes_on.done(verify), served,
        )  # fmt: skip
