"""Mode "auto" beside fixed settings, measured over sizes, paces, temperatures and prompts. Every token is compared."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from mirror_mlx import blas
from mirror_mlx.bench import planned, turns
from mirror_mlx.bench.journal import Journal
from mirror_mlx.bench.lab import Others
from mirror_mlx.bench.turns import Answer, Lab, Report, Settings, Until
from mirror_mlx.draft import Draft
from mirror_mlx.draft.wrapped import Wrapped
from mirror_mlx.engine import Engine
from mirror_mlx.errors import UsageError
from mirror_mlx.messages import HITS
from mirror_mlx.tuning.costs import Costs

HYBRID, PARTS = "mirror exact 7", {"draft exact 7": "draft", "tap exact 7": "tap"}
FIXED: Mapping[str, Mapping[str, Any]] = {
    "ar": {"mode": "ar"},
    **{f"sd {n}": {"mode": "sd", "num_draft_tokens": n, "streams": 0} for n in (3, 7)},
    **{f"sd streams {n}": {"mode": "sd", "num_draft_tokens": n} for n in (4, 7)},
    **{f"mirror main {n}": {"mode": "mirror", "num_draft_tokens": n, "streams": 0} for n in (4, 7)},
    **{f"mirror {n}": {"mode": "mirror", "num_draft_tokens": n} for n in (3, 4, 5, 7, 8, 11)},
    **{f"mirror exact {n}": {"mode": "mirror", "num_draft_tokens": n, "stream_mode": "exact"} for n in (7, 11)},
    **{
        name: {"mode": "mirror", "num_draft_tokens": 7, "stream_mode": "exact", "predictor": one}
        for name, one in PARTS.items()
    },
}
"""What "auto" is compared with in a sweep."""
WINDOWS: Mapping[str, Mapping[str, Any]] = {
    "ar": {"mode": "ar"},
    **{
        f"mirror {n}, {roots} roots": {"mode": "mirror", "num_draft_tokens": n, "streams": 2, "max_roots": roots}
        for n in (2, 3, 4, 5, 7, 8, 11, 15) for roots in (4, 16)
    },
    "growing": {"mode": "mirror", "num_draft_tokens": 15, "streams": 2, "max_roots": 16, "adaptive": True},
}  # fmt: skip
"""And where only windows differ: of one length each, with few roots and many, and such as grow and shrink."""
TURNS: Mapping[str, Mapping[str, Any]] = {
    "ar": {"mode": "ar"},
    **{f"sd {n}": {"mode": "sd", "num_draft_tokens": n, "streams": 2} for n in (2, 3, 4, 5, 6, 7, 8, 9, 11, 15)},
    "growing": {"mode": "sd", "num_draft_tokens": 15, "streams": 2, "adaptive": True},
}
"""The same where draft and target work in turns."""
AUTO: Mapping[str, Any] = {"mode": "auto"}
TARGETS = ((0, 0.0), (60_000_000, 0.0), (0, 20.0), (0, 40.0))
"""Parameters, and what a forward takes, ms: as it is, larger, and such as no neighbour slows."""
PACES = (10.0, 20.0)
_LATER = 12  # times as many other prompts there are, to be asked of the fastest
_USUAL = 6  # and so many times as many are, in the time that there is
FINALISTS, _CLOSE = 3, 0.75  # so many of the fastest are decoded again, if they reach so much of the very fastest
_REACHES = 0.95
"""What "auto" is to reach of the fastest, at least."""
_FINAL, _PART = Until(0.01, 90.0, bar=_REACHES, doubtful=300.0), Until(0.015, 50.0)
"""How well it is to be known how "auto" compares with the fastest, and a hybrid with its parts."""
NAME = "settings.jsonl"
_NEAR = 0.1  # a prediction that is off by no more than that
_SAFE = {"draft_timeout": 30.0, "max_roots": 24}


def sweep_rows(
    settings: Settings, report: Report = lambda done, what: None, *, out: Path | None = None, only: Sequence[int] = ()
) -> dict[str, Any]:
    """`settings`: target's and draft's size, temperature and kind of prompt, each with the tokens a second of every
    fixed setting and of "auto" (`rates`, and `final_rates` of those that were decoded again), how much of
    the best fixed one auto reaches, what it had decided at the end of how many answers (`chosen`), and what the
    throughput model makes of them (`plan`, see `planned.compared`).
    `kept`, `passes_kept`: the share of the target's forwards and of the draft's passes that were done in their set
    times. out: a folder in which each is kept when it is measured; only: see `points`."""
    return _swept(settings, FIXED, AUTO, points(settings, only), report, out)


def window_rows(
    settings: Settings, report: Report = lambda done, what: None, *, out: Path | None = None
) -> dict[str, Any]:
    """The same for windows of different lengths, at one size and pace, on prompts of both kinds in turn. "auto" has the
    same streams as they have."""
    return _swept(settings, WINDOWS, {**AUTO, "streams": 2}, _temperatures(settings), report, out, mixed=True)


def turn_rows(
    settings: Settings, report: Report = lambda done, what: None, *, out: Path | None = None
) -> dict[str, Any]:
    """The same for a draft that names no outcomes, without a tap: "auto" has it work in turns with the target."""
    auto = {**AUTO, "streams": 2, "predictor": "draft"}
    return _swept(settings, TURNS, auto, _temperatures(settings), report, out, mixed=True, draft_as=Nameless)


def _temperatures(settings: Settings) -> Iterator[Settings]:
    """Greedily, and sampled."""
    return (replace(settings, temp=temp) for temp in (0.0, 1.0))


class Nameless(Wrapped):
    """A draft that has no idea of what is to come."""

    def glue(self, tokens: Sequence[int], candidates: int) -> None:
        self._draft.glue(tokens, 0)


def _swept(
    settings: Settings,
    fixed: Mapping[str, Mapping[str, Any]],
    auto: Mapping[str, Any],
    asked: Iterable[Settings],
    report: Report,
    out: Path | None,
    mixed: bool = False,
    draft_as: Callable[[Draft], Draft] | None = None,
) -> dict[str, Any]:
    blas.set_threads(1)
    rows: list[dict[str, Any]] = []
    about = turns.setup(settings)
    journal = Journal(out, NAME, about | {"fixed": list(fixed)}, lambda row: rows.append(_whole(row)))
    done = 0
    try:
        for point in asked:
            lab = Lab(point, mixed, more=_LATER * point.limit, draft_as=draft_as)
            key = _key(point, mixed)
            if not any(key.items() <= row.items() for row in rows):
                label = f"{point.params / 1e6:.0f} M, {point.target_ms:g} and {point.pass_ms:g} ms, T {point.temp:g}"
                rows.append(key | _measured(lab, {**fixed, "auto": auto}, turns.told(report, done, label)))
                journal.add(rows[-1:])
            done += answers(fixed, settings)
    finally:
        journal.close()
    errors = [error for row in rows for error in planned.errors(row["plan"]["settings"])]
    steps = [abs(one["step"] - 1) for row in rows for one in row["plan"]["settings"].values()]
    return {
        "setup": about, "settings": rows, "resumed": journal.resumed,
        "worst_share": min(row["share"] for row in rows),
        "plan_error": max(errors),
        "plan_median_error": median(errors),
        "plan_within": _near(errors),
        "step_median_error": median(steps), "step_within": _near(steps),
        "plan_gain_error": max(row["plan"]["gain_error"] for row in rows),
    }  # fmt: skip


def _near(errors: Sequence[float]) -> float:
    """The share of predictions that are good."""
    return sum(error <= _NEAR for error in errors) / len(errors)


def _key(point: Settings, mixed: bool) -> dict[str, Any]:
    kind = "both" if mixed else "own" if point.prompts is None else "file"
    return {
        "inflated": point.params, "target_ms": point.target_ms, "pass_ms": point.pass_ms, "temperature": point.temp,
        "prompts": kind,
    }  # fmt: skip


def _whole(row: Mapping[str, Any]) -> dict[str, Any]:
    """Of a journal. Raises KeyError for what is none."""
    if missing := {"inflated", "share", "plan", "identical"} - row.keys():
        raise KeyError(missing)
    return dict(row)


def _measured(lab: Lab, asked: Mapping[str, Mapping[str, Any]], report: Callable[[int, str], None]) -> dict[str, Any]:
    """One setting of the lab. First all of them; then "auto" and the fastest, in closer turns and on other prompts: the
    fastest of many on a few prompts is a lucky one, and remains it on the same. And in the same way a hybrid and its
    parts.
    What the devices take changes from second to second, on machines with neighbours: they are calibrated anew before
    each prompt of the first part, and the throughput model gets the mean of it."""
    costs: list[Costs] = []
    with ExitStack() as stack:
        stack.enter_context(lab.cores.for_target())
        engines = {
            name: stack.enter_context(lab.engine(lab.draft_for(options), **{**_SAFE, **options}))
            for name, options in asked.items()
        }
        engines["auto"].calibrate(sampling=lab.sampling)
        others = Others()
        turns.warm(engines.values(), lab)
        found = turns.in_turn(engines, lab, lab.settings.rounds, report, lambda: costs.append(lab.costs(**_SAFE)))
        rates = {name: turns.rate(of) for name, of in found.items()}
        done = lab.settings.rounds * len(engines) * len(lab.first)

        def again(names: Sequence[str], until: Until) -> dict[str, list[Answer]]:
            if not names:
                return {}
            chosen, said = {name: engines[name] for name in names}, turns.told(report, done, "final")
            return turns.in_turn(chosen, lab, 2, said, against=names[0], until=until, others=True)

        finals, parts = again(_finalists(rates), _FINAL), again(_parts(rates), _PART)
        fast = {name: turns.times_as_fast(of, finals["auto"]) for name, of in finals.items() if name != "auto"}
        best = max(fast, key=fast.__getitem__)
        return {
            "params": lab.params, "best": best, "share": turns.times_as_fast(finals["auto"], finals[best]),
            "share_error": turns.spread(finals["auto"], finals[best]),
            "auto": turns.rate(finals["auto"]), "best_rate": turns.rate(finals[best]), "plain": rates["ar"],
            "rates": rates, "final_rates": {name: turns.rate(of) for name, of in (parts | finals).items()},
            "identical": turns.identical(found, finals, parts),
            "other_programs_cores": others.cores(), "kept": lab.kept.share, "passes_kept": lab.passes_kept.share,
            "chosen": Counter(answer.setting for answer in finals["auto"]).most_common(),
            **_hybrid(parts, rates), **_hits(found, parts),
            "plan": planned.compared(_decoded(found, engines), Costs.mean(costs)),
        }  # fmt: skip


def _finalists(rates: Mapping[str, float]) -> list[str]:
    """ "auto", and the fastest fixed settings that are close to one another."""
    fastest = sorted((name for name in rates if name != "auto"), key=rates.__getitem__, reverse=True)
    return ["auto", *(name for name in fastest[:FINALISTS] if rates[name] >= _CLOSE * rates[fastest[0]])]


def _parts(rates: Mapping[str, float]) -> list[str]:
    """A hybrid and its parts, where they were measured."""
    parts = [one for one in PARTS if one in rates]
    return [HYBRID, *parts] if parts else []


def _hybrid(found: Mapping[str, Sequence[Answer]], rates: Mapping[str, float]) -> dict[str, float | None]:
    """`hybrid`: what it reaches of the predictor alone that was the faster one in the first part, by `rates`, and
    `hybrid_error`; None: not measured."""
    alone = max((one for one in PARTS if one in found), key=rates.__getitem__, default=None)
    if alone is None:
        return {"hybrid": None, "hybrid_error": None}
    both = found[HYBRID], found[alone]
    return {"hybrid": turns.times_as_fast(*both), "hybrid_error": turns.spread(*both)}


def _hits(*found: Mapping[str, Sequence[Answer]]) -> dict[str, float | None]:
    """The share of outcomes that were prepared for, by a hybrid (`hits`) and by each of its parts alone, with as many
    roots; None: not measured. `hits_error`: the standard error of what the hybrid has more of them, or less, than the
    better part, over the prompts."""
    ready = {name: _ready(name, *found) for name in (HYBRID, *PARTS)}
    share = {name: sum(map(sum, of.values())) / sum(map(len, of.values())) for name, of in ready.items() if of}
    best = max((name for name in PARTS if name in share), key=share.__getitem__, default=None)
    error = None
    if best is not None and HYBRID in share:
        more = [
            fmean(ready[HYBRID][one]) - fmean(ready[best][one]) for one in ready[HYBRID].keys() & ready[best].keys()
        ]
        error = stdev(more) / sqrt(len(more)) if len(more) > 1 else None
    return {"hits": share.get(HYBRID), "hits_error": error} | {
        f"{of}_hits": share.get(name) for name, of in PARTS.items()
    }


def _ready(name: str, *found: Mapping[str, Sequence[Answer]]) -> dict[int, list[bool]]:
    """By prompt: of each step's outcome whether it was prepared for."""
    of: defaultdict[int, list[bool]] = defaultdict(list)
    for answer in (answer for one in found for answer in one.get(name, ()) if len(answer.steps) > 1):
        of[answer.prompt] += [step.next in HITS for step in answer.steps[:-1]]
    return of


