"""From records to the figures of SpecBench. Pure: what `spec_run` noted in, numbers out.

Two metrics side by side. Both are Spec-Bench's speed.py: tokens ÷ wall time of each question, averaged over the
questions; the speed-up is the ratio of two such means. They differ in the baseline's tokens alone: *official* counts
them anew in its text and takes one away, *corrected* takes the recorded number, as for every other method. With a
tokenizer that puts no token at the beginning the official baseline lacks one token a turn, and the speed-up gains.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from mirror_mlx.bench.spec_run import BASE, Record

ORDER = ("mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag")
OVERALL = "overall"
PARTS = ("prefix", "tap", "verify", "draft", "fallback", "rest")
"""Where a step's time goes: up to the tap; the tap; the verification's rest, or all of it where there is no split;
waiting for a draft that had more to do than fitted beside it; waiting on a miss; everything else, which is Python."""

Runs = dict[int, dict[str, list[Record]]]
"""run → question → its turns"""


def summarise(records: Iterable[Record], methods: Sequence[str]) -> list[dict[str, Any]]:
    """Figures for each temperature.

    temperature, tasks   tasks in the order of speed.py, "overall" last
    methods   [{method, tasks: {task: figures of `_cell`}, identical, reasons, where}], those with any record
    best      {family: {method, speedup}} for methods that are one at several settings, as mlx-sd@2 and mlx-sd@4
    fastest   the method with the highest speed-up overall, if there is one
    """
    by_temperature: dict[float, dict[str, list[Record]]] = {}
    for record in records:
        by_temperature.setdefault(record["temperature"], {}).setdefault(record["method"], []).append(record)
    return [_of(temperature, found, methods) for temperature, found in by_temperature.items()]


def _of(temperature: float, found: Mapping[str, list[Record]], methods: Sequence[str]) -> dict[str, Any]:
    base = found.get(BASE, [])
    tasks = [*_tasks(record["task"] for of in found.values() for record in of), OVERALL]
    rows = []
    for name in methods:
        of = found.get(name, [])
        if of:
            cells = {task: _cell(_runs(of, task), _runs(base, task)) for task in tasks}
            rows.append(
                {"method": name, "tasks": cells, "identical": _identical(of, base), "where": _where(of)} | _remarks(of)
            )
    ranked = sorted(
        (row for row in rows if row["method"] != BASE and row["tasks"][OVERALL]["speedup"]),
        key=lambda row: -row["tasks"][OVERALL]["speedup"]["mean"],
    )
    best: dict[str, Any] = {}
    for row in ranked:
        family, at, _ = row["method"].partition("@")
        if at and family not in best:
            best[family] = {"method": row["method"], "speedup": row["tasks"][OVERALL]["speedup"]["mean"]}
    fastest = ranked[0]["method"] if ranked else None
    return {"temperature": temperature, "tasks": tasks, "methods": rows, "best": best, "fastest": fastest}


def _tasks(given: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(given))
    return [*(task for task in ORDER if task in found), *(task for task in found if task not in ORDER)]


def _runs(records: Iterable[Record], task: str) -> Runs:
    runs: Runs = {}
    for record in records:
        if task in (OVERALL, record["task"]):
            runs.setdefault(record["run"], {}).setdefault(record["question"], []).append(record)
    return runs


def _cell(runs: Runs, base: Runs) -> dict[str, Any]:
    """A method on a task. Spreads are {mean, min, max} over runs, None where there is nothing to compare with.

    A run's speed-up takes the questions that plain decoding has answered in it too.
    """
    turns = [record for run in runs.values() for question in run.values() for record in question]
    lengths = [length for record in turns for length in record["accept_lengths"]]
    predicted = sum(record["predicted"] or 0 for record in turns)
    new, again = _recorded, _retokenised
    return {
        "questions": len({record["question"] for record in turns}),
        "runs": len(runs),
        "new_tokens": sum(record["new_tokens"] for record in turns),
        "seconds": sum(record["seconds"] for record in turns),
        "tokens_per_second": spread([_rate(run.values(), new) for run in runs.values()]),
        "decode_tokens_per_second": spread([_rate(run.values(), _decoded) for run in runs.values()]),
        "speedup": spread(_ratios(runs, base, new, new)),
        "official_speedup": spread(_ratios(runs, base, new, again)),
        "decode_speedup": spread(_ratios(runs, base, _decoded, _decoded)),
        "tokens_per_step": fmean(lengths) if lengths else None,
        "hit_rate": sum(record["hits"] or 0 for record in turns) / predicted if predicted else None,
    }


Count = Callable[[Sequence[Record]], tuple[float, float]]
"""The tokens and seconds of a question's turns."""


