"""What a report says of each kind of file: its tables, with the columns a reader needs, and a few sentences. Pure."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from mirror_mlx.bench.figures import disturbed, through
from mirror_mlx.bench.report_text import Column, Table, Text, between, cell, megabytes, table, text, titled
from mirror_mlx.bench.report_timeline import Timeline

_LAW = (
    ("verify_ms", "bare verify, ms"),
    ("step_ms", "step, ms"),
    ("step_over_verify", "step ÷ bare verify"),
    ("draft_ms", "draft busy, ms"),
    ("hidden_draft_ms", "of it hidden, ms"),
    ("hidden_share", "share hidden, all steps"),
    ("pass_ms", "one draft pass, ms"),
    ("tap_ms", "tap, ms"),
    ("rendezvous_us", "rendezvous, µs"),
    ("hit_rate", "hit rate"),
    ("tokens_per_step", "tokens per step"),
    ("steps", "steps"),
)
_SWEEP: Sequence[Column] = (
    ("setting", "setting", None), ("verify_ms", "verify ms", "{:.1f}"), ("tap_ms", "tap ms", "{:.1f}"),
    ("pass_ms", "pass ms", "{:.1f}"), ("passes", "J", None), ("hit_rate", "hits", "{:.0%}"),
    ("tokens_per_step", "tok/step", "{:.2f}"), ("measured_ms", "step ms", "{:.1f}"),
    ("predicted_ms", "law ms", "{:.1f}"), ("error", "error", "{:+.1%}"), ("identical", "as plain", None),
)  # fmt: skip
_VARIANTS: Sequence[Column] = (
    ("variant", "variant", None), ("tokens_per_step", "tok/step", "{:.2f}"), ("hit_rate", "hits", "{:.0%}"),
    ("passes_per_window", "J", "{:.1f}"), ("tokens_per_pass", "η̄", "{:.2f}"), ("pass_ms", "pass ms", "{:.1f}"),
    ("window_ms", "window ms", "{:.1f}"), ("verify_ms", "verify ms", "{:.1f}"),
    ("tokens_per_second", "tok/s", "{:.1f}"), ("steps", "steps", None), ("identical", "as plain", None),
)  # fmt: skip
_AGAINST: Sequence[Column] = (
    ("variant", "variant", None), ("temperature", "temperature", "{:g}"),
    ("window_time_ratio", "time of a window", "{:.2f}"), ("tokens_per_step_ratio", "tokens a step", "{:.2f}"),
)  # fmt: skip
_HOSTS: Sequence[Column] = (
    ("host", "host", None), ("same_proposals", "proposals as mlx", "{:.2%}"), ("proposals", "of", None),
    ("tokens_per_step", "tok/step", "{:.2f}"), ("draft_ms", "draft ms a step", "{:.1f}"),
    ("tokens_per_second", "tok/s", "{:.1f}"), ("speed", "÷ mlx", "{:.2f}"), ("identical", "as plain", None),
)  # fmt: skip
_CONTEND: Sequence[Column] = (
    ("load", "busy", None), ("plain_tokens_per_second", "plain tok/s", "{:.1f}"),
    ("tokens_per_second", "mirror tok/s", "{:.1f}"), ("speed", "÷ plain", "{:.2f}"),
    ("speed_min_max", "of single answers", lambda value: between(value, "{:.2f}")),
    ("step_ms", "step ms", "{:.1f}"), ("verify_ms", "verify ms", "{:.1f}"), ("hit_rate", "hits", "{:.0%}"),
    ("hidden_share", "draft hidden", "{:.0%}"), ("identical", "as plain", None),
    ("load_cores", "load, cores", "{:.2f}"),
)  # fmt: skip
_AUTO: Sequence[Column] = (
    ("draft", "draft", None), ("params", "parameters", "{:,}"), ("target_ms", "target ms", "{:g}"),
    ("plain_tokens_per_second", "plain tok/s", "{:.1f}"), ("tokens_per_second", "auto tok/s", "{:.1f}"),
    ("speed", "÷ plain", "{:.3f}"),
    ("speed_error", "±", "{:.3f}"), ("speed_min_max", "of single answers", lambda value: between(value, "{:.2f}")),
    ("tokens", "tokens", None),
    ("identical", "as plain", None),
)  # fmt: skip
_CHOICES: Sequence[Column] = (
    ("params", "parameters", "{:,}"), ("target_ms", "target ms", "{:g}"), ("pass_ms", "pass ms", "{:g}"),
    ("temperature", "temperature", "{:g}"), ("prompts", "prompts", None), ("plain", "plain tok/s", "{:.1f}"),
    ("best", "best fixed", None), ("best_rate", "tok/s", "{:.1f}"), ("auto", "auto tok/s", "{:.1f}"),
    ("share", "of the best", "{:.2f}"), ("share_error", "±", "{:.2f}"),
    ("hybrid", "hybrid ÷ parts", "{:.2f}"), ("hits", "hits", "{:.2f}"), ("hits_error", "±", "{:.2f}"),
    ("draft_hits", "draft's", "{:.2f}"), ("tap_hits", "tap's", "{:.2f}"),
    ("plan_error", "plan off by", "{:.0%}"), ("identical", "as plain", None),
)  # fmt: skip
_THROUGH: Sequence[Column] = (
    ("load", "busy", None), ("mode", "mode", None), ("before", "before, tok/s", "{:.1f}"),
    ("under", "under it", "{:.1f}"), ("after", "after it", "{:.1f}"),
)  # fmt: skip
_PLAN: Sequence[Column] = (
    ("setting", "setting", None), ("step_ms", "step ms", "{:.1f}"), ("hit_ms", "hit ms", "{:.1f}"),
    ("miss_ms", "miss ms", "{:.1f}"), ("tokens_per_step", "tok/step", "{:.2f}"),
    ("tokens_per_second", "tok/s", "{:.1f}"), ("speed", "÷ plain", "{:.2f}"),
)  # fmt: skip
_CONVERT: Sequence[Column] = (
    ("precision", "precision", None), ("seconds", "seconds", "{:.1f}"), ("peak_bytes", "peak, MB", megabytes),
    ("peak_ratio", "× draft", "{:.2f}"), ("peak_ratio_above_baseline", "without Python", "{:.2f}"),
    ("packages", "packages", None), ("largest_package_bytes", "largest, MB", megabytes),
    ("below_limit", "< 1 GB", None), ("head_part_rows", "head rows", None),
)  # fmt: skip
_TRAINING: Sequence[Column] = (
    ("kind", "kind", None), ("batch_size", "rows", None), ("length", "length", None),
    ("tokens_per_second", "tokens/s", "{:.0f}"), ("step_s", "step, s", "{:.2f}"), ("peak_mb", "peak, MB", "{:,.0f}"),
)  # fmt: skip


def _law(found: Any) -> Text:
    free = found.get("unpaced")
    rows = []
    for key, name in _LAW:
        row = {"medians": name, "paced": text(found.get(key)), "p10 … p90": between(found.get(f"{key}_p10_p90"))}
        rows.append(row | ({"own speed": text(free.get(key))} if free else {}))
    kinds = [
        {"next window": kind, "steps": found["steps_by_next"][kind], "step, ms": ms}
        for kind, ms in found["step_ms_by_next"].items()
    ]
    rates = enumerate(found["hit_rate_by_row"])
    hits = [{"accepted": row, "hit rate": rate} for row, rate in rates if rate is not None]
    lines = [
        f"A rollout takes {text(found['draft_serial_ms'])} ms in passes, {found['draft_serial_over_verify']:.2f} of a "
        f"bare verify; it has {text(found['after_glue_ms'])} ms after the glue and {text(found['after_tap_ms'])} ms "
        f"after the tap: it {'fits' if found['fits'] else 'does not fit'}."
    ]
    tables = [table("", rows), table("By the window that came next", kinds), table("Hits by accepted proposals", hits)]
    return Text(found["lab"], tables, [*lines, *_trust([found], found)])


def _sweep(found: Any) -> Text:
    rows = [
        point | {"setting": "as given" if point["factor"] is None else f"{titled(point['factor'])} {point['value']:g}"}
        for point in found["points"]
    ]
    line = f"Error of the law: median {found['median_error']:.1%}, largest {found['worst_error']:.1%}."
    return Text(found["lab"], [table("", rows, _SWEEP)], [line, *_trust(rows, {})])


def _spec(found: Any) -> Text:
    from mirror_mlx.bench import spec_tables

    facts = dict(zip(("pair", "questions", "decoding", "machine"), spec_tables.setup(found), strict=False))
    return Text(facts, list(spec_tables.tables(found)), [*spec_tables.verdict(found), *spec_tables.remarks(found)])


def _tap(found: Any) -> Text:
    tables = []
    for at in found["temperatures"]:
        sources = [("draft", at["draft"])]
        for tap in at["taps"]:
            name = f"tap {tap['exit_layer']}" + (", trained" if tap["lens"] == "trained" else "")
            sources += [(name, tap["tap"]), (f"{name} + draft", tap["hybrid"])]
        title = f"temperature {at['temperature']:g}"
        for part, counts, what in (
            ("by_kappa", found["kappas"], "hit rate, κ roots on every row"),
            ("per_row", found["per_row"], "hit rate, roots on a row in all"),
            ("per_step", found["per_step"], "hit rate, roots in a step in all"),
        ):
            rows = [[name, *(cell(rate, "{:.3f}") for rate in source[part]["hit_rate"])] for name, source in sources]
            tables.append(Table(f"{title}: {what}", ["", *map(str, counts)], rows))
        rows = [[name, *(cell(rate, "{:.3f}") for rate in source["by_row"])] for name, source in sources]
        rows.append(["steps", *map(text, at["steps_by_row"])])
        accepted = map(str, range(len(at["steps_by_row"])))
        tables.append(Table(f"{title}: hit rate by accepted proposals", ["", *accepted], rows))
    return Text(found["setup"], tables, [f"Best exit layer: {text(found['exit_layer'])}."])


def _by_temperature(rows: Sequence[Mapping[str, Any]], columns: Sequence[Column]) -> list[Table]:
    found = dict.fromkeys(row["temperature"] for row in rows)
    return [table(f"temperature {t:g}", [row for row in rows if row["temperature"] == t], columns) for t in found]


def _variants(found: Any) -> Text:
    tables = _by_temperature(found["variants"], _VARIANTS)
    if found.get("streaming"):
        tables.append(table("Streaming ÷ autoregressive draft", found["streaming"], _AGAINST))
    return Text(found["setup"], tables, _trust(found["variants"], found["setup"]))


def _hosts(found: Any) -> Text:
    return Text(found["setup"], _by_temperature(found["hosts"], _HOSTS), _trust(found["hosts"], found["setup"]))


def _contend(found: Any) -> Text:
    alone = [row.get("load_cores") or 0 for row in found["loads"] if row.get("kind") == "none"]
    lines = _trust(found["loads"], {"other_programs_cores": max(alone, default=0)})
    return Text(found["setup"], [table("", found["loads"], _CONTEND)], lines)


def _auto(found: Any) -> Text:
    return Text(found["setup"], [table("", found["drafts"], _AUTO)], _trust(found["drafts"], found["setup"]))


def _choices(found: Any) -> Text:
    rows = [row | {"plan_error": row["plan"]["error"]} for row in found["settings"]]
    line = f"Mode auto reaches at least {found['worst_share']:.2f} of the best fixed setting."
    return Text(found["setup"], [table("", rows, _CHOICES)], [line, *_trust(rows, found["setup"])])


def _through(found: Any) -> Text:
    rows = [
        {"load": row["load"], "mode": mode} | rates for row in found["through"] for mode, rates in row["rates"].items()
    ]
    lines = [f"{through(row)}." for row in found["through"]]
    return Text(found["setup"], [table("", rows, _THROUGH)], [*lines, *_trust(found["through"], {})])


def _plan(found: Any) -> Text:
    return Text({}, [table("", found["modes"], _PLAN)], [found["about"]])


def _convert(found: Any) -> Text:
    parity = [{"precision": row["precision"]} | row["parity"] for row in found["conversions"] if row.get("parity")]
    tables = [table("", found["conversions"], _CONVERT), *([table("Parity", parity)] if parity else [])]
    return Text(found["draft"], tables)


def _training(found: Any) -> Text:
    return Text({}, [table("", found, _TRAINING)])


def _problems(found: Any) -> Text:
    return Text({}, [table("", [{key: value for key, value in found.items() if key != "answers"}])])


def _trace(found: Any) -> Text:
    line = Timeline.of(found)
    spans: dict[tuple[str, str], list[float]] = {}
    for span in line.spans:
        spans.setdefault((line.lanes[span.lane], span.name), []).append(span.duration / 1e3)
    rows = [
        {
            "lane": lane, "span": name, "count": len(of), "median, ms": median(of), "longest, ms": max(of),
            "all, ms": sum(of),
        }
        for (lane, name), of in sorted(spans.items(), key=lambda pair: (line.lanes.index(pair[0][0]), -sum(pair[1])))
    ]  # fmt: skip
    return Text({}, [table("Spans", rows)])


def _trust(rows: Sequence[Mapping[str, Any]], setup: Mapping[str, Any]) -> list[str]:
    """Sentences about what a reader has to know of the figures."""
    lines = []
    if any(row.get("identical") is False for row in rows):
        lines.append("NOT all tokens were those of plain decoding.")
    elif any(row.get("identical") for row in rows):
        lines.append("All tokens were those of plain decoding.")
    if said := disturbed(max(((of.get("other_programs_cores") or 0) for of in (*rows, setup)), default=0)):
        lines.append(f"{said[0].upper()}{said[1:]}.")
    return lines


TEXTS: Mapping[str, Callable[[Any], Text]] = {
    "law": _law, "sweep": _sweep, "spec": _spec, "tap": _tap, "variants": _variants, "hosts": _hosts,
    "contend": _contend, "through": _through, "auto": _auto, "choices": _choices, "plan": _plan, "convert": _convert,
    "training": _training, "problems": _problems, "trace": _trace,
}  # fmt: skip
"""By kind, from a file's object. KeyError, TypeError, ValueError and the like where it lacks what its kind has."""
