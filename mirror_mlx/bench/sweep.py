"""Does the latency law predict? One setting after another is measured in the lab and laid beside `equation.law`.

Each factor is varied alone around the settings given. The parts that go into the law are taken from the same run: the
target's verification and the draft's passes, each beside the other (two cores share a memory, as two devices do), the
hand-overs, the hit rate and whose the hits are; what it predicts is the time of a step. What it would say from a
verification without a draft anywhere is beside that: how much they disturb each other is what is between the two.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from statistics import fmean, median
from typing import Any

from mirror_mlx.bench import law
from mirror_mlx.bench.equation import FACTORS, Parts
from mirror_mlx.bench.equation import law as predicted
from mirror_mlx.bench.figures import Step, steps_of
from mirror_mlx.errors import UsageError

Report = Callable[[int, str], None]
_SHOWN = (
    "verify_ms", "tapped_verify_ms", "beside_draft_verify_ms", "commit_ms", "tap_ms", "glue_ms", "beside_pass_ms",
    "late_pass_ms", "passes", "roots", "width", "rendezvous_us", "hit_rate", "own_share", "tokens_per_step",
    "hidden_share", "identical", "other_programs_cores",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One setting: the factor that differs from the base and its value; the base itself has none."""

    factor: str | None
    value: float | None
    settings: law.Settings


def points(base: law.Settings, factors: Sequence[str] = tuple(FACTORS)) -> Iterator[Point]:
    """The base, then each factor's other values."""
    base = replace(base, unpaced=False)
    yield Point(None, None, base)
    for factor in factors:
        if factor not in FACTORS:
            raise UsageError(f"there is no factor {factor!r}: choose from {', '.join(FACTORS)}")
        for value in FACTORS[factor]:
            if getattr(base, factor) != value:
                yield Point(factor, value, replace(base, **{factor: value}))


def measure(base: law.Settings, factors: Sequence[str], report: Report = lambda done, what: None) -> dict[str, Any]:
    """`points`: each setting with what was measured and predicted, ms; `worst_error` and `median_error` over them, and
    the same from the target's times alone."""
    todo = list(points(base, factors))
    rows: list[dict[str, Any]] = []
    lab: dict[str, Any] = {}
    for number, point in enumerate(todo):
        label = "base" if point.factor is None else f"{point.factor} {point.value:g}"
        report(number, label)
        measured, runs = law.measure(point.settings)
        steps = [step for run in runs for step in steps_of(run, point.settings.num_draft_tokens)]
        lab = lab or measured["lab"]
        row = compared(measured, steps, point.settings.predictor)
        rows.append({"factor": point.factor, "value": point.value} | row)
    report(len(todo), "done")
    found: dict[str, Any] = {"points": rows, "lab": lab}
    for name in ("error", "alone_error"):
        errors = [abs(row[name]) for row in rows]
        found |= {f"worst_{name}": max(errors), f"median_{name}": median(errors)}
    return found


def compared(found: dict[str, Any], steps: Sequence[Step], predictor: str) -> dict[str, Any]:
    """Figures of one `law.measure` beside the law's, which is asked for every one of its steps: verifications and
    passes vary, and who waits for the slower of two waits longer than for the slower of their means."""
    parts = Parts(
        found["beside_draft_verify_ms"] + found["commit_ms"], found["tap_ms"] if predictor != "draft" else None,
        found["beside_pass_ms"] or found["pass_ms"], found["passes"], found["rendezvous_us"] / 1e3, found["glue_ms"],
        found["late_pass_ms"] or None, ceil(found["roots"] / found["width"]) if found["width"] else 1,
    )  # fmt: skip
    share = 1.0 if found["own_share"] is None else found["own_share"]
    asked = partial(predicted, hit_rate=found["hit_rate"], own=predictor != "tap", own_share=share)
    said = [asked(_of(step, parts, found)) for step in steps]
    usual, alone = asked(parts), asked(replace(parts, verify=found["tapped_verify_ms"]))
    measured, expected = (fmean(times) for times in ([step.wall / 1e6 for step in steps], [one.mean for one in said]))
    return {
        "measured_ms": measured, "predicted_ms": expected, "error": expected / measured - 1,
        "alone_error": alone.mean / measured - 1,
        "predicted_hit_ms": fmean(one.hit for one in said), "predicted_miss_ms": fmean(one.miss for one in said),
        "step_ms_by_next": found["step_ms_by_next"],
        "own_rollout_ms": usual.own, "tap_rollout_ms": usual.tapped,
        "fits": max(usual.own, usual.tapped) <= parts.verify,
        **{name: found[name] for name in _SHOWN},
    }  # fmt: skip


def _of(step: Step, parts: Parts, found: dict[str, Any]) -> Parts:
    """The parts of one step: its own where it has them."""
    verify = step.verify / 1e6
    return replace(
        parts, verify=verify + found["commit_ms"],
        tap=None if parts.tap is None else parts.tap * verify / found["beside_draft_verify_ms"],
        one_pass=fmean(step.passes) / 1e6 if step.passes else parts.one_pass,
        glue=step.glue / 1e6 if step.glue else parts.glue,
    )  # fmt: skip
