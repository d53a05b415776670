"""The pictures of a report: matplotlib's SVG, made to lie inside a page and to take on its colours, light or dark."""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_INK = "#010203"  # a colour no picture has otherwise: it becomes the page's own
_OTHERS_INK = ("#444444", "#444", "#555", "#262626")
_BLUE, _PALE, _GREY, _GREEN = "#3f83c3", "#86b8de", "#8a8f98", "#2f8f57"
_FAMILIES = {"peer": _GREY, "serial": _PALE, "parallel": _BLUE}
_LONGEST = 48  # characters of a label
_STYLE = {
    "svg.fonttype": "none", "svg.hashsalt": "mirror-mlx", "text.parse_math": False, "text.color": _INK,
    "axes.labelcolor": _INK, "axes.edgecolor": _INK, "axes.titlecolor": _INK, "xtick.color": _INK, "ytick.color": _INK,
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none", "legend.facecolor": "none",
    "legend.edgecolor": "none", "axes.spines.top": False, "axes.spines.right": False, "font.size": 9.0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure and how far below and above it others were."""

    label: str
    value: float
    low: float = 0.0
    high: float = 0.0
    colour: str = _BLUE


def draw(kind: str, found: Any) -> list[str]:
    """The pictures for a file of this kind, each an <svg> element; none where there is nothing to draw."""
    import matplotlib

    pictures = []
    with warnings.catch_warnings(), matplotlib.rc_context(_STYLE), TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # a character that no font has is the browser's business
        for number, save in enumerate(PLOTS.get(kind, _none)(found)):
            file = Path(folder) / f"{number}.svg"
            save(file)
            pictures.append(file.read_text(encoding="utf-8"))
    return pictures


def embedded(svg: str, prefix: str) -> str:
    """An SVG file's element for a page: no prologue, no addresses, names of its own, the page's ink.

    >>> embedded('<?xml version="1.0"?><svg xmlns="u"><path id="a" style="fill: #010203"/></svg>', "p1")
    '<svg><path id="p1-a" style="fill: currentColor"/></svg>'
    """
    svg = svg[svg.index("<svg") : svg.rindex("</svg>") + 6]
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<style.*?</style>", "", svg, flags=re.DOTALL)
    head, rest = svg.split(">", 1)
    svg = re.sub(r'\s+(xmlns(:\w+)?|version|width|height)="[^"]*"', "", head) + ">" + rest
    svg = re.sub(r"(<[^<>]*\s)xlink:href=", r"\1href=", svg)
    svg = re.sub(r'(<[^<>]*\sid=")', rf"\1{prefix}-", svg)
    svg = re.sub(r'(href="#|url\(#)', rf"\1{prefix}-", svg)
    return re.sub(r"(?<=[:\s])(" + "|".join((_INK, *_OTHERS_INK)) + r")(?=[;\"])", "currentColor", svg)


def _none(found: Any) -> Iterator[Callable[[Path], None]]:
    return iter(())


def _bars(bars: Sequence[Bar], title: str, unit: str, line: float | None = None) -> Callable[[Path], None]:
    """Horizontal bars with their figures behind them, and a dotted line at `line`."""

    def save(file: Path) -> None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(10, 0.9 + 0.3 * len(bars)), layout="constrained")
        axes = figure.subplots()
        places = range(len(bars))
        spread = [[max(0.0, bar.low) for bar in bars], [max(0.0, bar.high) for bar in bars]]
        values = [bar.value for bar in bars]
        axes.barh(
            places, values, xerr=spread if any(map(any, spread)) else None, color=[bar.colour for bar in bars],
            height=0.7, error_kw={"lw": 1, "ecolor": _INK},
        )  # fmt: skip
        for place, bar in zip(places, bars, strict=True):
            number = f"{bar.value:.2f}" if bar.value < 10 else f"{bar.value:.1f}"
            at = (bar.value + max(0.0, bar.high), place)
            axes.annotate(number, at, xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
        if line is not None:
            axes.axvline(line, color=_INK, linewidth=0.8, linestyle=":")
        axes.set_yticks(list(places), [_brief(bar.label) for bar in bars])
        axes.invert_yaxis()
        axes.set_xlabel(unit)
        axes.set_title(title, fontsize=9, loc="left")
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.12)
        figure.savefig(file)

    return save


def _brief(label: str) -> str:
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"


def _law(found: Any) -> Iterator[Callable[[Path], None]]:
    bars = [_spread(found, "verify_ms", "bare verify", _GREY), _spread(found, "step_ms", "step, paced draft", _BLUE)]
    free = found.get("unpaced")
    if free:
        bars.append(_spread(free, "step_ms", "step, draft at its own speed", _PALE))
    bars += [
        _spread(found, "draft_ms", "draft busy", _GREEN),
        _spread(found, "hidden_draft_ms", "of it hidden", _GREEN),
    ]
    verify = float(found["verify_ms"])
    yield _bars(bars, "A step, and what it is made of: medians, p10 to p90", "ms", verify)


def _spread(found: Mapping[str, Any], key: str, label: str, colour: str) -> Bar:
    value = float(found[key])
    low, high = found.get(f"{key}_p10_p90") or (value, value)
    return Bar(label, value, value - low, high - value, colour)


def _sweep(found: Any) -> Iterator[Callable[[Path], None]]:
    from mirror_mlx.bench import plot_sweep

    yield lambda file: plot_sweep.draw(found, file)


def _tap(found: Any) -> Iterator[Callable[[Path], None]]:
    from mirror_mlx.bench import plot_hits

    yield lambda file: plot_hits.draw(found, file, "")


def _spec(found: Any) -> Iterator[Callable[[Path], None]]:
    from mirror_mlx.bench.plot_spec import bars, family

    for at in found["temperatures"]:
        shown = [Bar(name, mean, low, high, _FAMILIES[family(name)]) for name, mean, low, high in bars(at)]
        if shown:
            yield _bars(shown, f"temperature {at['temperature']:g}: speed-up over plain decoding, all runs", "×", 1.0)


def _speeds(rows: Sequence[Mapping[str, Any]], name: str) -> Iterator[Callable[[Path], None]]:
    for temperature in dict.fromkeys(row["temperature"] for row in rows):
        of = [row for row in rows if row["temperature"] == temperature]
        bars = [
            Bar(str(row[name]), float(row["tokens_per_second"]), colour=_PALE if row.get("mode") == "sd" else _BLUE)
            for row in of
        ]
        yield _bars(bars, f"temperature {temperature:g}: tokens a second", "tokens/s")


def _contend(found: Any) -> Iterator[Callable[[Path], None]]:
    bars = []
    for row in found["loads"]:
        bars += [
            Bar(f"{row['load']}: plain", float(row["plain_tokens_per_second"]), colour=_GREY),
            Bar("mirror", float(row["tokens_per_second"])),
        ]
    if bars:
        yield _bars(bars, "Tokens a second beside a busy program", "tokens/s")


def _training(found: Any) -> Iterator[Callable[[Path], None]]:
    bars = [
        Bar(f"{row['kind']}, {row['batch_size']} × {row.get('length', '?')}", float(row["tokens_per_second"]))
        for row in found
    ]
    yield _bars(bars, "Tokens a second", "tokens/s")


PLOTS: Mapping[str, Callable[[Any], Iterator[Callable[[Path], None]]]] = {
    "law": _law, "sweep": _sweep, "tap": _tap, "spec": _spec, "contend": _contend, "training": _training,
    "variants": lambda found: _speeds(found["variants"], "variant"),
    "hosts": lambda found: _speeds(found["hosts"], "host"),
}  # fmt: skip
"""By kind: what writes each picture into a file."""
