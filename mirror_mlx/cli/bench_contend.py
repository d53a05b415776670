"""`mirror-mlx bench contend`: what speculation gains while something else uses the machine."""

import argparse
import json
import sys
import warnings
from contextlib import redirect_stdout
from typing import Any

from mirror_mlx.cli import flags
from mirror_mlx.cli.measuring import (
    add_counts,
    add_lab,
    add_prompts,
    add_window,
    cell,
    for_tables,
    progress,
    rounded,
    settings_from,
)

DESCRIPTION = """\
Does speculation still gain while something else uses the machine? Beside a busy program on the target's core, on the
draft's core, and on the memory bus, the same prompts are decoded plainly and with Mirror, in turn; before and after
that without any. All tokens are compared with plain decoding.

The lab is that of bench law: an inflated target (--params), a paced draft (--pass-ms), a core for each.
"""
_COLUMNS = (
    ("load", "busy", "{}"),
    ("plain_tokens_per_second", "plain tok/s", "{:.1f}"),
    ("tokens_per_second", "mirror tok/s", "{:.1f}"),
    ("speed", "÷ plain", "{:.2f}"),
    ("step_ms", "step ms", "{:.1f}"),
    ("verify_ms", "verify ms", "{:.1f}"),
    ("hit_rate", "hits", "{:.0%}"),
    ("hidden_share", "draft hidden", "{:.0%}"),
    ("identical", "as plain", "{}"),
    ("load_cores", "load, cores", "{:.2f}"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_lab(parser)
    group = parser.add_argument_group("measurement")
    add_counts(
        group,
        ("--limit", 4, "at most so many prompts"),
        ("--max-tokens", 64, "longest answer"),
        ("--rounds", 2, "how often each is decoded under each load, both ways"),
        ("--seed", 0, "of problems"),
    )
    add_prompts(group)
    group.add_argument(
        "--through", action="store_true", help="mode auto, with a load that comes after a third of each answer and "
        "goes after two thirds (then --max-tokens is each answer's length)"
    )  # fmt: skip
    group.add_argument("--json", action="store_true", help="one JSON object with every figure")
    group = parser.add_argument_group("decoding")
    add_window(group)


def run(args: argparse.Namespace) -> int:
    """Measure and print. 0, or 1 where the tokens were not those of plain decoding."""
    with redirect_stdout(sys.stderr), flags.in_flags(vars(args)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mirror_mlx.bench import through
        from mirror_mlx.bench.contend import Settings, loads, measure
        from mirror_mlx.bench.figures import disturbed
        from mirror_mlx.bench.lab import Cores

        settings = settings_from(args, Settings)
        each = 2 * settings.rounds * settings.limit
        with progress((4 if args.through else len(loads(Cores()))) * each) as report:
            found = rounded((through.measure if args.through else measure)(settings, report))
    rows = found["through" if args.through else "loads"]
    if args.json:
        print(json.dumps(found))
    else:
        (_print_through if args.through else _print)(found)
    quiet = (row["load_cores"] or 0 for row in rows if row.get("kind") == "none")
    if said := disturbed(max(quiet, default=0)):
        print(f"mirror-mlx: {said}", file=sys.stderr)
    if not all(row["identical"] for row in rows):
        print("mirror-mlx: a run's tokens were not those of plain decoding", file=sys.stderr)
        return 1
    return 0


def _print(found: dict[str, Any]) -> None:
    from rich.table import Table

    console, setup = for_tables(), found["setup"]
    pace = f"{setup['pass_ms']:g} ms a pass" if setup["pass_ms"] else "at its own speed"
    console.print(f"target {setup['params'] / 1e6:.0f} M draft {pace}; {setup['cores']}")
    console.print(f"{setup['asked']} prompts, {setup['rounds']} rounds, at most {setup['max_tokens']} tokens\n")
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name, title, _ in _COLUMNS:
        table.add_column(title, justify="left" if name == "load" else "right", no_wrap=True)
    for row in found["loads"]:
        table.add_row(*(cell(row[name], form) for name, _, form in _COLUMNS))
    console.print(table)
    before, *loaded, after = found["loads"]
    worst = min(loaded, key=lambda row: row["speed"])
    console.print(
        f"\nmirror ÷ plain: {before['speed']:.2f} alone, at worst {worst['speed']:.2f} ({worst['load']} busy), "
        f"{after['speed']:.2f} afterwards"
    )


def _print_through(found: dict[str, Any]) -> None:
    from mirror_mlx.bench import figures

    for row in found["through"]:
        for name, rates in row["rates"].items():
            print(f"{row['load']}: {name}: tokens/s " + ", ".join(f"{part} {rate:.1f}" for part, rate in rates.items()))
        print(f"{figures.through(row)}, tokens as plain: {'yes' if row['identical'] else 'NO'}")
