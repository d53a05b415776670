"""What the devices take, as calibration found it. Pure: plain data, to JSON and back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from mirror_mlx.tuning.curve import Curve
from mirror_mlx.tuning.passes import Needed, beyond, brought, needed, passes, there

Way = tuple[int, bool]
"""How a draft proposes: with how many lookahead streams, and whether each pass checks those of the pass before."""
Kind = tuple[str, Way, str]
"""Of a step of speculation: the mode, how the draft proposes, and who names the outcomes; "": nobody does."""
Sized = tuple[Kind, int]
"""Of one with windows of such a length."""


def trusted(way: Way) -> int:
    """How many streams are taken at their word: of those that are checked only what the main stream says remains."""
    streams, exact = way
    return 0 if exact else streams


def checked(way: Way) -> int:
    """And how many are checked."""
    streams, exact = way
    return streams if exact else 0


def carried(way: Way, rows: int) -> float:
    """What so many rows of a window are to a pass, in branches that have had several: rows have no streams."""
    streams, exact = way
    return rows / ((1 + streams) ** 2 if exact else 1 + 2 * streams)


SAME = Curve.through({1: 1.0}, level=True)
"""A factor on whatever there is to do that changes nothing."""
_FAR = 1e4  # branches, more than any pass has


@dataclass(frozen=True, slots=True)
class DraftCosts:
    """The draft's device, ms, for one way to propose.

    glue     the pass over the rows of a window
    one      a pass, by what it has to do, in branches (see `Setting.load`)
    tokens   what a pass brings a branch, see `passes.passes`
    width    how many branches one pass takes; None: all
    slower   factor on all of them beside a busy target, by what there is to do, in branches: a curve that is level
    joint    the pass over the rows of a window that takes a first branch as well; None: there is no such pass
    checks   streams that a pass checks of the one before
    beside   a pass beside a busy target, by what it has to do, from the above
    """

    glue: Curve
    one: Curve
    tokens: float = 1.0
    width: int | None = None
    slower: Curve = SAME
    joint: Curve | None = None
    checks: int = 0
    beside: Curve = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Once: it is asked for with each prediction."""
        counts = sorted({count for curve in (self.one, self.slower) for count, _ in curve.points} | {_FAR})
        beside = Curve.through((count, self.one.at(count) * self.slower.at(count)) for count in counts)
        object.__setattr__(self, "beside", beside)

    @classmethod
    def mean(cls, of: "Sequence[DraftCosts]") -> "DraftCosts":
        """See `Costs.mean`."""
        joint = [one.joint for one in of if one.joint is not None]
        return cls(
            Curve.mean([one.glue for one in of]), Curve.mean([one.one for one in of]), fmean(one.tokens for one in of),
            of[0].width, Curve.mean([one.slower for one in of]), Curve.mean(joint) if joint else None,
            of[0].checks,
        )  # fmt: skip

    def scaled(self, by: float) -> "DraftCosts":
        """On a device that takes so many times as long."""
        joint = None if self.joint is None else self.joint.scaled(by)
        return replace(self, glue=self.glue.scaled(by), one=self.one.scaled(by), joint=joint)

    def passes(self, length: int, window: int | None = None) -> float:
        """See `passes.passes`."""
        return passes(self.tokens, length, window, self.checks)

    def needed(self, length: int, window: int | None = None) -> Needed:
        """See `passes.needed`."""
        return needed(self.tokens, length, window, self.checks)

    def beyond(self, length: int, often: float) -> float:
        """See `passes.beyond`."""
        return beyond(self.tokens, length, self.checks, often)

    def following(self, cut: float, length: int, window: int | None = None) -> Needed:
        """The same of windows whose first pass has streams to check, those that were there when the window before was
        proposed: the first one names the outcome, and the others are checked; all of them where something was cut off
        that window, which is so often the case, and names it."""
        if not self.checks:
            return self.needed(length, window)
        more, fewer = (needed(self.tokens, length, window, self.checks, self.checks - less) for less in (0, 1))
        return more.mixed(fewer, cut)

    def there(self, passes: float, window: int, cut: float | None = None) -> Sequence[float]:
        """See `passes.there`; cut: as in `following`, of a window that is one of those."""
        if cut is None or not self.checks:
            return there(self.tokens, passes, window, self.checks)
        more, fewer = (there(self.tokens, passes, window, self.checks, self.checks - less) for less in (0, 1))
        return [cut * one + (1 - cut) * other for one, other in zip(more, fewer, strict=True)]

    def brought(self, passes: float, window: int) -> int:
        """See `passes.brought`."""
        return brought(self.tokens, passes, window, self.checks)

    def jit(self, length: int, window: int | None = None) -> float:
        """A window drafted while the target waits."""
        return self.waited(self.passes(length, window))

    def waited(self, passes: float, rows: float = 0.0) -> float:
        """So many passes over a branch while the target waits, and as many rows of the last window with the first."""
        return passes * self.one.at(1) + (max(0.0, self.glue.at(rows) - self.one.at(1)) if passes and rows else 0.0)


