"""A run's timeline as text: two lanes, one for each device, over some consecutive steps."""

from collections.abc import Sequence

from mirror_mlx.trace import Lane, Span, Trace

MARKS = {"verify": "█", "collect": "·", "glue": "░", "pass": "▓", "commit": "▪"}
LEGEND = "█ verify  · waits for the window  ░ glue  ▓ draft pass  ▪ commit"
_LABELS: dict[Lane, str] = {"target": "target ", "draft": "draft  "}


def draw(trace: Trace, *, steps: int = 4, width: int = 72) -> list[str]:
    """Lines: a scale, the lanes, what the marks mean. The steps are from the middle of the run.

    >>> trace = Trace()
    >>> trace.add("target", "verify", 0, 0, 6_000_000); trace.add("target", "collect", 0, 6_000_000, 8_000_000)
    >>> trace.add("draft", "glue", 0, 0, 2_000_000); trace.add("draft", "pass", 0, 3_000_000, 7_000_000)
    >>> print("\\n".join(draw(trace, width=8)[:3]))
    8.0 ms
    target ██████··
    draft  ░░ ▓▓▓▓
    """
    spans = [span for span in trace.spans if span.step >= 0]
    numbers = sorted({span.step for span in spans})
    if not numbers:
        return []
    first = numbers[max(0, min(len(numbers) // 2, len(numbers) - steps))]
    shown = [span for span in spans if first <= span.step < first + steps]
    start = min(span.start for span in shown)
    # A step's commit is the draft's, beside the next verification.
    end = max(span.end for span in shown if span.lane == "target") if _has(shown, "target") else shown[-1].end
    lanes = [label + _lane([s for s in shown if s.lane == lane], start, end, width) for lane, label in _LABELS.items()]
    return [f"{(end - start) / 1e6:.1f} ms", *lanes, LEGEND]


def _has(spans: Sequence[Span], lane: Lane) -> bool:
    return any(span.lane == lane for span in spans)


def _lane(spans: Sequence[Span], start: int, end: int, width: int) -> str:
    """Each column shows the span that fills most of it, or nothing where less than half is filled."""
    cell = max((end - start) / width, 1)
    columns = []
    for number in range(width):
        left = start + number * cell
        filled: dict[str, float] = {}
        for span in spans:
            inside = min(span.end, left + cell) - max(span.start, left)
            if inside > 0:
                mark = MARKS.get(span.name, "?")
                filled[mark] = filled.get(mark, 0.0) + inside
        enough = sum(filled.values()) >= cell / 2
        columns.append(max(filled, key=lambda mark: filled[mark]) if enough else " ")
    return "".join(columns)
