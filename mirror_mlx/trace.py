"""The timeline of a run: spans on two lanes, in ns. Feeds the stats and `--trace FILE`; takes no decisions."""

import json
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

from mirror_mlx.messages import HITS, Fault, Outcome, Window

Lane = Literal["target", "draft"]
clock = time.perf_counter_ns


@dataclass(frozen=True, slots=True)
class Span:
    """Work of one device: [start, end) in ns of `clock`."""

    lane: Lane
    name: str
    step: int
    start: int
    end: int


@dataclass(slots=True)
class StepTrace:
    """What one step did. Times in ns.

    window      the proposals verified, and where they came from
    outcome     how verification ended
    roots       how many outcomes were prepared for
    next        the source of the window for the step after
    busy        from when its window was there to its commit, and the wait for the next window
    waited      the wait alone
    foreseen    who named the outcome, "draft" or "tap", where the next window is a hit
    mode        "mirror", "sd" or "ar": how it was done
    predictor   who was asked to name outcomes; "": nobody
    place       which of the roots was the outcome, from 0 on; None: none of them
    thought     what was thought beside the verification of how to go on
    """

    step: int
    window: Window
    outcome: Outcome
    roots: int = 0
    next: str = "none"
    busy: int = 0
    waited: int = 0
    foreseen: str | None = None
    mode: str = "ar"
    predictor: str = ""
    place: int | None = None
    thought: int = 0

    @property
    def guessed(self) -> bool | None:
        """Whether the draft has known the target's own token when it proposed the window; None: not all of that held,
        or it had no idea."""
        if self.outcome.accepted < len(self.window.tokens) or not self.window.beyond:
            return None
        return self.window.beyond[0] == self.outcome.token


