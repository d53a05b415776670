"""`mirror-mlx bench variants`: serial speculation and Mirror, with each of a pair's drafts."""

import argparse
import json
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from mirror_mlx.cli import flags
from mirror_mlx.cli.measuring import add_counts, add_prompts, cell, parameters, progress, rounded
from mirror_mlx.errors import UsageError

DESCRIPTION = """\
How many tokens does a step bring, and what does a window cost the draft: serial speculation (sd) and Mirror, each with
an autoregressive and with a streaming draft? A streaming draft's main stream alone is an autoregressive one.

Every variant decodes the same prompts, greedily and sampled; the tokens are compared with plain decoding. J is how
many passes a window takes, η̄ how many tokens a pass proposes for a branch.
"""
_COLUMNS = (
    ("variant", "variant", "{}"),
    ("tokens_per_step", "tok/step", "{:.2f}"),
    ("hit_rate", "hits", "{:.0%}"),
    ("passes_per_window", "J", "{:.1f}"),
    ("tokens_per_pass", "η̄", "{:.2f}"),
    ("pass_ms", "pass ms", "{:.1f}"),
    ("window_ms", "window ms", "{:.1f}"),
    ("verify_ms", "verify ms", "{:.1f}"),
    ("tokens_per_second", "tok/s", "{:.0f}"),
    ("identical", "as plain", "{}"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pair")
    group.add_argument("--model", metavar="NAME", default="demo", help="a pair (default: demo)")
    group.add_argument(
        "--drafts", metavar="DIR", nargs="+", help="drafts to compare (default: all in the pair's folder)"
    )
    group.add_argument("--exact", action="store_true", help="streaming drafts in exact mode too")
    group.add_argument("--streams", metavar="N", type=int, help="so many of their streams (default: all)")
    group = parser.add_argument_group("lab", "defaults: the target as it is, the draft at its own speed")
    group.add_argument("--params", metavar="N", type=parameters, default=0, help="inflate the target to N parameters")
    group.add_argument("--pass-ms", metavar="N", type=float, default=0.0, help="pace each draft pass to N ms")
    group = parser.add_argument_group("measurement")
    group.add_argument("--temp", metavar="N", type=float, nargs="+", default=[0.0, 1.0], help="default: 0 1")
    add_counts(
        group,
        ("--num-draft-tokens", 7, "proposals in a window"),
        ("--kappa", 8, "outcomes prepared for each row and predictor"),
        ("--roots", 64, "all outcomes of a step"),
        ("--limit", 12, "at most so many prompts"),
        ("--max-tokens", 96, "longest answer"),
        ("--seed", 0, "of problems and sampling"),
    )
    add_prompts(group)
    group.add_argument("--json", action="store_true", help="one JSON object with every figure")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    with redirect_stdout(sys.stderr), flags.in_flags(vars(args)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mirror_mlx.bench.variants import MODES, Settings, measure

        drafts = _drafts(args)
        given = {name: getattr(args, name) for name in Settings.__dataclass_fields__ if hasattr(args, name)}
        settings = Settings(**given | {"drafts": drafts, "temps": tuple(args.temp)})
        work = settings.limit * len(settings.temps) * len(MODES) * len(drafts) * (2 + args.exact)
        with progress(work) as report:
            found = rounded(measure(settings, report))
    if args.json:
        print(json.dumps(found))
    else:
        _print(found)
    return 0


def _drafts(args: argparse.Namespace) -> dict[str, str]:
    """The drafts by name."""
    from mirror_mlx.loading import DEMO

    folder = DEMO if args.model == "demo" else Path(args.model).expanduser()
    found = [Path(name).expanduser() for name in args.drafts or ()] or sorted(
        path.parent for path in folder.glob("*/config.json") if path.parent.name != "target"
    )
    if not found:
        raise UsageError(f"{args.model} has no drafts beside its target: name some with --drafts")
    return {path.name: str(path) for path in found}


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from mirror_mlx.bench.figures import disturbed

    console, setup = Console(highlight=False, soft_wrap=True), found["setup"]
    size = f"inflated to {setup['params'] / 1e6:.0f} M" if setup["params"] else "as it is"
    pace = f"paced to {setup['pass_ms']:g} ms a pass" if setup["pass_ms"] else "at its own speed"
    console.print(
        f"{setup['prompts']} prompts; {setup['num_draft_tokens']} proposals, {setup['roots']} roots; target {size}, "
        f"draft {pace}; {setup['cores']}; {setup['device']}"
    )
    if said := disturbed(setup["other_programs_cores"]):
        console.print(said)
    for temperature in dict.fromkeys(row["temperature"] for row in found["variants"]):
        table = Table(title=f"temperature {temperature:g}", title_justify="left", box=None, padding=(0, 1, 0, 0))
        for name, title, _ in _COLUMNS:
            table.add_column(title, justify="left" if name == "variant" else "right", no_wrap=True)
        for row in found["variants"]:
            if row["temperature"] == temperature:
                table.add_row(*(cell(row[name], form) for name, _, form in _COLUMNS))
        console.print(table)
    for row in found["streaming"]:
        console.print(
            f"T {row['temperature']:g}, {row['variant']}: a window takes {row['window_time_ratio']:.2f} of the "
            f"autoregressive draft's time and brings {row['tokens_per_step_ratio']:.2f} of its tokens a step"
        )
