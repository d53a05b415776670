"""`mirror-mlx plan`: what to expect of a target, a draft and a machine, before or without trying."""

import argparse
import json
import sys
import warnings
from contextlib import redirect_stdout
from typing import Any

from mirror_mlx.cli import flags
from mirror_mlx.cli.measuring import for_tables, parameters, rounded

DESCRIPTION = """\
What is the best way to decode, and what is it worth? From the calibration of a pair on this machine, or of a machine
that is only described (--bandwidth): the time of a step, tokens a second, and the best setting in each mode. With
--paper the same for the eight M2 Ultra of the Mirror-SD paper, beside its Table 1.
"""
EPILOG = """examples:
  mirror-mlx plan                                     the bundled pair, here
  mirror-mlx plan --model pair --acceptance 0.8       another pair, on text whose proposals hold so often
  mirror-mlx plan --bandwidth 800 --compute 27 --target-params 8B --target-bits 4 --draft-params 0.6B
  mirror-mlx plan --paper
"""
_DESCRIBED = (
    ("--bandwidth", float, None, "GB/s", "memory bandwidth of its GPU: plan for a machine that is described"),
    ("--compute", float, 27.0, "TFLOP/s", "of its GPU (default: 27, an M2 Ultra)"),
    ("--ane-bandwidth", float, 100.0, "GB/s", "what its Neural Engine reads (default: 100)"),
    ("--ane-compute", float, 15.0, "TFLOP/s", "of its Neural Engine (default: 15)"),
    ("--macs", int, 1, "N", "how many of them work together (default: 1)"),
    ("--link-us", float, 60.0, "US", "an all-reduce among them, µs (default: 60)"),
    ("--target-params", parameters, 8_000_000_000, "N", "the target's parameters (default: 8B)"),
    ("--target-bits", float, 16.0, "N", "bits of each (default: 16)"),
    ("--layers", int, 36, "N", "the target's layers (default: 36)"),
    ("--draft-params", parameters, 600_000_000, "N", "the draft's parameters (default: 0.6B)"),
    ("--draft-bits", float, 16.0, "N", "bits of each (default: 16)"),
    ("--draft-streams", int, 2, "N", "the draft's lookahead streams (default: 2)"),
    ("--row-cost", float, 0.02, "X", "what a row more costs the target, as a share of the first (default: 0.02)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    group = parser.add_argument_group("a pair on this machine")
    group.add_argument("--model", metavar="NAME", default="demo", help="target, or a pair (default: demo)")
    group.add_argument("--draft-model", metavar="NAME", help="draft (default: the pair's own)")
    group.add_argument("--draft-host", metavar="HOST", default="auto", help="where the draft runs (default: auto)")
    group = parser.add_argument_group("a machine that is described")
    for flag, kind, default, metavar, what in _DESCRIBED:
        group.add_argument(flag, type=kind, default=default, metavar=metavar, help=what)
    group = parser.add_argument_group("the text")
    group.add_argument(
        "--acceptance", metavar="X", type=float, help="how often a proposal holds (default: as calibrated, or 0.8)"
    )
    group.add_argument("--hits", metavar="X", type=float, default=0.9, help="outcomes prepared for (default: 0.9)")
    group.add_argument("--paper", action="store_true", help="the machine of the paper, beside its Table 1")
    group.add_argument("--json", action="store_true", help="one JSON object with every figure")


def run(args: argparse.Namespace) -> int:
    """Plan and print."""
    with redirect_stdout(sys.stderr), flags.in_flags(vars(args)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mirror_mlx.bench import plan

        found = rounded(plan.paper(args.hits) if args.paper else plan.best(plan.Settings.of(vars(args))))
    if args.json:
        print(json.dumps(found))
    else:
        (_print_paper if args.paper else _print)(found)
    return 0


def _print(found: dict[str, Any]) -> None:
    from rich.table import Table

    console = for_tables()
    console.print(found["about"])
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("setting", "step ms", "hit ms", "miss ms", "tok/step", "tok/s", "÷ plain"):
        table.add_column(title, justify="left" if title == "setting" else "right", no_wrap=True)
    for row in found["modes"]:
        table.add_row(
            row["setting"], f"{row['step_ms']:.1f}", f"{row['hit_ms']:.1f}", f"{row['miss_ms']:.1f}",
            f"{row['tokens_per_step']:.2f}", f"{row['tokens_per_second']:.1f}", f"{row['speed']:.2f}",
        )  # fmt: skip
    console.print(table)


def _print_paper(found: dict[str, Any]) -> None:
    from rich.table import Table

    console = for_tables()
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in ("target", "task", "vanilla SD", "acceptance", "tok/step", "Mirror", "in the paper", "÷ paper"):
        table.add_column(title, justify="left" if title in ("target", "task") else "right", no_wrap=True)
    for row in found["rows"]:
        table.add_row(
            row["model"], row["task"], f"{row['paper_serial']:.2f}", f"{row['acceptance']:.3f}", f"{row['tokens']:.2f}",
            f"{row['mirror']:.2f}", f"{row['paper_mirror']:.2f}", f"{row['mirror'] / row['paper_mirror']:.2f}",
        )  # fmt: skip
    console.print(table)
    for line in found["remarks"]:
        console.print(f"· {line}")