@dataclass(frozen=True, slots=True)
class Costs:
    """Both devices, ms.

    plain     a token of plain decoding
    verify    a step's work on the target, by rows, commit and loop included, without a tap
    tap       what the tap adds to that
    exits     by exit layer: the share of a verification after which its values are there
    slower    factor on a verification beside a busy draft
    exchange  what a window takes that is waited for, beside its passes
    starts    from the beginning of a step until the draft is at work on it, unless it is busy
    spread    by how much, as a share of a verification, it differs from one step to the next which of both devices is
              done first: a standard deviation
    thought   the share of what is thought beside a verification by which that takes longer
    drafts    by how the draft proposes; none: there is no draft, or it costs nothing
    more      factors on steps of speculation, by their kind: there is more to one than its parts
    sized     the same for windows of such a length, where there were any
    reached   factors on the share of outcomes that something is prepared for, likewise: not all roots are come to
    opening   what the first step of an answer takes more than others, beside the wait for its window: that holds less
              often, and so does what is prepared for it
    token     what one takes of late, which waiting for longer windows is weighed against; 0: it is not
    """

    plain: float
    verify: Curve
    tap: float = 0.0
    exits: Mapping[int, float] = field(default_factory=dict)
    slower: float = 1.0
    exchange: float = 0.0
    drafts: Mapping[Way, DraftCosts] = field(default_factory=dict)
    more: Mapping[Kind, float] = field(default_factory=dict)
    sized: Mapping[Sized, float] = field(default_factory=dict)
    reached: Mapping[Kind, float] = field(default_factory=dict)
    token: float = 0.0
    thought: float = 0.0
    starts: float = 0.0
    spread: float = 0.0
    opening: float = 0.0

    @classmethod
    def mean(cls, of: "Sequence[Costs]") -> "Costs":
        """What the same devices take on average, which was measured several times."""
        first = of[0]
        return cls(
            fmean(one.plain for one in of), Curve.mean([one.verify for one in of]), fmean(one.tap for one in of),
            {layer: fmean(one.exits[layer] for one in of) for layer in first.exits},
            fmean(one.slower for one in of), fmean(one.exchange for one in of),
            {way: DraftCosts.mean([one.drafts[way] for one in of]) for way in first.drafts},
            thought=fmean(one.thought for one in of), starts=fmean(one.starts for one in of),
            spread=fmean(one.spread for one in of),
        )  # fmt: skip

    def excess(self, kind: Kind, length: int) -> float:
        """By what the parts of such a step are multiplied, as there is more to it: see `drift.Excess`."""
        found = self.sized.get((kind, length))
        return self.more.get(kind, 1.0) if found is None else found

    def drafting(self, way: Way, length: int, window: int | None = None) -> float:
        """What so many proposals of a window take that the target waits for; 0: no model makes them."""
        draft = self.drafts.get(way)
        return 0.0 if draft is None else draft.jit(length, window=window)

    def as_dict(self) -> dict[str, Any]:
        """As JSON takes it."""
        return {
            "plain": self.plain, "verify": list(self.verify.points), "tap": self.tap,
            "exits": [[layer, share] for layer, share in self.exits.items()], "slower": self.slower,
            "exchange": self.exchange, "thought": self.thought, "starts": self.starts, "spread": self.spread,
            "drafts": [
                {
                    "streams": streams, "exact": exact, "glue": list(d.glue.points), "one": list(d.one.points),
                    "tokens": d.tokens, "width": d.width, "slower": list(d.slower.points),
                    "joint": None if d.joint is None else list(d.joint.points),
                } for (streams, exact), d in self.drafts.items()
            ],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "Costs":
        """Raises KeyError, TypeError or ValueError for what `as_dict` did not write."""
        ways = [(int(d["streams"]), bool(d["exact"])) for d in given["drafts"]]
        drafts = {
            way: DraftCosts(
                _curve(d["glue"]), _curve(d["one"]), float(d["tokens"]), d["width"], _curve(d["slower"], level=True),
                None if d["joint"] is None else _curve(d["joint"]), checked(way),
            ) for way, d in zip(ways, given["drafts"], strict=True)
        }  # fmt: skip
        exits = {int(layer): float(share) for layer, share in given["exits"]}
        return cls(
            float(given["plain"]), _curve(given["verify"]), float(given["tap"]), exits, float(given["slower"]),
            float(given["exchange"]), drafts, thought=float(given["thought"]), starts=float(given["starts"]),
            spread=float(given["spread"]),
        )  # fmt: skip


def _curve(points: Any, level: bool = False) -> Curve:
    return Curve.through([(float(count), float(ms)) for count, ms in points], level)
