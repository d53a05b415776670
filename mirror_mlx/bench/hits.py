"""How often the real outcome was among the roots: the tap's at each exit layer, the draft's, or both. Pure: records in,
rates out.

Roots are chosen by the runtime's own functions (`mirror_mlx.outcomes`), in the runtime's order (`mirror_mlx.rounds`).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from mirror_mlx.messages import Candidates, FanOut, Outcome, Predictor, Root
from mirror_mlx.outcomes import allocate, rank, roots
from mirror_mlx.pooling import Pooled, Pooling
from mirror_mlx.tuning.fanout import Fan

Lens = Literal["plain", "trained"]
Tap = tuple[int, Lens]
"""After how many layers the tap reads, and whether through the trained adapter."""

KAPPAS = (1, 2, 4, 8)  # roots of each row
PER_STEP = (4, 8, 16, 32, 64)  # roots of a step in all
PER_ROW = (2, 4, 8)  # roots of a row in all
DEPTH = max(KAPPAS)
MARGIN = 0.005  # exits whose hit rates are closer than this are equally good


@dataclass(frozen=True, slots=True)
class Record:
    """One step that prepared a window: what was verified, how it ended, and what each predictor had said before.

    draft  the draft's own candidates of each row; None: it has none
    taps   those of every tap measured
    """

    window: tuple[int, ...]
    outcome: Outcome
    draft: Candidates | None
    taps: Mapping[Tap, Candidates]


@dataclass(frozen=True, slots=True)
class Way:
    """A way of choosing roots: as the runtime does with these options.

    kappa   roots of each row and predictor
    tap     which one the predictor "tap" or "hybrid" means
    budget  roots of a step in all; None: as many as there are
    fan_out how many of the draft's own go to each row
    """

    predictor: Predictor
    kappa: int
    tap: Tap | None = None
    budget: int | None = None
    fan_out: FanOut = "score"


def choose(record: Record, way: Way, fan: Fan | None = None, pooling: Pooling | None = None) -> list[Root]:
    """The roots that would have been opened. In the hybrid the draft gets half of the budget; what both
    say together, once the tap has spoken, fills up the rest. fan: what the fan-out follows from, where there is one;
    pooling: what says how much either of them counts.

    >>> draft = Candidates(tokens=[[7, 8]], probs=[[0.6, 0.1]], own=[])
    >>> tap = Candidates(tokens=[[9, 7]], probs=[[0.6, 0.3]], own=[])
    >>> record = Record((), Outcome(0, 9), draft, {(2, "plain"): tap})
    >>> [root.token for root in choose(record, Way("hybrid", kappa=2, tap=(2, "plain"), budget=2))]
    [7, 9]
    """
    budget = 2 * way.kappa * (len(record.window) + 1) if way.budget is None else way.budget
    first: list[Root] = []
    if way.predictor != "tap" and record.draft is not None:
        share = budget // 2 if way.predictor == "hybrid" else budget
        counts = None if fan is None else fan.of(len(record.window) + 1, share, way.kappa)
        first = allocate(roots(record.draft, record.window, way.kappa), share, counts)
    if way.predictor == "draft" or way.tap is None:
        return first
    tap = record.taps[way.tap]
    if first and record.draft is not None:
        tap = _pooled(record, way.tap, way.kappa, pooling or Pooling()).candidates
    found = roots(tap, record.window, way.kappa, {root.key for root in first})
    return first + allocate(found, budget - len(first))


def _pooled(record: Record, tap: Tap, kappa: int, pooling: Pooling) -> Pooled:
    """What that tap and the draft, which has spoken, say together."""
    assert record.draft is not None
    return pooling.pool(_named(record.draft, kappa), _named(record.taps[tap], kappa))


def _named(candidates: Candidates, kappa: int) -> Candidates:
    """Those of the candidates that the runtime would have asked for."""
    count = 2 * kappa + 1
    return replace(
        candidates,
        tokens=[row[:count] for row in candidates.tokens],
        probs=[row[:count] for row in candidates.probs],
    )


class Tally:
    """Counts hits, record by record.

    taps       what the records have: pairs of exit layer and lens
    kappa      roots of each row and predictor, as this pair is run
    max_roots  and of a step in all
    """

    def __init__(self, taps: Sequence[Tap], *, kappa: int, max_roots: int) -> None:
        self.taps = tuple(taps)
        self._kappa, self._max_roots = kappa, max_roots
        sources: list[tuple[Predictor, Tap | None]] = [("draft", None)]
        sources += [(predictor, tap) for tap in self.taps for predictor in ("tap", "hybrid")]  # type: ignore[misc]
        self._ways = {way for source in sources for ways in self._asked(*source).values() for way in ways}
        self._fans: dict[FanOut, Fan] = {"uniform": Fan("uniform"), "geometric": Fan("geometric")}
        hybrids = [way for way in self._ways if way.predictor == "hybrid" and way.tap is not None]
        self._pooling = {(way.tap, way.kappa): Pooling() for way in hybrids}
        self._hits: Counter[tuple[Way, int, bool]] = Counter()
        self._steps: Counter[tuple[int, bool]] = Counter()  # by accepted proposals, and whether one was rejected

    def _asked(self, predictor: Predictor, tap: Tap | None) -> dict[str, list[Way]]:
        """The ways to choose roots that are compared, by table."""
        parts = 2 if predictor == "hybrid" else 1
        return {
            "by_kappa": [Way(predictor, kappa, tap) for kappa in KAPPAS],
            "per_row": [Way(predictor, count // parts, tap) for count in PER_ROW],
            "per_step": [Way(predictor, DEPTH, tap, count) for count in PER_STEP],
            "as_run": [Way(predictor, self._kappa, tap, self._max_roots)],
            **(
                {f"fan_out_{kind}": [Way(predictor, DEPTH, tap, count, kind) for count in PER_STEP]
                 for kind in ("uniform", "geometric")} if predictor == "draft" else {}
            ),
        }  # fmt: skip

    def add(self, record: Record) -> None:
        accepted = record.outcome.accepted
        where = accepted, accepted < len(record.window)
        self._steps[where] += 1
        for way in self._ways:
            fan, pooling = self._fans.get(way.fan_out), self._pooling.get((way.tap, way.kappa))
            if record.outcome.key in {root.key for root in choose(record, way, fan, pooling)}:
                self._hits[(way, *where)] += 1
        if record.draft is not None:  # afterwards: what both say is weighed by what was seen before
            for (tap, kappa), pooling in self._pooling.items():
                pooling.saw(_pooled(record, tap, kappa, pooling), record.window, record.outcome)
        for fan in self._fans.values():
            named = None if record.draft is None else rank(record.draft, record.window, record.outcome)
            fan.saw(len(record.window), accepted, named, DEPTH)

    @property
    def steps(self) -> int:
        return self._steps.total()

    def rate(self, way: Way, *, rejected: bool = False) -> float | None:
        """The share of outcomes that were roots; `rejected`: of those steps alone in which a proposal was rejected.
        None where there were no such steps. Raises KeyError for a way that is not in any table."""
        self._check(way)
        where = [w for w in self._steps if w[1] or not rejected]
        return _ratio(sum(self._hits[(way, *w)] for w in where), sum(self._steps[w] for w in where))

    def by_row(self, way: Way) -> list[float | None]:
        """The same by how many proposals were accepted, from 0 on."""
        self._check(way)
        hits = [self._hits[way, row, True] + self._hits[way, row, False] for row in range(self._rows())]
        return [_ratio(part, whole) for part, whole in zip(hits, self._steps_by_row(), strict=True)]

    def tables(self) -> dict[str, Any]:
        """Every rate, as plain data. Lists go by KAPPAS, PER_ROW, PER_STEP, or the accepted proposals from 0 on.

        steps, rejected, steps_by_row, tokens_per_step    what was measured
        draft                                             a source: see below
        taps      [{exit_layer, lens, tap: a source, hybrid: a source}]

        The draft has `fan_out_uniform` and `fan_out_geometric` besides: `per_step`, with roots dealt out to the rows
        evenly, and by what was counted before (see `tuning.fanout`).

        A source has `by_kappa` (κ roots of each row and predictor), `per_row` and `per_step` (so many in all), each
        with hit_rate and hit_rate_given_rejection; `by_row`, hit rates with the largest κ; and `as_run`.
        """
        taps = [
            {
                "exit_layer": tap[0],
                "lens": tap[1],
                "tap": self._source("tap", tap),
                "hybrid": self._source("hybrid", tap),
            }
            for tap in self.taps
        ]
        accepted = sum(row * count for (row, _), count in self._steps.items())
        return {
            "steps": self.steps,
            "rejected": sum(count for (_, rejected), count in self._steps.items() if rejected),
            "steps_by_row": self._steps_by_row(),
            "tokens_per_step": 1 + accepted / self.steps if self.steps else 0.0,
            "draft": self._source("draft", None),
            "taps": taps,
        }

    def _source(self, predictor: Predictor, tap: Tap | None) -> dict[str, Any]:
        asked = self._asked(predictor, tap)
        found: dict[str, Any] = {
            table: {
                "hit_rate": [self.rate(way) for way in ways],
                "hit_rate_given_rejection": [self.rate(way, rejected=True) for way in ways],
            }
            for table, ways in asked.items()
        }
        every = found["by_kappa"]
        found["by_kappa"] = every | {
            name.replace("hit", "miss"): [None if rate is None else 1 - rate for rate in rates]
            for name, rates in every.items()
        }
        found["by_row"] = self.by_row(asked["by_kappa"][-1])
        found["as_run"] = {name: rates[0] for name, rates in found["as_run"].items()}
        return found

    def _check(self, way: Way) -> None:
        if way not in self._ways:
            raise KeyError(f"{way} is not counted")

    def _rows(self) -> int:
        return 1 + max((row for row, _ in self._steps), default=-1)

    def _steps_by_row(self) -> list[int]:
        return [self._steps[row, True] + self._steps[row, False] for row in range(self._rows())]


def used(tables: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The taps that the runtime would use: at each exit layer the trained one where there is one."""
    best = {tap["exit_layer"]: tap for tap in sorted(tables["taps"], key=lambda tap: tap["lens"] == "trained")}
    return [best[layer] for layer in sorted(best)]


def best_exit(rates: Mapping[int, float]) -> int:
    """The exit layer with the highest rate; the earliest of those that are nearly as good, since it leaves a longer
    suffix for the draft to hide behind.

    >>> best_exit({2: 0.90, 4: 0.937, 6: 0.94})
    4
    """
    highest = max(rates.values())
    return min(layer for layer, rate in rates.items() if highest - rate < MARGIN)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
