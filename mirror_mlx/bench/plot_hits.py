"""A picture of who foresees the outcome: misses by κ and exit layer, hits by row, and the predictors compared."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mirror_mlx.bench.hits import DEPTH, used

_SHADES = ("#8fc1e8", "#4a90c8", "#1f6fb2", "#123f66", "#7a5ea8", "#b06fb0", "#d64545", "#c98a1b")
_DRAFT, _HYBRID = "#2f7d4f", "#d64545"


def draw(found: Mapping[str, Any], path: Path, caption: str) -> None:
    """Write the picture, a row of panels for each temperature. Raises OSError where the file cannot be written."""
    from matplotlib.figure import Figure  # no pyplot: nothing here needs a display

    temperatures = found["temperatures"]
    figure = Figure(figsize=(14, 0.6 + 3.8 * len(temperatures)), layout="constrained")
    panels = figure.subplots(len(temperatures), 3, squeeze=False)
    figure.suptitle(caption, fontsize=9, color="#444444", x=0.01, ha="left")
    for (misses, rows, budgets), tables in zip(panels, temperatures, strict=True):
        title = f"temperature {tables['temperature']:g}: "
        _frame(misses, title + "misses, given a rejection", "κ, roots on every row", found["kappas"])
        _frame(rows, title + f"hits by row, κ {DEPTH}", "accepted proposals", range(len(tables["steps_by_row"])))
        _frame(budgets, title + "hits at equal budgets", "roots of a step", found["per_step"])
        misses.set_ylim(bottom=0)
        rows.set_ylim(0, 1.03)
        for name, style, source in lines(tables):
            _line(misses, found["kappas"], source["by_kappa"]["miss_rate_given_rejection"], name, style)
            _line(rows, range(len(source["by_row"])), source["by_row"], name, style)
        best = next(tap for tap in used(tables) if tap["exit_layer"] == found["exit_layer"])
        for name, colour, source in (
            ("draft", _DRAFT, tables["draft"]),
            (f"tap {best['exit_layer']}", _SHADES[2], best["tap"]),
            ("half each", _HYBRID, best["hybrid"]),
        ):
            _line(budgets, found["per_step"], source["per_step"]["hit_rate"], name, {"color": colour})
        for axes in (misses, rows, budgets):
            axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=140)


def lines(tables: Mapping[str, Any]) -> list[tuple[str, dict[str, Any], Mapping[str, Any]]]:
    """What is drawn by κ and by row: name, style and source. The plain lens is dashed where there is a trained one."""
    layers = sorted({tap["exit_layer"] for tap in tables["taps"]})
    trained = {tap["exit_layer"] for tap in tables["taps"] if tap["lens"] == "trained"}
    found = []
    for tap in tables["taps"]:
        layer, plain = tap["exit_layer"], tap["lens"] == "plain"
        style = {"color": _SHADES[layers.index(layer) % len(_SHADES)], "linestyle": "--" if plain and trained else "-"}
        name = f"tap {layer}" + (f", {tap['lens']}" if layer in trained else "")
        found.append((name, style, tap["tap"]))
    return [*found, ("draft", {"color": _DRAFT}, tables["draft"])]


def _frame(axes: Any, title: str, label: str, ticks: Any) -> None:
    places = range(len(ticks))
    axes.set_title(title, fontsize=9, loc="left")
    axes.set_xlabel(label)
    axes.set_xticks(list(places), [str(tick) for tick in ticks])
    axes.spines[["top", "right"]].set_visible(False)


def _line(axes: Any, ticks: Any, rates: Any, name: str, style: Mapping[str, Any]) -> None:
    """Evenly spaced places for the ticks; a rate that is not known leaves a gap."""
    values = [float("nan") if rate is None else rate for rate in rates]
    axes.plot(range(len(ticks)), values, marker="o", markersize=3.5, linewidth=1.4, label=name, **style)
