"""What target and draft take now: as calibrated, as slow as the devices have been of late, and bent to what steps of
different kinds have shown. Pure: facts in, `Costs` out.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf, sqrt
from statistics import fmean

from mirror_mlx.messages import HITS, PREDICTORS
from mirror_mlx.tuning.costs import Costs, Kind, Sized, Way, carried
from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.drift import Excess, Often, Ratio, Shape, Spread
from mirror_mlx.tuning.mean import Mean
from mirror_mlx.tuning.policy import Passed, Stepped
from mirror_mlx.tuning.running import Brought
from mirror_mlx.tuning.tally import Plained

_HINDERED = 3.0  # times as long as alone a pass may take beside plain decoding; what takes longer has another reason
_SLOW = 1.5  # times what a pass took when it was calibrated
_KNOWN = 12.0  # passes that calibration counts for
_FORGET = 0.98  # of what there was to a step of another mode, with each step
_ALIKE = 0.998  # and to one of another kind in the same mode
_TOKEN, _TOKENS = 0.1, 16  # see `Ratio`: of plain decoding, where hundreds go before a few that are measured
_FIRST = 12.0  # tokens' time that an answer's first step takes more than others; what takes longer was interrupted
_ANSWERS, _NONE = 0.95, 2.0  # of what that was, with each newer answer; and nothing more counts for so many of them
_PAST = 0.97  # and with each stretch of plain decoding
_FASTER = 0.75  # of what was calibrated: it was disturbed then
_SLOWER = 1.4  # times what was calibrated, and never less: something was wrong with it


class Observed:
    """costs: as of the last `rescale`."""

    def __init__(self, costs: Costs) -> None:
        self.costs = self._base = costs
        self._target, self._draft, self._plain = Ratio(), Ratio(), Ratio(new=_TOKEN, most=_TOKENS)
        self._fastest = inf  # a token of plain decoding ÷ as calibrated, in the stretch in which that was least
        self._modes: dict[str, Excess] = {}  # a step ÷ what its parts come to
        self._steps: dict[Kind, Excess] = {}
        self._sized: dict[Sized, Excess] = {}
        self._reached: dict[Kind, Often] = {}  # outcomes that something was prepared for
        self._probing: float | None = None  # a pass beside plain decoding ÷ beside nothing
        self._checked = {way: Brought(_KNOWN * (one.tokens - 1), _KNOWN) for way, one in costs.drafts.items() if way[1]}
        self._shape = Shape(costs.verify)
        self._ones = {way: Shape(draft.one) for way, draft in costs.drafts.items()}
        self._glues = {way: Shape(draft.glue) for way, draft in costs.drafts.items()}
        self._joints = {way: Shape(draft.joint) for way, draft in costs.drafts.items() if draft.joint is not None}
        self._besides = {way: Shape(draft.slower) for way, draft in costs.drafts.items()}
        self._hindered = Ratio(costs.slower)  # a plain token beside the draft ÷ alone
        self._slower = Shape(Curve.of({1: costs.slower}))  # what a verification takes beside the draft ÷ alone
        self._spread = Spread(costs.spread)
        self._opening = Mean()
        self._off = 1.0  # what the last verification took ÷ what it usually takes by now

    def rescale(self, token: float = 0.0) -> None:
        """token: see `Costs`."""
        base, slow = self._base, self._draft.value
        drafts = {
            way: replace(
                draft, glue=self._glues[way].curve, one=self._ones[way].curve,
                joint=self._joints[way].curve if way in self._joints else None,
                tokens=self._tokens(way), slower=self._beside(way),
            ).scaled(slow) for way, draft in base.drafts.items()
        }  # fmt: skip
        slow = self._target.value
        more = self._more
        self.costs = replace(
            base, plain=self.plain, verify=self._shape.curve.scaled(slow), tap=base.tap * slow,
            slower=self._slower.curve.at(1), drafts=drafts, more=more, token=token, spread=self._spread.value,
            sized={(kind, length): seen.value(more[kind]) for (kind, length), seen in self._sized.items()},
            reached={kind: seen.value for kind, seen in self._reached.items()},
            opening=max(0.0, self._opening.value(0.0, _NONE)),
        )  # fmt: skip

    @property
    def _more(self) -> dict[Kind, float]:
        usual = {mode: self._usual_of(mode) for mode in self._modes}
        unseen = {
            (mode, way, one): value
            for mode, value in usual.items() for way in self._base.drafts for one in ("", *PREDICTORS)
        }  # fmt: skip
        return unseen | {kind: seen.value(usual[kind[0]]) for kind, seen in self._steps.items()}

    def _usual_of(self, mode: str) -> float:
        """Half of what there is to steps that have been seen is taken to be there in others of their mode: where it is
        that much better to do otherwise, that is worth a try."""
        return sqrt(self._modes[mode].value(1.0))

    @property
    def _plain_now(self) -> float:
        """A target whose verifications have become faster since plain decoding was measured is faster at that too. (If
        they have become slower, that may be the draft's doing.)"""
        return min(self._plain.value, self._target.value)

    @property
    def plain(self) -> float:
        """A token of plain decoding, as it is now, ms."""
        return self._base.plain * self._plain_now

    @property
    def slow(self) -> bool:
        """Whether the draft's device takes much longer than it should."""
        return self._draft.value > _SLOW

    @property
    def drifted(self) -> bool:
        """Whether the target is much faster than it was when it was calibrated, or has never been nearly as fast. (It
        may be slower for a while for many reasons, a long text among them.)"""
        return self._plain_now < _FASTER or _SLOWER < self._fastest < inf

    def verified(self, fact: Stepped) -> None:
        """The target's part of a step. Where that was late the rest of it may be what was thought meanwhile, which is
        less once less is decided."""
        base, rows = self._base, fact.length + 1
        verify, mirror = self._shape.curve.at(rows), fact.setting.mode == "mirror"
        if mirror:
            verify *= self._slower.curve.at(1)
            verify += base.tap if fact.setting.predictor != "draft" else 0.0
        usual = min(fact.target, verify * self._target.value)
        ratio = max(fact.target - base.thought * fact.thought, usual) / max(verify, 1e-9)
        # Which of these is wrong is not said by this step alone, but by others with other rows, or without the draft.
        self._off = off = ratio / self._target.value
        shared = 0.5 if mirror else 1.0
        self._shape.saw(rows, off, shared)
        if mirror:
            self._slower.saw(1, off)
        self._target.saw(ratio)

    def opened(self, more: float) -> None:
        """An answer's first step took so many ms more than others, beside the wait for its window."""
        most = _FIRST * self.costs.plain
        self._opening.saw(min(max(more, -most), most), _ANSWERS)

    def during(self, fact: Stepped) -> Costs:
        """What everything took in a step whose target's part is known, and the draft's passes: `costs`, but for that. A
        device that was slow just then is no reason to expect more of such steps than their parts."""
        drafts, way = self.costs.drafts, fact.setting.way
        if fact.passed and way in drafts:
            usually = sum(self._usual(way, passed)[2] for passed in fact.passed) * self._draft.value
            by = sum(passed.ms for passed in fact.passed) / usually
            drafts = {**drafts, way: drafts[way].scaled(by)}
        verify = Curve.of({1: fact.target})
        return replace(self.costs, verify=verify, tap=0.0, slower=1.0, more={}, sized={}, drafts=drafts, spread=0.0)

    def serial(self, fact: Stepped) -> float:
        """What the parts of a step in turns come to."""
        made = sum(passed.ms for passed in fact.passed)
        return fact.target + (made + self.costs.exchange if made else 0.0)

    def prepared(self, fact: Stepped, share: float) -> None:
        """Whether there was something for the outcome of a step, where `during` says how often there is."""
        kind = fact.setting.kind
        said = share / self.costs.reached.get(kind, 1.0)
        self._reached.setdefault(kind, Often()).saw(fact.source in HITS, said)
        for other, seen in self._reached.items():
            if other != kind:
                seen.faded(_ALIKE)

    def lasted(self, fact: Stepped, expected: float) -> None:
        """A step, of whose parts `during` or `serial` makes so many ms: there is more to one than its parts. What that
        was of another kind is long past at some time, and that kind worth another look."""
        mode, *_ = kind = fact.setting.kind
        sized = kind, fact.setting.length
        now = (
            self._modes.setdefault(mode, Excess()),
            self._steps.setdefault(kind, Excess()),
            self._sized.setdefault(sized, Excess()),
        )
        for seen in now:
            seen.saw((fact.whole - fact.waited) / max(expected, 1e-9))
        others = [
            *self._modes.items(),
            *((one, seen) for (one, *_), seen in self._steps.items()),
            *((one, seen) for ((one, *_), _), seen in self._sized.items()),
        ]
        for one, seen in others:
            if seen not in now:
                seen.faded(_ALIKE if one == mode else _FORGET)

    def passed(self, way: Way, made: Sequence[Passed]) -> None:
        """The draft's passes of a step. As with the target: whether so many branches take longer than was calibrated,
        or everything does, is not said by one step alone, but by others. What the target hinders is said by steps that
        have passes beside it and others."""
        before, all_of_them = self._draft.value, 0.0
        offs: dict[bool, list[float]] = {True: [], False: []}
        for passed in made:
            shape, count, expected = self._usual(way, passed)
            all_of_them += expected
            off = passed.ms / expected
            shape.saw(count, off / before, 1 / len(made))
            offs[passed.beside].append(off)
        if offs[True] and offs[False]:
            usual = fmean(_load(way, passed) for passed in made if passed.beside)
            self._besides[way].saw(usual, fmean(offs[True]) / max(fmean(offs[False]), 1e-9), 0.5)
        ratio = sum(passed.ms for passed in made) / all_of_them
        if offs[True]:
            self._spread.saw(ratio / before - self._off)
        self._draft.saw(ratio)

    def _usual(self, way: Way, passed: Passed) -> tuple[Shape, float, float]:
        """What such a pass takes while the device is as fast as it was calibrated, ms, and where that is from."""
        parts: list[tuple[Shape, float]] = [(self._ones[way], passed.branches)] if passed.branches else []
        if passed.beside and passed.rows and 0 < passed.branches <= 1 and way in self._joints:
            parts = [(self._joints[way], passed.rows)]
        elif passed.rows:
            parts.append((self._glues[way], passed.rows))
        shape, count = max(parts, key=lambda part: part[0].curve.at(part[1]))
        slower = self._beside(way).at(_load(way, passed)) if passed.beside else 1.0
        return shape, count, max(shape.curve.at(count), 1e-9) * slower

    def probed(self, way: Way, ms: float) -> bool:
        """One of its passes beside plain decoding, which takes longer there, how much is not calibrated: the first one
        tells, and others are compared with that. Whether its device seems to have recovered."""
        ratio = ms / max(self._base.drafts[way].one.at(1), 1e-9)
        if self._probing is None:
            self._probing = min(max(1.0, ratio / self._draft.value), _HINDERED)
        ratio /= self._probing
        recovered = ratio * _SLOW < self._draft.value
        self._draft.saw(ratio)
        return recovered

    def checked(self, way: Way, passes: int, held: float) -> None:
        """So many passes had streams' proposals to check, of which so many held: that depends on the text."""
        if way in self._checked and passes:
            self._checked[way].saw(passes, held)

    def _tokens(self, way: Way) -> float:
        return self._checked[way].value if way in self._checked else self._base.drafts[way].tokens

    def _beside(self, way: Way) -> Curve:
        """What a pass takes beside the target ÷ alone."""
        points = self._besides[way].curve.points
        return Curve.through(((count, max(1.0, factor)) for count, factor in points), level=True)

    def plained(self, fact: Plained) -> None:
        """A stretch of plain decoding."""
        if fact.tokens > 0:
            ratio = fact.ms / fact.tokens / self._base.plain
            self._fastest = min(self._fastest, ratio)
            self._plain.saw(ratio, fact.tokens)
            if fact.beside > 0:
                self._hindered.saw(max(1.0, fact.beside_ms / fact.beside * fact.tokens / max(fact.ms, 1e-9)))
        else:
            alone = fact.beside_ms / self._hindered.value
            self._plain.saw(alone / fact.beside / self._base.plain, fact.beside)

    def hindrance(self, ms: float) -> float:
        """How much of so much time of plain decoding is the draft's fault that was at work meanwhile."""
        return ms * (1 - 1 / max(1.0, self._hindered.value))

    def anchored(self) -> None:
        """The target is as slow as plain decoding says: if verification is slower, that is for its rows to learn."""
        self._target = Ratio(self._plain.value)

    def rested(self) -> None:
        """What steps took is long past, and what else there was may be over."""
        self.anchored()
        for seen in (*self._modes.values(), *self._steps.values(), *self._sized.values()):
            seen.faded(0.5)
        for prepared in self._reached.values():
            prepared.faded(0.5)
        self._opening.faded(_PAST)


def _load(way: Way, passed: Passed) -> float:
    """By which the target hinders a pass: what there is to do, in branches."""
    return carried(way, passed.rows) if passed.rows else passed.branches