def answers(fixed: Mapping[str, Any], settings: Settings) -> int:
    """How many are decoded in one setting of the lab, where one more round takes as long as it must."""
    final = len(_parts(dict.fromkeys(fixed, 1.0))) + min(len(fixed), FINALISTS) + 1
    return settings.limit * (settings.rounds * (len(fixed) + 1) + _USUAL * final)


def _decoded(found: Mapping[str, Sequence[Answer]], engines: Mapping[str, Engine]) -> dict[str, planned.Measured]:
    """What the fixed settings' answers that are long enough have between their first steps and their last."""
    several = {name: [answer for answer in of if answer.middle] for name, of in found.items() if name != "auto"}
    return {
        name: planned.Measured(
            engines[name].setting, [step for answer in of for step in answer.middle],
            sum(answer.decoding for answer in of),
        ) for name, of in several.items() if of
    }  # fmt: skip


def points(settings: Settings, only: Sequence[int] = ()) -> list[Settings]:
    """The sweep: targets × paces of the draft × temperatures × kinds of prompts, or only some of these settings, the
    first of which is 1. Set times are `settings.scale` times as long: for a machine that does not keep them otherwise.
    Raises UsageError for a setting that there is not."""
    found = list(_points(settings))
    if none := [number for number in only if not 1 <= number <= len(found)]:
        raise UsageError(f"only is {none[0]}: with these prompts a sweep has settings 1 to {len(found)}")
    return [found[number - 1] for number in sorted(set(only))] or found


def _points(settings: Settings) -> Iterator[Settings]:
    kinds = [settings.prompts] if settings.prompts is None else [None, settings.prompts]
    for (size, forward), pace, temp, kind in product(TARGETS, PACES, (0.0, 1.0), kinds):
        share, scale = settings.held_out if kind else 0.0, settings.scale
        yield replace(
            settings, params=size, target_ms=scale * forward, pass_ms=scale * pace, temp=temp, prompts=kind,
            held_out=share,
        )  # fmt: skip
