"""What SpecBench found, in words and tables, and what it cannot say. Pure: figures in, text out."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from mirror_mlx.bench.figures import BUSY
from mirror_mlx.bench.report_text import Table
from mirror_mlx.bench.spec_figures import OVERALL, PARTS
from mirror_mlx.bench.spec_run import BASE

_CHAINS = ("pld", "lookahead", "recycle", "rest")
_PARTS = {
    "prefix": "prefix", "tap": "tap", "verify": "suffix / verify", "draft": "draft, waited", "fallback": "fallback",
    "rest": "rest (Python)", "step": "step",
}  # fmt: skip


def tables(found: Mapping[str, Any]) -> Iterator[Table]:
    """For each temperature: the methods, their speed-ups by task where there are several, and where their time went."""
    for at in found["temperatures"]:
        title = f"temperature {at['temperature']:g}"
        yield Table(
            f"{title}: all questions",
            ("method", "tok/s", "speed-up", "official", "decode only", "tok/step", "hits", "as plain", "tokens"),
            [_row(row) for row in at["methods"]],
        )
        tasks = [task for task in at["tasks"] if task != OVERALL]
        if len(tasks) > 1:
            rows = [
                [row["method"], *(_spread(row["tasks"][task]["speedup"]) for task in at["tasks"])]
                for row in at["methods"]
            ]
            yield Table(f"{title}: speed-up by task", ("method", *at["tasks"]), rows)
        timed = [row for row in at["methods"] if row["where"]]
        if timed:
            rows = [[row["method"], *(_ms(row["where"][part]) for part in (*PARTS, "step"))] for row in timed]
            columns = ("method", *(_PARTS[part] for part in (*PARTS, "step")))
            yield Table(f"{title}: where a step's time went, mean ms", columns, rows)


def _ms(value: float) -> str:
    return f"{value:.1f}" if value else "–"


def _row(row: Mapping[str, Any]) -> list[str]:
    cell = row["tasks"][OVERALL]
    hits = cell["hit_rate"]
    return [
        row["method"],
        _spread(cell["tokens_per_second"], "{:.1f}", brief=True),
        _spread(cell["speedup"]),
        _spread(cell["official_speedup"], brief=True),
        _spread(cell["decode_speedup"], brief=True),
        "–" if cell["tokens_per_step"] is None else f"{cell['tokens_per_step']:.2f}",
        "–" if hits is None else f"{hits:.0%}",
        _same(row["identical"]),
        str(cell["new_tokens"]),
    ]


def _spread(value: Mapping[str, float] | None, form: str = "{:.2f}", *, brief: bool = False) -> str:
    """The mean, and between which values the runs were.

    >>> _spread({"mean": 1.5, "min": 1.42, "max": 1.58})
    '1.50 (1.42…1.58)'
    """
    if value is None:
        return "–"
    mean, low, high = (form.format(value[name]) for name in ("mean", "min", "max"))
    return mean if brief or value["min"] == value["max"] else f"{mean} ({low}…{high})"


def _same(identical: Mapping[str, Any]) -> str:
    if identical["reason"]:
        return str(identical["reason"])
    return "yes" if identical["same"] == identical["of"] else f"NO, {identical['same']} of {identical['of']}"


def setup(found: Mapping[str, Any]) -> list[str]:
    """What was measured, on what: the same for every method."""
    s = found["setup"]
    drafts = [name for name in (s["draft_model"], s["streaming_draft"]) if name]
    pace = f"paced to {s['pass_ms']:g} ms a pass" if s["pass_ms"] else "at their own speed"
    asked = s["asked_by_category"]
    of = ", ".join(f"{category} {count}" for category, count in asked.items())
    options = ", ".join(f"{name} {value}" for name, value in s["options"].items() if value is not None)
    versions = ", ".join(f"{name} {number}" for name, number in s["versions"].items())
    return [
        f"target {s['model']}, {s['target_parameters'] / 1e6:.0f} M parameters"
        + (", inflated" if s["params"] else "")
        + f", {s['dtype']}; drafts {', '.join(drafts) or 'none'}, {pace}",
        f"{sum(asked.values())} questions ({of}), at most {s['max_tokens']} tokens; runs: {s['runs']}; "
        f"warm-ups: {s['warmups']} of {s['warmup_tokens']} tokens for each method and temperature",
        f"this runtime's methods: {options}",
        f"{s['machine']}; {s['blas']}; {versions}, Python {s['python']}",
    ]


def verdict(found: Mapping[str, Any]) -> list[str]:
    """The best of each family of settings, and the fastest method of all."""
    lines = []
    for at in found["temperatures"]:
        said = [f"best {family}: {best['method']}, {best['speedup']:.2f}×" for family, best in at["best"].items()]
        row = next((row for row in at["methods"] if row["method"] == at["fastest"]), None)
        if row is not None:
            said.append(f"fastest: {row['method']}, {row['tasks'][OVERALL]['speedup']['mean']:.2f}×")
        if said:
            lines.append(f"temperature {at['temperature']:g}: " + "; ".join(said))
    return lines


def remarks(found: Mapping[str, Any]) -> list[str]:
    """What these figures do not say, and what went otherwise than asked for."""
    s, names = found["setup"], list(found["methods"])
    lines = []
    if not found["finished"]:
        lines.append(f"not finished: {found['answers']['had']} of {found['answers']['wanted']} dialogues measured")
    if found["resumed"]:
        lines.append(f"stopped {found['resumed']}× and resumed; recycle began anew each time")
    lines += [f"left out: {name}: {reason}" for name, reason in found["left_out"]["methods"].items()]
    if found["left_out"]["questions"]:
        lines.append(f"left out: {found['left_out']['questions']} longer than the target's context")
    for at in found["temperatures"]:
        for row in at["methods"]:
            lines += _of_method(f"temperature {at['temperature']:g}, {row['method']}", row)
        lines += _disturbed(f"temperature {at['temperature']:g}", at["methods"])
    return [*lines, *_limits(s, names, {at["temperature"] for at in found["temperatures"]})]


def _of_method(name: str, row: Mapping[str, Any]) -> Iterator[str]:
    for reason, count in row["reasons"].items():
        yield f"{name}: {count} answers: {reason}"
    if row["cut_short"]:
        yield f"{name}: {row['cut_short']} dialogues ended where the context was full"
    same = row["identical"]
    if not same["reason"] and same["same"] < same["of"]:
        first = "" if same["first"] is None else f", the first at token {same['first'] + 1}"
        yield (
            f"{name}: {same['of'] - same['same']} answers are not plain decoding's{first}: a forward of several rows "
            "rounds otherwise than one of one row, so that a near-tie may end otherwise"
        )


def _disturbed(name: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    taken = {row["method"]: row["other_programs_cores"] or 0.0 for row in rows}
    least, most = min(taken, key=taken.__getitem__), max(taken, key=taken.__getitem__)
    if taken[most] > BUSY:
        yield (
            f"{name}: the times are not to be trusted: other programs took from {taken[least]:.2f} cores, beside "
            f"{least}, to {taken[most]:.2f}, beside {most}"
        )


def _limits(s: Mapping[str, Any], names: Sequence[str], temperatures: set[float]) -> Iterator[str]:
    yield (
        "speed-up: recorded tokens ÷ wall time with prefill, the mean over questions against plain's; official: "
        "Spec-Bench's, which counts plain's tokens anew in its text; decode only: from the first step's tokens on"
    )
    yield "Medusa, Hydra, EAGLE and ReDrafter are not here: they need heads trained for this target"
    chains = [name for name in _CHAINS if name in names]
    if chains:
        yield f"{', '.join(chains)}: one chain of proposals a step; their papers report trees and wider windows"
    if any(name.startswith("mlx-sd") for name in names) and max(temperatures, default=0) > 0:
        yield (
            "mlx-sd above temperature 0 draws its own random numbers: other texts, which cannot be compared token for "
            "token, and a proposal holds only where two independent draws agree"
        )
    if s["pass_ms"]:
        yield (
            f"a draft pass takes {s['pass_ms']:g} ms, a piece of a prompt too: a lab's Neural Engine, and no Mac was "
            "measured"
        )
    if s["params"]:
        yield "the inflated target costs what a large one does; what it says, and how easily, is the small one's"
    if "cpu" in s["machine"]:
        yield (
            f"on the CPU {BASE} waits for a forward more than it has tokens, as mlx-lm submits it first; decode only "
            "leaves that out"
        )
    if s["runs"] == 1:
        yield "one run: nothing is known of the spread"


def markdown(found: Mapping[str, Any]) -> str:
    """All of it, as a page."""
    parts = ["\n".join(f"- {line}" for line in setup(found))]
    for table in tables(found):
        head = [table.columns, ["---", *("---:" for _ in table.columns[1:])]]
        rows = "\n".join("| " + " | ".join(row) + " |" for row in [*head, *table.rows])
        parts.append(f"### {table.title[0].upper()}{table.title[1:]}\n\n{rows}")
    parts.append("\n".join(f"- {line}" for line in verdict(found)))
    methods = "\n".join(f"- `{name}`: {what}" for name, what in found["methods"].items())
    parts.append(f"### Methods\n\n{methods}")
    parts.append("### What these figures do not say\n\n" + "\n".join(f"- {line}" for line in remarks(found)))
    return "\n\n".join(part for part in parts if part) + "\n"
