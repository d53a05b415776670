"""Some seconds with target and draft: what a verification takes by rows, where the tap is, what a draft's pass takes
alone and beside a busy target, and whether its proposals hold (ALGORITHMS 6.2).

Everything is done by the calls that decoding makes, on the threads that it makes them on.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, TypeVar

from mirror_mlx.calibration import verifying
from mirror_mlx.calibration.drafting import Drafted, FailedError
from mirror_mlx.rendezvous import Rendezvous
from mirror_mlx.sampling import Sampler, Sampling
from mirror_mlx.target import Target
from mirror_mlx.tuning.costs import Costs, DraftCosts, Way
from mirror_mlx.tuning.curve import Curve

_USUAL = 7  # proposals of a window
_SAID = 24  # tokens of the target's own that a draft's proposals are compared with
_REPEATS = 2  # of a draft's ways, in turns: what disturbs for a while disturbs all of them
_TURNS = 3.0  # seconds for the draft's turns between verifications
_Part = TypeVar("_Part")

Report = Callable[[float], None]
"""Told which share is done."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to find out.

    length, roots, kappa  the longest window, the most roots of a step, and of a row
    ways                  in which the draft proposes
    exits                 of the tap; none: there is no tap
    width                 as in `DraftCosts`, of the draft as it proposes when it is asked for
    joins                 likewise, whether a pass over the longest window's rows takes a branch as well
    """

    length: int = 15
    roots: int = 64
    kappa: int = 8
    ways: Sequence[Way] = ((0, False),)
    exits: Sequence[int] = ()
    width: Callable[[], int | None] = lambda: None
    joins: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class Found:
    """What was found.

    costs    of both devices
    holds    the share of proposals that held, by way
    names    whether the draft names roots of its own
    refusal  why the draft has no costs
    host     where the draft was, of one that runs on several; "": where it belongs
    """

    costs: Costs
    holds: Mapping[Way, float] = field(default_factory=dict)
    names: bool = True
    refusal: str = ""
    host: str = ""

    def as_dict(self) -> dict[str, Any]:
        holds = [[streams, exact, share] for (streams, exact), share in self.holds.items()]
        return {"costs": self.costs.as_dict(), "holds": holds, "names": self.names, "refusal": self.refusal,
                "host": self.host}  # fmt: skip

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "Found":
        """Raises KeyError, TypeError or ValueError for what `as_dict` did not write."""
        holds = {(int(streams), bool(exact)): float(share) for streams, exact, share in given["holds"]}
        costs, names = Costs.from_dict(given["costs"]), bool(given["names"])
        return cls(costs, holds, names, str(given["refusal"]), str(given["host"]))


class _Told:
    def __init__(self, report: Report, parts: int) -> None:
        self._report, self._parts, self._done = report, parts, 0

    def done(self) -> None:
        self._done += 1
        self._report(min(1.0, self._done / self._parts))

    def each(self, parts: Iterable[_Part]) -> Iterator[_Part]:
        for part in parts:
            self.done()
            yield part


class _Turns:
    """The draft has its turn, as long as there is time for it."""

    def __init__(self, drafted: Drafted | None) -> None:
        self._drafted, self._left = drafted, _TURNS
        self.failed = ""  # why it could not

    def __call__(self) -> None:
        if self._drafted is None or self._left < 0:
            return
        began = time.perf_counter()
        try:
            self._drafted.turn()
        except FailedError as failed:
            self._drafted, self.failed = None, str(failed)
        self._left -= time.perf_counter() - began


def measure(
    target: Target,
    draft: Rendezvous | None,
    text: Sequence[int],
    wanted: Wanted,
    report: Report = lambda share: None,
    sampling: Sampling = Sampling(),
) -> Found:
    """text: some tokens to begin with, which the target goes on with; sampling: how. Leaves both without a text of
    theirs."""
    windows = verifying.windows(wanted.length)
    verified = (1 + verifying.REPEATS) * len(windows)
    told = _Told(report, 2 + verified + len(wanted.exits) + ((_REPEATS + 1) * len(wanted.ways) if draft else 0))
    tokens = list(text)
    target.prefill(tokens[:-1], Sampler(sampling))
    verifying.plain(target, tokens)  # what the draft has its turns with
    told.done()
    said = list(tokens)
    length = min(_USUAL, wanted.length)

    def drafted(way: Way) -> Drafted:
        assert draft is not None
        return Drafted(
            draft, target, said, way, length=length, roots=wanted.roots, kappa=wanted.kappa, sampling=sampling
        )

    between = _Turns(None if draft is None else drafted(wanted.ways[0]))
    plain, rows, spread = verifying.turns(target, tokens, windows, between, told.done)
    said = tokens[: len(text) + _SAID]
    verify = Curve.through(rows)
    taps = list(told.each(verifying.taps(target, tokens, length, wanted.exits, between)))
    thought = verifying.thought(target, tokens, length, between)
    told.done()
    costs = Costs(
        # A verification of one row does all that a plain token needs: what took longer was disturbed.
        min(plain, verify.at(1)), verify, max(0.0, median([ms for _, _, ms in taps])) if taps else 0.0,
        {layer: share for layer, share, _ in taps}, thought=thought, spread=spread,
    )  # fmt: skip
    if draft is None or between.failed:
        return Found(costs, refusal=between.failed)
    drafts: dict[Way, DraftCosts] = {}
    holds: dict[Way, float] = {}
    names, exchanges, starts, beside = True, list[float](), list[float](), list[float]()
    proposing = {way: drafted(way) for way in wanted.ways}
    try:
        for one in [*proposing.values()] * _REPEATS:
            one.measure()
            told.done()
        for way, one in proposing.items():
            holds[way] = one.holds(said, len(text))
            told.done()
            drafts[way], names = one.costs(wanted.width(), wanted.joins()), one.names
            beside += one.slower
            exchanges += one.exchanges
            starts += one.starts
    except FailedError as failed:
        return Found(replace(costs, drafts=drafts), holds, names, str(failed))
    found = replace(
        costs, slower=max(1.0, median(beside or [1.0])), exchange=median(exchanges or [0.0]),
        starts=median(starts or [0.0]), drafts=drafts,
    )  # fmt: skip
    return Found(found, holds, names)