@dataclass(slots=True)
class Trace:
    """One run's spans and steps. Each lane is written by its own thread; list.append is atomic."""

    spans: list[Span] = field(default_factory=list)
    steps: list[StepTrace] = field(default_factory=list)
    exchanges: list[int] = field(default_factory=list)
    """Time from posting the tap's ids until the draft's thread has them, ns."""
    taps: list[int] = field(default_factory=list)
    """When each of them was there, read from the target's device."""
    fault: Fault | None = None

    @contextmanager
    def span(self, lane: Lane, name: str, step: int) -> Iterator[None]:
        start = clock()
        try:
            yield
        finally:
            self.add(lane, name, step, start, clock())

    def add(self, lane: Lane, name: str, step: int, start: int, end: int) -> None:
        self.spans.append(Span(lane, name, step, start, end))

    def chrome(self) -> dict[str, Any]:
        """The run in the Trace Event format that Perfetto and chrome://tracing open: one lane for each device."""
        lanes = {"target": 1, "draft": 2}
        names = {"target": "target (GPU)", "draft": "draft (Neural Engine)"}
        origin = min((span.start for span in self.spans), default=0)
        events: list[dict[str, Any]] = [
            {"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": names[lane]}}
            for lane, tid in lanes.items()
        ]
        details = {step.step: step for step in self.steps}
        for span in self.spans:
            event: dict[str, Any] = {
                "ph": "X",
                "pid": 1,
                "tid": lanes[span.lane],
                "name": span.name,
                "cat": span.lane,
                "ts": (span.start - origin) / 1e3,
                "dur": (span.end - span.start) / 1e3,
                "args": {"step": span.step},
            }
            if span.name == "verify" and span.step in details:
                step = details[span.step]
                event["args"] |= {
                    "window": list(step.window.tokens),
                    "source": step.window.source,
                    "accepted": step.outcome.accepted,
                    "token": step.outcome.token,
                    "roots": step.roots,
                    "next": step.next,
                    "foreseen": step.foreseen,
                }
            events.append(event)
        for tap in self.taps:
            events.append({"ph": "i", "s": "t", "pid": 1, "tid": 1, "name": "tap", "ts": (tap - origin) / 1e3})
        return {"traceEvents": events, "displayTimeUnit": "ms"}

    def write(self, path: str | Path) -> None:
        """Write the timeline as JSON. Raises OSError where the file cannot be written."""
        Path(path).write_text(json.dumps(self.chrome()))


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures of one run. Milliseconds are per step (medians); rates are in [0, 1].

    tokens_per_step     emitted tokens ÷ verifications; plain decoding is 1
    hit_rate            share of outcomes that were roots, of the steps that were to prepare a window; by row: by how
                        many proposals were accepted
    draft_ms            the draft's busy time; hidden_draft_ms: the part of it beside a busy target
    rendezvous_us       both exchanges: tap ids out, finished window back
    mode, reason        what decoded last, and why if that is not what was asked for
    tokens_by_mode      how many tokens each mode decoded
    windows_by_length   of the steps that speculated, how many had so many proposals verified
    exposed_draft_ms    how long the target waited for the draft, mean
    gain                measured tokens a second ÷ plain decoding's, in mode auto; None: nobody has measured
    setting, tried      what was decided last, and everything that was, one after the other
    draft_host          where the draft ran, and why there
    """

    steps: int = 0
    tokens: int = 0
    tokens_per_step: float = 0.0
    drafted: int = 0
    accepted: int = 0
    hit_rate: float = 0.0
    hit_rate_by_row: tuple[float | None, ...] = ()
    draft_ms: float = 0.0
    hidden_draft_ms: float = 0.0
    rendezvous_us: float = 0.0
    verify_ms: float = 0.0
    step_ms: float = 0.0
    prompt_tokens: int = 0
    prompt_tps: float = 0.0
    generation_tps: float = 0.0
    mode: str = "ar"
    tokens_by_mode: dict[str, int] = field(default_factory=dict)
    windows_by_length: dict[int, int] = field(default_factory=dict)
    reason: str = ""
    exposed_draft_ms: float = 0.0
    gain: float | None = None
    setting: str = ""
    tried: tuple[str, ...] = ()
    draft_host: str = ""

    def as_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def overlap(spans: list[tuple[int, int]], others: list[tuple[int, int]]) -> int:
    """How much of `spans` lies inside `others`. Both sorted and free of overlaps among themselves.

    >>> overlap([(0, 10), (20, 30)], [(5, 25)])
    10
    """
    total = i = 0
    for start, end in spans:
        while i < len(others) and others[i][1] <= start:
            i += 1
        j = i
        while j < len(others) and others[j][0] < end:
            total += min(end, others[j][1]) - max(start, others[j][0])
            j += 1
    return total


def handovers(trace: Trace) -> list[int]:
    """For each window that the draft made: from its being there, and asked for, until the engine has it, ns. A wait for
    passes under way is not part of it."""
    ends = sorted(span.end for span in trace.spans if span.lane == "draft" and span.name == "pass")
    made = {step.step for step in trace.steps if step.next in (*HITS, "jit")}
    found = []
    for span in trace.spans:
        if span.name == "collect" and span.step in made:
            before = bisect_right(ends, span.end)
            found.append(span.end - max(span.start, ends[before - 1] if before else 0))
    return found


def summarise(trace: Trace, *, tokens: int, reason: str, **rates: float | int) -> Stats:
    """Stats of a run from its trace."""
    verify: dict[int, tuple[int, int]] = {s.step: (s.start, s.end) for s in trace.spans if s.name == "verify"}
    draft: dict[int, list[tuple[int, int]]] = {}
    for span in trace.spans:
        if span.lane == "draft" and span.step >= 0:
            draft.setdefault(span.step, []).append((span.start, span.end))
    busy = [sum(end - start for start, end in spans) for spans in draft.values()]
    hidden = [overlap(spans, [verify[step]]) for step, spans in draft.items() if step in verify]
    predicted = [step for step in trace.steps if step.next != "none"]
    hits = [step for step in predicted if step.next in HITS]
    rows = 1 + max((step.outcome.accepted for step in predicted), default=-1)
    by_row = tuple(
        (sum(s.outcome.accepted == row for s in hits) / n) if n else None
        for row in range(rows)
        for n in [sum(s.outcome.accepted == row for s in predicted)]
    )
    drafted = [step for step in trace.steps if step.mode != "ar"]
    by_mode: dict[str, int] = {}
    for step in trace.steps:
        by_mode[step.mode] = by_mode.get(step.mode, 0) + step.outcome.accepted + 1
    return Stats(
        steps=len(trace.steps),
        tokens=tokens,
        tokens_per_step=tokens / len(trace.steps) if trace.steps else 0.0,
        drafted=sum(len(step.window.tokens) for step in trace.steps),
        accepted=sum(step.outcome.accepted for step in trace.steps),
        hit_rate=len(hits) / len(predicted) if predicted else 0.0,
        hit_rate_by_row=by_row,
        draft_ms=median(busy) / 1e6 if busy else 0.0,
        hidden_draft_ms=median(hidden) / 1e6 if hidden else 0.0,
        rendezvous_us=sum(median(of) for of in (trace.exchanges, handovers(trace)) if of) / 1e3,
        verify_ms=median(e - s for s, e in verify.values()) / 1e6 if verify else 0.0,
        step_ms=median(step.busy for step in trace.steps) / 1e6 if trace.steps else 0.0,
        mode=trace.steps[-1].mode if trace.steps else "ar",
        tokens_by_mode=by_mode,
        windows_by_length=dict(sorted(Counter(len(step.window.tokens) for step in drafted).items())),
        exposed_draft_ms=fmean(step.waited for step in drafted) / 1e6 if drafted else 0.0,
        reason=reason,
        **rates,  # type: ignore[arg-type]
    )
