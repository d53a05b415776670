"""A picture of SpecBench: each method's speed-up with its spread, and by task."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from mirror_mlx.bench.spec_figures import OVERALL
from mirror_mlx.bench.spec_run import BASE

_COLOURS = {"peer": "#8a8f98", "serial": "#8fc1e8", "parallel": "#1f6fb2"}


def draw(found: Mapping[str, Any], path: Path, caption: str) -> None:
    """Write the picture, a row of panels for each temperature. Raises OSError where the file cannot be written."""
    from matplotlib.figure import Figure  # no pyplot: nothing here needs a display

    several = any(len(at["tasks"]) > 2 for at in found["temperatures"])
    count = max(len(at["methods"]) for at in found["temperatures"])
    height = (1.2 + 0.28 * count) * len(found["temperatures"]) + 0.5
    figure = Figure(figsize=(14 if several else 8, height), layout="constrained")
    panels = figure.subplots(len(found["temperatures"]), 1 + several, squeeze=False)
    figure.suptitle(caption, fontsize=9, color="#444444", x=0.01, ha="left")
    for row, at in zip(panels, found["temperatures"], strict=True):
        shown = bars(at)
        _bars(row[0], shown, f"temperature {at['temperature']:g}: speed-up over plain decoding")
        if several:
            _by_task(row[1], at)
    picture = BytesIO()
    figure.savefig(picture, dpi=130, format=path.suffix[1:])
    path.write_bytes(picture.getvalue())


def bars(at: Mapping[str, Any]) -> list[tuple[str, float, float, float]]:
    """Of each method that has a speed-up: name, mean, and how far below and above it the runs were."""
    found = []
    for row in at["methods"]:
        value = row["tasks"][OVERALL]["speedup"]
        if value is not None:
            found.append((row["method"], value["mean"], value["mean"] - value["min"], value["max"] - value["mean"]))
    return found


def _bars(axes: Any, shown: Sequence[tuple[str, float, float, float]], title: str) -> None:
    names = [name for name, *_ in shown]
    means = [mean for _, mean, _, _ in shown]
    spreads = [[low for _, _, low, _ in shown], [high for _, _, _, high in shown]]
    places = range(len(shown))
    axes.barh(
        places, means, xerr=spreads, color=[_COLOURS[family(name)] for name in names], height=0.7, error_kw={"lw": 1}
    )
    for place, mean, high in zip(places, means, spreads[1], strict=True):
        axes.annotate(
            f"{mean:.2f}", (mean + high, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.axvline(1, color="#444444", linewidth=0.8, linestyle=":")
    axes.set_yticks(list(places), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_title(title, fontsize=9, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.12)


def family(name: str) -> Literal["peer", "serial", "parallel"]:
    """Whose method this is, and whether its draft works beside the target."""
    if name == BASE or name.startswith("mlx-sd"):
        return "peer"
    return "parallel" if name.startswith(("saguaro", "mirror", "hybrid", "auto")) else "serial"


def _by_task(axes: Any, at: Mapping[str, Any]) -> None:
    rows = [
        [
            float("nan") if cell is None else cell["mean"]
            for cell in (row["tasks"][task]["speedup"] for task in at["tasks"])
        ]
        for row in at["methods"]
    ]
    known = [value for row in rows for value in row if value == value]
    reach = max((abs(value - 1) for value in known), default=1) or 1
    axes.imshow(rows, cmap="RdYlBu", vmin=1 - reach, vmax=1 + reach, aspect="auto")
    for y, row in enumerate(rows):
        for x, value in enumerate(row):
            axes.text(x, y, f"{value:.2f}" if value == value else "–", ha="center", va="center", fontsize=8)
    axes.set_xticks(range(len(at["tasks"])), at["tasks"], fontsize=8, rotation=20)
    axes.set_yticks(range(len(rows)), [row["method"] for row in at["methods"]], fontsize=8)
    axes.set_title(f"temperature {at['temperature']:g}: by task", fontsize=9, loc="left")
    axes.tick_params(length=0)
