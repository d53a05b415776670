"""`mirror-mlx bench hosts`: the same draft on several hosts."""

import argparse
import json
import sys
import warnings
from contextlib import redirect_stdout
from typing import Any

from mirror_mlx.cli import flags
from mirror_mlx.cli.measuring import add_counts, add_prompts, cell, progress, rounded
from mirror_mlx.messages import DRAFT_HOSTS

DESCRIPTION = """\
Does a converted draft propose what the draft itself does, and how fast is the pair with it?

Each host's draft is put to the same text, rows and roots as the MLX draft, token by token; then all hosts decode the
same prompts in turn. All tokens are compared with plain decoding. `reference` executes the converted packages with MLX,
on any machine; `coreml` runs them on a Mac's Neural Engine. A draft is converted by `mirror-mlx convert`; the bundled
one is.
"""
_COLUMNS = (
    ("host", "host", "{}"),
    ("same_proposals", "proposals as mlx", "{:.2%}"),
    ("proposals", "of", "{}"),
    ("tokens_per_step", "tok/step", "{:.2f}"),
    ("draft_ms", "draft ms a step", "{:.1f}"),
    ("tokens_per_second", "tok/s", "{:.1f}"),
    ("speed", "÷ mlx", "{:.2f}"),
    ("identical", "as plain", "{}"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", metavar="NAME", default="demo", help="target, or a pair (default: demo)")
    parser.add_argument("--draft-model", metavar="NAME", help="draft (default: the pair's own)")
    parser.add_argument(
        "--hosts", metavar="HOST", nargs="+", choices=[h for h in DRAFT_HOSTS if h not in ("auto", "mlx")],
        default=["reference"], help="besides mlx: coreml, coremltools, reference (default: reference)",
    )  # fmt: skip
    parser.add_argument("--temp", metavar="N", type=float, nargs="+", default=[0.0, 1.0], help="default: 0 1")
    add_counts(
        parser,
        ("--limit", 8, "at most so many prompts"),
        ("--max-tokens", 96, "longest answer"),
        ("--rounds", 2, "how often each host decodes each prompt"),
        ("--seed", 0, "of problems and sampling"),
    )
    add_prompts(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object with every figure")


def run(args: argparse.Namespace) -> int:
    """Measure and print. 0, or 1 where the tokens were not those of plain decoding."""
    with redirect_stdout(sys.stderr), flags.in_flags(vars(args)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mirror_mlx.bench.hosts import Settings, measure

        given = {name: getattr(args, name) for name in Settings.__dataclass_fields__ if hasattr(args, name)}
        settings = Settings(**given | {"hosts": tuple(args.hosts), "temps": tuple(args.temp)})
        count = len(settings.hosts)
        with progress(settings.limit * len(settings.temps) * (count + settings.rounds * (1 + count))) as report:
            found = rounded(measure(settings, report))
    if args.json:
        print(json.dumps(found))
    else:
        _print(found)
    return 0 if all(row["identical"] for row in found["hosts"]) else 1


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from mirror_mlx.bench.figures import disturbed

    console, setup = Console(highlight=False, soft_wrap=True), found["setup"]
    console.print(f"{setup['prompts']} prompts, {setup['rounds']} rounds, target on {setup['device']}")
    if said := disturbed(setup["other_programs_cores"]):
        console.print(said)
    for temperature in dict.fromkeys(row["temperature"] for row in found["hosts"]):
        table = Table(title=f"temperature {temperature:g}", title_justify="left", box=None, padding=(0, 1, 0, 0))
        for name, title, _ in _COLUMNS:
            table.add_column(title, justify="left" if name == "host" else "right", no_wrap=True)
        for row in found["hosts"]:
            if row["temperature"] == temperature:
                table.add_row(*(cell(row[name], form) for name, _, form in _COLUMNS))
        console.print(table)
