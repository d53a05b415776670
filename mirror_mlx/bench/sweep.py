"""Does the latency law predict? One setting after another is measured in the lab and laid beside `equation.law`.

Each factor is varied alone around the settings given. The parts that go into the law are taken from the same run: the
verification with its tap while no draft runs, the draft's pass, the exchanges, the hit rate and whose the hits are;
what it predicts is the time of a step.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from mirror_mlx.bench import law
from mirror_mlx.bench.equation import FACTORS, Parts
from mirror_mlx.bench.equation import law as predicted
from mirror_mlx.errors import UsageError

Report = Callable[[int, str], None]


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
    """`points`: each setting with what was measured and predicted, ms; `worst_error` and `median_error` over them."""
    todo = list(points(base, factors))
    rows: list[dict[str, Any]] = []
    lab: dict[str, Any] = {}
    for number, point in enumerate(todo):
        label = "base" if point.factor is None else f"{point.factor} {point.value:g}"
        report(number, label)
        found, _ = law.measure(point.settings)
        lab = lab or found["lab"]
        rows.append({"factor": point.factor, "value": point.value} | compared(found, point.settings.predictor))
    report(len(todo), "done")
    errors = [abs(row["error"]) for row in rows]
    return {"points": rows, "worst_error": max(errors), "median_error": median(errors), "lab": lab}


def compared(found: dict[str, Any], predictor: str) -> dict[str, Any]:
    """Figures of one `law.measure` beside the law's. The measured step is the mean over its kinds' medians, so that a
    few disturbed steps do not count."""
    counts, times = found["steps_by_next"], found["step_ms_by_next"]
    measured = sum(counts[kind] * times[kind] for kind in counts) / sum(counts.values())
    parts = Parts(
        found["tapped_verify_ms"], found["tap_ms"] if predictor != "draft" else None, found["pass_ms"], found["passes"],
        found["rendezvous_us"] / 1e3,
    )  # fmt: skip
    share = found["own_share"]
    said = predicted(parts, found["hit_rate"], own=predictor != "tap", own_share=1.0 if share is None else share)
    return {
        "measured_ms": measured, "predicted_ms": said.mean, "error": said.mean / measured - 1,
        "predicted_hit_ms": said.hit, "predicted_miss_ms": said.miss, "step_ms_by_next": times,
        "own_rollout_ms": said.own, "tap_rollout_ms": said.tapped, "fits": max(said.own, said.tapped) <= parts.verify,
        **{name: found[name] for name in ("verify_ms", "tapped_verify_ms", "tap_ms", "pass_ms", "passes", "hit_rate",
                                          "own_share", "tokens_per_step", "hidden_share", "identical",
                                          "other_programs_cores")},
    }  # fmt: skip
