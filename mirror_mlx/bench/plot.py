"""A picture of the two devices over some consecutive steps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mirror_mlx.messages import HITS
from mirror_mlx.trace import Trace

STEPS = 5  # drawn
_COLOURS = {
    "verify, up to the tap": "#1f6fb2",
    "verify, after the tap": "#8fc1e8",
    "waits for the draft": "#d64545",
    "glue": "#2f7d4f",
    "pass": "#8ccf9f",
    "commit": "#c9b458",
}
_MARKS = {"hit": "#2f7d4f", "partial": "#c98a1b", "jit": "#d64545", "empty": "#d64545"}
_WORDS = {"hit": "hit", "partial": "hit, unfinished", "jit": "miss", "empty": "miss"}


def draw(runs: Sequence[Trace], length: int, path: Path, caption: str) -> None:
    """Write the picture: target above, draft below, in ms. Raises OSError where the file cannot be written."""
    from matplotlib.figure import Figure  # no pyplot: nothing here needs a display
    from matplotlib.patches import Patch

    run, first = choose(runs, length)
    lanes = intervals(run, first)
    figure = Figure(figsize=(14, 4), layout="constrained")
    axes = figure.subplots()
    for name, colour in _COLOURS.items():
        bars = [(start, end - start) for start, end in lanes[name]]
        row = 0 if name in ("glue", "pass", "commit") else 1
        axes.broken_barh(bars, (row - 0.32, 0.64), facecolors=colour, edgecolors="white", linewidth=0.6)
    for begin, end, accepted, follows in lanes["steps"]:
        axes.axvline(begin, ymin=0.05, ymax=0.95, color="#777777", linewidth=0.8, linestyle=":")
        text = f"{accepted} of {length} accepted · {_WORDS.get(follows, follows)}"
        axes.text(
            (begin + end) / 2, 1.42, text, ha="center", va="bottom", fontsize=9, color=_MARKS.get(follows, "#555")
        )
    axes.set_yticks([1, 0], ["target", "draft"])
    axes.set_ylim(-0.5, 1.7)
    axes.set_xlabel("ms")
    axes.set_title(caption, fontsize=9, color="#444444", loc="left")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    visible = 2e-3 * max(end for _, end, *_ in lanes["steps"])
    patches = [
        Patch(color=colour, label=name)
        for name, colour in _COLOURS.items()
        if sum(end - start for start, end in lanes[name]) > visible
    ]
    figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False, fontsize=9)
    figure.savefig(path, dpi=140)


def choose(runs: Sequence[Trace], length: int) -> tuple[Trace, int]:
    """The run and step to begin with: the first stretch of full windows, with a miss in it if there is one early."""
    fallback: tuple[Trace, int] | None = None
    for run in runs:
        steps = run.steps
        for first in range(max(1, len(steps) - STEPS)):
            stretch = steps[first : first + STEPS]
            if all(len(step.window.tokens) == length and step.next != "none" for step in stretch):
                fallback = fallback or (run, first)
                kinds = [step.next for step in stretch]
                if len(stretch) == STEPS and any(kind not in HITS for kind in kinds[1:-1]):
                    return run, first
    return fallback or (runs[0], 0)


def intervals(run: Trace, first: int) -> dict[str, list[Any]]:
    """What to draw, in ms from the first step's start: (start, end) by name; "steps": (start, end, accepted, next)."""
    steps = {step.step: step for step in run.steps[first : first + STEPS]}
    verified = {s.step: s for s in run.spans if s.name == "verify" and s.step in steps}
    origin = min(span.start for span in verified.values())
    last = max(span.end for span in verified.values())
    found: dict[str, list[Any]] = {name: [] for name in (*_COLOURS, "steps")}

    def add(name: str, start: int, end: int) -> None:
        found[name].append(((start - origin) / 1e6, (end - origin) / 1e6))

    for span in run.spans:
        if span.name == "collect" and span.step in steps:
            last = max(last, span.end)
            if span.end - span.start > 1e6:  # shorter than that is the rendezvous itself
                add("waits for the draft", span.start, span.end)
    for span in verified.values():
        tap = next((tap for tap in run.taps if span.start < tap < span.end), span.start)
        add("verify, up to the tap", span.start, tap)
        add("verify, after the tap", tap, span.end)
    for span in run.spans:
        if span.lane == "draft" and span.name in found and origin <= span.start < last:
            add(span.name, span.start, min(span.end, last))
    starts = sorted((span.start, step) for step, span in verified.items())
    ends = [start for start, _ in starts[1:]] + [last]
    found["steps"] = [
        ((start - origin) / 1e6, (end - origin) / 1e6, steps[step].outcome.accepted, steps[step].next)
        for (start, step), end in zip(starts, ends, strict=True)
    ]
    return found
