"""A Trace Event file as lanes of spans, for a page to draw. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LANES = 12  # more than these are another program's, and no timeline of two devices
_SHOWN = 6  # steps in view at first
_NOTES = ("source", "accepted", "token", "roots", "next", "foreseen")
_COLOURS = {
    "verify": "#3f83c3", "collect": "#d9534f", "glue": "#2f8f57", "pass": "#7cc596", "commit": "#cdb44f",
    "prefill": "#8a8f98",
}  # fmt: skip
_MORE = ("#a06cc0", "#4fb0b8", "#d98f3e", "#c46a9a", "#7d8f4a", "#6b7fd1")


@dataclass(frozen=True, slots=True)
class Span:
    """Work on a lane, µs from the file's first; step: None where it belongs to none; note: what is known of it."""

    lane: int
    name: str
    step: int | None
    start: float
    duration: float
    note: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """lanes: their names, top to bottom; spans: in order of time."""

    lanes: Sequence[str]
    spans: Sequence[Span]

    @classmethod
    def of(cls, data: Any) -> "Timeline":
        """From the object of a file. Complete events alone count. Raises ValueError where there is none."""
        events = data["traceEvents"] if isinstance(data, Mapping) else data
        named = {
            (event.get("pid"), event.get("tid")): str(event["args"]["name"])
            for event in events
            if event.get("ph") == "M" and event.get("name") == "thread_name"
        }
        complete = [event for event in events if event.get("ph") == "X"]
        places = {(event.get("pid"), event.get("tid")) for event in complete}
        order = [place for place in named if place in places]
        order += sorted(places - set(order), key=str)
        if not complete or len(order) > LANES:
            raise ValueError(f"{len(complete)} spans on {len(order)} lanes")
        origin = min(float(event["ts"]) for event in complete)
        spans = [
            Span(
                order.index((event.get("pid"), event.get("tid"))), str(event["name"]), _step(event),
                float(event["ts"]) - origin, max(0.0, float(event.get("dur", 0))), _note(event),
            )
            for event in complete
        ]  # fmt: skip
        names = [named.get(place, f"lane {number}") for number, place in enumerate(order, start=1)]
        return cls(names, sorted(spans, key=lambda span: span.start))

    @property
    def colours(self) -> dict[str, str]:
        """Of each name, in the order they come."""
        names = dict.fromkeys(span.name for span in self.spans)
        others = [name for name in names if name not in _COLOURS]
        return {name: _COLOURS.get(name) or _MORE[others.index(name) % len(_MORE)] for name in names}

    def view(self) -> tuple[float, float]:
        """What is shown at first, µs: the first steps after the prompt, or everything where there are no steps."""
        end = max(span.start + span.duration for span in self.spans)
        steps = sorted({span.step for span in self.spans if span.step is not None and span.step >= 0})
        if len(steps) <= _SHOWN:
            return 0.0, end
        first = [span for span in self.spans if span.step is not None and steps[1] <= span.step <= steps[_SHOWN]]
        return min(span.start for span in first), max(span.start + span.duration for span in first)

    def payload(self) -> dict[str, Any]:
        """What the page's script reads. spans: [lane, name, step, start, duration, note], name by its number."""
        names = list(self.colours)
        number = {name: i for i, name in enumerate(names)}
        return {
            "lanes": list(self.lanes),
            "names": names,
            "colours": [self.colours[name] for name in names],
            "view": [round(moment, 1) for moment in self.view()],
            "spans": [
                [s.lane, number[s.name], s.step, round(s.start, 2), round(s.duration, 2), s.note] for s in self.spans
            ],
        }


def _step(event: Mapping[str, Any]) -> int | None:
    step = (event.get("args") or {}).get("step")
    return None if step is None else int(step)


def _note(event: Mapping[str, Any]) -> str:
    args = event.get("args") or {}
    return ", ".join(f"{name} {args[name]}" for name in _NOTES if isinstance(args.get(name), str | int))
