"""From the timelines of some runs to the figures of the latency law. Pure: traces in, numbers out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any

from mirror_mlx.messages import HITS
from mirror_mlx.trace import Span, Trace, handovers, overlap

BUSY = 0.15
"""Cores in other programs' hands, above which times are not what was measured alone."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step with a full window and a step after it. Times in ns.

    wall      from the start of its verification to the start of the next one: all that a user waits for
    verify    the verification alone
    draft     the draft's busy time for it; hidden: the part of that beside a verification
    glue      how long that took
    passes    how long each of the draft's passes took that began beside the verification; late: of those after it
    foreseen  who named the outcome, where it was prepared for
    """

    wall: int
    verify: int
    draft: int
    hidden: int
    glue: int
    passes: tuple[int, ...]
    late: tuple[int, ...]
    accepted: int
    roots: int
    next: str
    foreseen: str | None = None


@dataclass(slots=True)
class Sample:
    """What was measured in one way of running: its steps, and the hand-overs of their runs, ns: tap ids, windows."""

    steps: list[Step] = field(default_factory=list)
    exchanges: list[int] = field(default_factory=list)
    handovers: list[int] = field(default_factory=list)

    def add(self, trace: Trace, length: int) -> None:
        """Take in a run whose full windows have `length` proposals."""
        self.steps += steps_of(trace, length)
        self.exchanges += trace.exchanges
        self.handovers += handovers(trace)


def steps_of(trace: Trace, length: int) -> list[Step]:
    """The steps of a run that count: those between a full window and another step."""
    verified = {span.step: (span.start, span.end) for span in trace.spans if span.name == "verify"}
    intervals = sorted(verified.values())
    drafted: dict[int, list[Span]] = {}
    for span in trace.spans:
        if span.lane == "draft":
            drafted.setdefault(span.step, []).append(span)
    found = []
    for step in trace.steps:
        if len(step.window.tokens) != length or step.next == "none" or step.step + 1 not in verified:
            continue
        start, end = verified[step.step]
        spans = drafted.get(step.step, [])
        busy = [(span.start, span.end) for span in spans]
        found.append(
            Step(
                wall=verified[step.step + 1][0] - start,
                verify=end - start,
                draft=sum(b - a for a, b in busy),
                hidden=overlap(busy, intervals),
                glue=sum(span.end - span.start for span in spans if span.name == "glue"),
                passes=tuple(span.end - span.start for span in spans if span.name == "pass" and span.start < end),
                late=tuple(span.end - span.start for span in spans if span.name == "pass" and span.start >= end),
                accepted=step.outcome.accepted,
                roots=step.roots,
                next=step.next,
                foreseen=step.foreseen,
            )
        )
    return found


def summarise(sample: Sample, bare: Sequence[int]) -> dict[str, Any]:
    """The figures of a sample beside the bare verifications `bare` (ns) of the same windows. Times are medians, but
    those of single passes: of these each costs what it does.

    rendezvous_us           both hand-overs, without what the draft still has to do meanwhile
    pass_ms                 any; beside_: one that began beside the verification, late_: one after it
    beside_draft_verify_ms  verification, as it was
    """
    steps = sample.steps
    walls = [step.wall for step in steps]
    predicted = [step for step in steps if step.roots]
    drafted = sum(step.draft for step in steps)
    by_kind = {kind: [s.wall for s in steps if s.next == kind] for kind in (*HITS, "jit", "empty")}
    return {
        "verify_ms": _ms(bare),
        "step_ms": _ms(walls),
        "step_over_verify": _ratio(_ms(walls), _ms(bare)),
        "mean_step_over_verify": _ratio(_mean(walls), _mean(bare)),
        "draft_ms": _ms([step.draft for step in steps]),
        "hidden_draft_ms": _ms([step.hidden for step in steps]),
        "hidden_share": _ratio(sum(step.hidden for step in steps), drafted),
        "median_hidden_share": median(s.hidden / s.draft for s in steps if s.draft) if drafted else 0.0,
        "rendezvous_us": (_middle(sample.exchanges) + _middle(sample.handovers)) / 1e3,
        "hit_rate": _ratio(sum(step.next in HITS for step in predicted), len(predicted)),
        "hit_rate_by_row": _by_row(predicted),
        "own_share": _own_share(predicted),
        "roots": _mean([step.roots for step in steps]),
        "tokens_per_step": _mean([step.accepted + 1 for step in steps]),
        "glue_ms": _mean([step.glue for step in steps]) / 1e6,
        "pass_ms": _mean([one for step in steps for one in (*step.passes, *step.late)]) / 1e6,
        "beside_pass_ms": _mean([one for step in steps for one in step.passes]) / 1e6,
        "late_pass_ms": _mean([one for step in steps for one in step.late]) / 1e6,
        "beside_draft_verify_ms": _ms([step.verify for step in steps]),
        "steps": len(steps),
        "steps_by_next": {kind: len(of) for kind, of in by_kind.items() if of},
        "step_ms_by_next": {kind: _ms(of) for kind, of in by_kind.items() if of},
        "verify_ms_p10_p90": _spread(bare),
        "step_ms_p10_p90": _spread(walls),
        "draft_ms_p10_p90": _spread([step.draft for step in steps]),
        "hidden_draft_ms_p10_p90": _spread([step.hidden for step in steps]),
    }


def through(row: Mapping[str, Any]) -> str:
    """What a load in the middle of answers did to mode "auto", by a row of `through.measure`."""
    return (
        f"{row['load']}: auto ÷ plain under it {row['under_load']:.2f}, at least {row['least_under_load']:.2f}, "
        f"auto after it ÷ without it {row['recovered']:.2f}"
    )


def disturbed(cores: float | None) -> str | None:
    """What to say where other programs took so many cores meanwhile; None: nothing.

    >>> disturbed(0.5), disturbed(0.1), disturbed(None)
    ('other programs took 0.50 cores meanwhile: measure again when idle', None, None)
    """
    if cores is None or cores <= BUSY:
        return None
    return f"other programs took {cores:.2f} cores meanwhile: measure again when idle"


def quantile(values: Sequence[float], share: float) -> float:
    """Linear between neighbours.

    >>> quantile([1, 2, 3], 0.25)
    1.5
    """
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def _by_row(predicted: Iterable[Step]) -> list[float | None]:
    hits: dict[int, list[bool]] = {}
    for step in predicted:
        hits.setdefault(step.accepted, []).append(step.next in HITS)
    return [_ratio(sum(hits[row]), len(hits[row])) if row in hits else None for row in range(max(hits, default=-1) + 1)]


def _own_share(predicted: Iterable[Step]) -> float | None:
    """Of the outcomes prepared for, how many the draft itself had named; None where there are none."""
    hits = [step.foreseen == "draft" for step in predicted if step.next in HITS]
    return _mean(hits) if hits else None


def _middle(values: Sequence[float]) -> float:
    return median(values) if values else 0.0


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def _ms(values: Sequence[float]) -> float:
    return _middle(values) / 1e6


def _spread(values: Sequence[float]) -> list[float]:
    return [quantile(values, share) / 1e6 for share in (0.1, 0.9)] if values else []


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
