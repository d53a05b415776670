"""`mirror-mlx bench auto`: is mode "auto" ever worse than plain decoding, and how close to the best fixed one?"""

import argparse
import json
import sys
import warnings
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from mirror_mlx.cli import flags
from mirror_mlx.cli.measuring import (
    add_counts,
    add_lab,
    add_prompts,
    cell,
    for_tables,
    progress,
    rounded,
    settings_from,
)
from mirror_mlx.errors import UsageError

DESCRIPTION = """\
Is mode "auto" ever worse than plain decoding? Drafts that are wrong, that guess, that take ten times as long and that
die in each fiftieth step decode beside plain decoding, in turn, on the lab's pair (--params, --target-ms, --pass-ms)
and on the pair as it is. With --sweep: how close is it to the best fixed setting, over targets, paces of the draft,
temperatures and prompts, and how far is the throughput model off? With --windows: only windows differ, on prompts of
both kinds; with --turns the same for a draft that works in turns with the target, never beside it. Every token is
compared with plain decoding.
"""
_HOSTILE = (
    ("draft", "draft", "{}"), ("params", "target, parameters", "{:,}"), ("target_ms", "ms", "{:g}"),
    ("plain_tokens_per_second", "plain tok/s", "{:.1f}"),
    ("tokens_per_second", "auto tok/s", "{:.1f}"), ("speed", "÷ plain", "{:.3f}"), ("speed_error", "±", "{:.3f}"),
    ("calibration_s", "calibrated in, s", "{:.1f}"), ("tokens", "tokens", "{}"), ("identical", "as plain", "{}"),
)  # fmt: skip
_SWEEP = (
    ("params", "target, parameters", "{:,}"), ("target_ms", "ms", "{:g}"), ("pass_ms", "pass ms", "{:g}"),
    ("kept", "kept", "{:.0%}"), ("passes_kept", "passes", "{:.0%}"), ("temperature", "T", "{:g}"),
    ("prompts", "prompts", "{}"), ("plain", "plain tok/s", "{:.1f}"), ("best", "best fixed", "{}"),
    ("best_rate", "tok/s", "{:.1f}"), ("auto", "auto tok/s", "{:.1f}"), ("share", "of the best", "{:.2f}"),
    ("share_error", "±", "{:.2f}"), ("hybrid", "hybrid ÷ parts", "{:.2f}"), ("hybrid_error", "±", "{:.2f}"),
    ("hits", "hits", "{:.2f}"), ("hits_error", "±", "{:.2f}"),
    ("draft_hits", "draft's", "{:.2f}"), ("tap_hits", "tap's", "{:.2f}"),
    ("plan_error", "plan off by", "{:.0%}"), ("plan_median", "median", "{:.1%}"), ("identical", "as plain", "{}"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lab(parser)
    group = parser.add_argument_group("measurement")
    which = group.add_mutually_exclusive_group()
    which.add_argument("--sweep", action="store_true", help="beside fixed settings, over sizes, paces, temperatures")
    which.add_argument("--windows", action="store_true", help="beside windows of one length, greedy and sampled")
    which.add_argument("--turns", action="store_true", help="the same, draft and target in turns")
    add_counts(
        group,
        ("--limit", 4, "at most so many prompts"),
        ("--max-tokens", 128, "longest answer"),
        ("--rounds", 2, "how often each is decoded, at least"),
        ("--seed", 0, "of problems and sampling"),
    )
    group.add_argument(
        "--target-ms", metavar="MS", type=float, default=0.0,
        help="time of the target's forward of one row (default: 0, its own); a sweep has its own",
    )  # fmt: skip
    group.add_argument(
        "--scale", metavar="X", type=float, default=1.0,
        help="a sweep's times of forwards and passes, times X, where this machine does not keep them (default: 1)",
    )  # fmt: skip
    group.add_argument(
        "--only", metavar="N", type=int, nargs="+", default=[],
        help="these of a sweep's settings, in the order of its table, from 1 (default: all)",
    )  # fmt: skip
    group.add_argument(
        "--longer", metavar="X", type=float, default=1.0,
        help="take X times as long to compare auto with the fastest, and a hybrid with its parts (default: 1)",
    )  # fmt: skip
    group.add_argument(
        "--temp", metavar="N", type=float, default=0.0, help="temperature (default: 0); a sweep has 0, 1"
    )
    add_prompts(group)
    group.add_argument(
        "--out",
        metavar="DIR",
        help="with --sweep, --windows, --turns: keep each setting when it is measured, and go on there",
    )
    group.add_argument("--json", action="store_true", help="one JSON object with every figure")


def run(args: argparse.Namespace) -> int:
    """Measure and print. 0, or 1 where the tokens were not those of plain decoding."""
    with redirect_stdout(sys.stderr), flags.in_flags(vars(args)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mirror_mlx.bench.auto import hostile_rows
        from mirror_mlx.bench.choices import (
            FIXED,
            TURNS,
            WINDOWS,
            answers,
            points,
            sweep_rows,
            turn_rows,
            window_rows,
        )
        from mirror_mlx.bench.hostile import KINDS
        from mirror_mlx.bench.turns import Settings

        settings = settings_from(args, Settings)
        measure, count = hostile_rows, 2 * len(KINDS) * 2 * settings.limit * settings.rounds
        if args.out is not None and not (args.sweep or args.windows or args.turns):
            raise UsageError("--out keeps the settings of --sweep, --windows and --turns: choose one of them")
        if args.only and not args.sweep:
            raise UsageError("--only chooses among the settings of --sweep: say that, too")
        out = None if args.out is None else Path(args.out).expanduser()
        if args.sweep:
            measure = partial(sweep_rows, out=out, only=args.only)
            count = len(points(settings, args.only)) * answers(FIXED, settings)
        elif args.windows:
            measure, count = partial(window_rows, out=out), 2 * answers(WINDOWS, settings)
        elif args.turns:
            measure, count = partial(turn_rows, out=out), 2 * answers(TURNS, settings)
        with progress(count) as report:
            found = rounded(measure(settings, report))
    rows, columns = (found["drafts"], _HOSTILE) if "drafts" in found else (_planned(found["settings"]), _SWEEP)
    if args.json:
        print(json.dumps(found))
    else:
        _print(rows, columns, found)
    if not all(row["identical"] for row in rows):
        print("mirror-mlx: a run's tokens were not those of plain decoding", file=sys.stderr)
        return 1
    return 0


def _planned(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"plan_error": row["plan"]["error"], "plan_median": row["plan"]["median_error"]} for row in rows]


def _print(rows: list[dict[str, Any]], columns: Any, found: dict[str, Any]) -> None:
    from rich.table import Table

    from mirror_mlx.bench.figures import disturbed

    console = for_tables()
    table = Table(box=None, padding=(0, 1, 0, 0))
    for number, (_, title, _) in enumerate(columns):
        table.add_column(title, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(cell(row[name], form) for name, _, form in columns))
    console.print(table)
    if "worst_share" in found:
        console.print(
            f"\nauto reaches at least {found['worst_share']:.2f} of the best fixed setting; the throughput model is "
            f"off by {found['plan_median_error']:.1%} (median), by no more than 10 % in "
            f"{found['plan_within']:.0%} of all cases, and by {found['plan_error']:.0%} at most; of a step's time by "
            f"{found['step_median_error']:.1%}, and by no more than 10 % in {found['step_within']:.0%}"
        )
    else:
        console.print(f"\nauto ÷ plain: at worst {min(row['speed'] for row in rows):.3f}")
    if said := disturbed(max((row["other_programs_cores"] or 0 for row in rows), default=0)):
        console.print(said)
