"""`mirror-mlx bench auto`: is mode "auto" ever worse than plain decoding, and how close to the best fixed one?"""

import argparse
import json
import sys
import warnings
from contextlib import redirect_stdout
from typing import Any

from mirror_mlx.cli import flags
from mirror_mlx.cli.measuring import add_lab, add_prompts, cell, progress, rounded

DESCRIPTION = """\
Is mode "auto" ever worse than plain decoding? Drafts that are wrong, that guess, that take ten times as long and that
die in each fiftieth step decode beside plain decoding, in turn, on the lab's pair (--params, --pass-ms) and on the pair
as it is. With --sweep: how close is it to the best fixed setting, over sizes of the target, paces of the draft,
temperatures and prompts? Every token is compared with plain decoding.
"""
_HOSTILE = (
    ("draft", "draft", "{}"), ("params", "target, parameters", "{:,}"),
    ("plain_tokens_per_second", "plain tok/s", "{:.1f}"),
    ("tokens_per_second", "auto tok/s", "{:.1f}"), ("speed", "÷ plain", "{:.3f}"), ("median_speed", "median", "{:.3f}"),
    ("calibration_s", "calibrated in, s", "{:.1f}"), ("tokens", "tokens", "{}"), ("identical", "as plain", "{}"),
)  # fmt: skip
_SWEEP = (
    ("params", "target, parameters", "{:,}"), ("pass_ms", "pass ms", "{:g}"), ("temperature", "T", "{:g}"),
    ("prompts", "prompts", "{}"), ("plain", "plain tok/s", "{:.1f}"), ("best", "best fixed", "{}"),
    ("best_rate", "tok/s", "{:.1f}"), ("auto", "auto tok/s", "{:.1f}"), ("share", "of the best", "{:.2f}"),
    ("identical", "as plain", "{}"),
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lab(parser)
    group = parser.add_argument_group("measurement")
    group.add_argument("--sweep", action="store_true", help="beside fixed settings, over sizes, paces, temperatures")
    for flag, default, what in (
        ("--limit", 4, "at most so many prompts"),
        ("--max-tokens", 128, "longest answer"),
        ("--rounds", 2, "how often each is decoded"),
        ("--seed", 0, "of problems and sampling"),
    ):
        group.add_argument(flag, metavar="N", type=int, default=default, help=f"{what} (default: {default})")
    group.add_argument(
        "--temp", metavar="N", type=float, default=0.0, help="temperature (default: 0); a sweep has 0, 1"
    )
    add_prompts(group)
    group.add_argument("--json", action="store_true", help="one JSON object with every figure")


def run(args: argparse.Namespace) -> int:
    """Measure and print. 0, or 1 where the tokens were not those of plain decoding."""
    with redirect_stdout(sys.stderr), flags.in_flags(vars(args)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mirror_mlx import blas
        from mirror_mlx.bench.auto import FIXED, Settings, hostile_rows, points, sweep_rows
        from mirror_mlx.bench.hostile import KINDS

        settings = Settings(**{name: getattr(args, name) for name in Settings.__dataclass_fields__})
        if blas.missing() is not None:
            print(f"mirror-mlx: {blas.missing()}", file=sys.stderr)
        each = settings.limit * settings.rounds
        count = len(list(points(settings))) * (len(FIXED) + 1) if args.sweep else 2 * len(KINDS) * 2
        with progress(count * each) as report:
            found = rounded((sweep_rows if args.sweep else hostile_rows)(settings, report))
    rows, columns = (found["settings"], _SWEEP) if args.sweep else (found["drafts"], _HOSTILE)
    if args.json:
        print(json.dumps(found))
    else:
        _print(rows, columns, found)
    if not all(row["identical"] for row in rows):
        print("mirror-mlx: a run's tokens were not those of plain decoding", file=sys.stderr)
        return 1
    return 0


def _print(rows: list[dict[str, Any]], columns: Any, found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from mirror_mlx.bench.figures import disturbed

    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, 120)  # a figure that is cut off is none
    table = Table(box=None, padding=(0, 1, 0, 0))
    for number, (_, title, _) in enumerate(columns):
        table.add_column(title, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(cell(row[name], form) for name, _, form in columns))
    console.print(table)
    if "worst_share" in found:
        console.print(f"\nauto reaches at least {found['worst_share']:.2f} of the best fixed setting")
    else:
        console.print(f"\nauto ÷ plain: at worst {min(row['speed'] for row in rows):.3f}")
    if said := disturbed(max((row["other_programs_cores"] or 0 for row in rows), default=0)):
        console.print(said)
