"""Pictures of a sweep: window against tokens and time, misses against fan-out and depth, the law against the clock."""

from pathlib import Path
from typing import Any


def draw(found: dict[str, Any], file: Path) -> None:
    """Three panels, as far as the factors were varied: tokens a step and time a token over the window, and how long a
    window fits beside verification; share of misses over κ and over the tap's depth; measured against predicted step
    time, with a band of 5 %."""
    from matplotlib.figure import Figure

    points = found["points"]
    figure = Figure(figsize=(12, 4), layout="constrained")
    window, misses, law = figure.subplots(1, 3)
    base = points[0]

    def over(factor: str) -> list[tuple[float, dict[str, Any]]]:
        given = found["lab"].get(factor)
        own = [] if given is None else [(given, base)]
        return sorted([*own, *((p["value"], p) for p in points if p["factor"] == factor)], key=lambda pair: pair[0])

    if lengths := over("num_draft_tokens"):
        at = [value for value, _ in lengths]
        window.plot(at, [p["tokens_per_step"] for _, p in lengths], "o-", color="tab:blue", label="tokens a step")
        window.set(xlabel="proposals in a window, γ", ylabel="tokens a step", title="Window")
        time = window.twinx()
        time.plot(at, [p["measured_ms"] / p["tokens_per_step"] for _, p in lengths], "s--", color="tab:red")
        time.set_ylabel("ms a token", color="tab:red")
        fitting = [value for value, p in lengths if p["fits"]]
        if fitting:
            window.axvspan(min(at), max(fitting), color="0.93", zorder=0, label="the rollout fits")
        for axes in (window, time):
            axes.margins(y=0.2)
        window.legend(loc="upper center", ncols=2)
    for factor, mark in (("kappa", "o-"), ("exit_layer", "s--")):
        if of := over(factor):
            label = "κ" if factor == "kappa" else "layers before the tap"
            misses.plot([value for value, _ in of], [1 - p["hit_rate"] for _, p in of], mark, label=label)
    misses.set(xlabel="κ, or layers before the tap", ylabel="share of misses", title="Misses")
    misses.set_ylim(bottom=0)
    if misses.lines:
        misses.legend()
    measured, said = [p["measured_ms"] for p in points], [p["predicted_ms"] for p in points]
    ends = [0.9 * min(measured + said), 1.05 * max(measured + said)]
    law.fill_between(ends, [0.95 * e for e in ends], [1.05 * e for e in ends], color="0.9", label="± 5 %")
    law.plot(ends, ends, color="0.6", linewidth=1)
    for fits, mark in ((True, "o"), (False, "x")):
        chosen = [(m, s) for m, s, p in zip(measured, said, points, strict=True) if p["fits"] == fits]
        if chosen:
            law.plot(*zip(*chosen, strict=True), mark, label="rollout fits" if fits else "it does not")
    law.set(xlabel="step measured, ms", ylabel="step predicted, ms", title="Latency law")
    law.legend()
    figure.savefig(file, dpi=150)
