"""A picture of a run: `metrics.jsonl` as curves."""

import importlib.util
from pathlib import Path
from typing import Any

from mirror_mlx.train.metrics import read

NAME = "metrics.png"


def missing() -> str | None:
    """Why there will be no picture, or None."""
    if importlib.util.find_spec("matplotlib") is None:
        return f"{NAME} needs matplotlib: pip install 'mirror-mlx[plot]'"
    return None


def draw(folder: Path) -> None:
    """Write metrics.png beside metrics.jsonl. Nothing happens without matplotlib, or before the first line."""
    if missing():
        return
    from matplotlib.figure import Figure

    lines = read(folder / "metrics.jsonl")
    trained = [line for line in lines if "loss" in line]
    held = [line for line in lines if "val_loss" in line]
    others = sorted({name for line in held for name in line} - {"step", "val_loss", "val_answer_loss"})
    if not trained and not held:
        return
    figure = Figure(figsize=(12 if others else 8, 4), layout="constrained")
    panels = figure.subplots(1, 1 + bool(others), squeeze=False)[0]
    _curve(panels[0], trained, "loss", "training", alpha=0.5)
    _curve(panels[0], held, "val_loss", "held out", marker="o", markersize=3)
    _curve(panels[0], held, "val_answer_loss", "held out, answers", marker="o", markersize=3)
    panels[0].set_ylabel("nats a token")
    for name in others:
        _curve(panels[-1], held, name, name.replace("_", " "), marker="o", markersize=3)
    for panel in panels:
        panel.set_xlabel("step")
        panel.spines[["top", "right"]].set_visible(False)
        if panel.get_legend_handles_labels()[0]:
            panel.legend(frameon=False)
    partial = folder / f".{NAME}"
    figure.savefig(partial, dpi=110, format="png")
    partial.replace(folder / NAME)


def _curve(panel: Any, lines: list[dict[str, Any]], name: str, label: str, **style: Any) -> None:
    points = [(line["step"], line[name]) for line in lines if line.get(name) is not None]
    if points:
        panel.plot(*zip(*points, strict=True), label=label, **style)