def _recorded(turns: Sequence[Record]) -> tuple[float, float]:
    return sum(turn["new_tokens"] for turn in turns), sum(turn["seconds"] for turn in turns)


def _retokenised(turns: Sequence[Record]) -> tuple[float, float]:
    return sum(turn["retokenised"] for turn in turns), sum(turn["seconds"] for turn in turns)


def _decoded(turns: Sequence[Record]) -> tuple[float, float]:
    return sum(turn["decode_tokens"] for turn in turns), sum(turn["decode_seconds"] for turn in turns)


def _rate(questions: Iterable[Sequence[Record]], count: Count) -> float | None:
    """The mean over questions of tokens ÷ seconds; None where no question took any time."""
    rates = [tokens / seconds for tokens, seconds in map(count, questions) if seconds > 0]
    return fmean(rates) if rates else None


def _ratios(runs: Runs, base: Runs, ours: Count, theirs: Count) -> list[float | None]:
    found: list[float | None] = []
    for number, run in runs.items():
        both = [question for question in run if question in base.get(number, {})]
        fast = _rate([run[question] for question in both], ours)
        slow = _rate([base[number][question] for question in both], theirs)
        found.append(fast / slow if fast is not None and slow else None)
    return found


def spread(values: Iterable[float | None]) -> dict[str, float] | None:
    """Of the runs.

    >>> spread([1.0, 2.0, 6.0])
    {'mean': 3.0, 'min': 1.0, 'max': 6.0}
    """
    known = [value for value in values if value is not None]
    return {"mean": fmean(known), "min": min(known), "max": max(known)} if known else None


def _identical(records: Sequence[Record], base: Sequence[Record]) -> dict[str, Any]:
    """Whether the tokens are plain decoding's, turn for turn.

    same, of   answers that are, and that there are; reason: why nothing was compared, else None
    first      the first token of any answer that is known to be another
    """
    plain: dict[tuple[str, int], str] = {}
    for record in sorted(base, key=lambda record: record["run"]):
        plain.setdefault((record["question"], record["turn"]), record["tokens_hash"])
    if any(record["own_noise"] for record in records):
        return {"same": 0, "of": 0, "first": None, "reason": "own noise"}
    pairs = [(record["tokens_hash"], plain.get((record["question"], record["turn"]))) for record in records]
    known = [(ours, theirs) for ours, theirs in pairs if theirs is not None]
    same = sum(ours == theirs for ours, theirs in known)
    first = min((record["differs_at"] for record in records if record["differs_at"] is not None), default=None)
    return {"same": same, "of": len(known), "first": first, "reason": None if known else "not compared"}


def _remarks(records: Sequence[Record]) -> dict[str, Any]:
    """What a reader of the speeds has to know: answers decoded in another mode than asked for, by reason; dialogues
    that ended for want of room; answers that the model ended itself; cores in other programs' hands meanwhile."""
    reasons: dict[str, int] = {}
    dialogues: dict[tuple[int, str], tuple[int, int]] = {}
    for record in records:
        if record["reason"]:
            reasons[record["reason"]] = reasons.get(record["reason"], 0) + 1
        key = record["run"], record["question"]
        dialogues[key] = dialogues.get(key, (0, 0))[0] + 1, record["turns"]
    timed = [(record["others"], record["seconds"]) for record in records if record["others"] is not None]
    seconds = sum(spent for _, spent in timed)
    return {
        "reasons": reasons,
        "cut_short": sum(asked < turns for asked, turns in dialogues.values()),
        "ended": sum(record["ended"] for record in records) / len(records),
        "other_programs_cores": sum(cores * spent for cores, spent in timed) / seconds if seconds else None,
    }


def _where(records: Sequence[Record]) -> dict[str, float] | None:
    """Mean ms of a step in each part, and of the whole `step`."""
    known = [record for record in records if record["where"] is not None]
    steps = sum(record["steps"] for record in known)
    if not steps:
        return None
    parts = {part: sum(record["where"].get(part, 0.0) for record in known) / steps for part in PARTS}
    return parts | {"step": sum(parts.values())}
