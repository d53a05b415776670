"""`mirror-mlx bench tap`: how often tap and draft foresee how a verification ends."""

import argparse
import json
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_mlx.cli import flags
from mirror_mlx.cli.measuring import add_prompts, check_plot, progress, rounded, written
from mirror_mlx.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

DESCRIPTION = """\
How often is the real outcome among those that were prepared for, by who names them and where the tap reads?

Held-out prompts are decoded in turns, at each temperature, with the taps of several exit layers read in each step:
through the target's own head (plain) and, where the pair has a tap.safetensors, through the trained adapter. The
best exit layer is the one whose hybrid hits most as the pair is run, and the earliest of those nearly as good.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pair")
    group.add_argument("--model", metavar="NAME", default="demo", help="target, or a pair (default: demo)")
    group.add_argument("--draft-model", metavar="NAME", help="draft (default: the pair's own)")
    group = parser.add_argument_group("measurement")
    group.add_argument(
        "--exit-layers",
        metavar="N",
        type=int,
        nargs="+",
        help="where to tap (default: a quarter, half, three quarters)",
    )
    group.add_argument(
        "--temp", metavar="N", type=float, nargs="+", default=[0.0, 1.0], help="temperatures (default: 0 1)"
    )
    add_prompts(group)
    for flag, default, what in (("--limit", 40, "at most so many prompts"), ("--max-tokens", 160, "longest answer")):
        short = ["-m"] if flag == "--max-tokens" else []
        group.add_argument(flag, *short, metavar="N", type=int, default=default, help=f"{what} (default: {default})")
    group.add_argument("--seed", metavar="N", type=int, default=0, help="of problems and sampling (default: 0)")
    group.add_argument("--json", action="store_true", help="one JSON object with every figure")
    group.add_argument("--plot", metavar="FILE.png", help="draw misses, hits by row, and the predictors compared")
    group.add_argument("--write", action="store_true", help="keep tables and best exit layer in the pair's pair.json")
    group = parser.add_argument_group("decoding", "default: as the pair is run")
    for flag, what in (
        ("--num-draft-tokens", "proposals in a window"),
        ("--kappa", "outcomes prepared for each row and predictor"),
        ("--max-roots", "all outcomes of a step"),
    ):
        group.add_argument(flag, metavar="N", type=int, help=what)


def run(args: argparse.Namespace) -> int:
    """Measure, print, and keep what was asked to be kept."""
    if args.plot is not None:
        check_plot(args.plot)
    with redirect_stdout(sys.stderr), flags.in_flags(vars(args)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mirror_mlx.bench.collect import Settings, measure, pair_file, write

        given = {name: getattr(args, name) for name in Settings.__dataclass_fields__ if hasattr(args, name)}
        given["exit_layers"] = tuple(args.exit_layers) if args.exit_layers else None
        settings = Settings(**given, temps=tuple(args.temp))
        keep = _checked_file(args, pair_file(args.model)) if args.write else None
        with progress(settings.limit * len(settings.temps)) as report:
            found = rounded(measure(settings, report))
    if args.plot is not None:
        from mirror_mlx.bench.plot_hits import draw

        with written(args.plot):
            draw(found, Path(args.plot).expanduser(), _caption(found))
    if keep is not None:
        write(keep, found)
    if args.json:
        print(json.dumps(found))
    else:
        _print(found)
    return 0


def _checked_file(args: argparse.Namespace, file: Path) -> Path:
    if args.draft_model is not None:
        raise UsageError("--write keeps what holds for a pair with its own draft: leave out --draft-model")
    flags.check_writable(str(file), "--write")
    return file


def _caption(found: dict[str, Any]) -> str:
    setup = found["setup"]
    return (
        f"prompts: {setup['requests']}; {setup['num_draft_tokens']} proposals; tap after "
        f"{', '.join(map(str, setup['exit_layers']))} of {setup['layers']} layers"
    )


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console

    from mirror_mlx.bench.collect import as_run
    from mirror_mlx.bench.hits import DEPTH, used

    console = Console(highlight=False, soft_wrap=True)
    console.print(_caption(found))
    if found["setup"]["adapter_refusal"] is not None:
        console.print(f"the trained tap cannot be used: {found['setup']['adapter_refusal']}")
    for tables in found["temperatures"]:
        console.print(
            f"\n[bold]temperature {tables['temperature']:g}[/bold]: {tables['steps']} steps, {tables['rejected']} with "
            f"a rejected proposal, {tables['tokens_per_step']:.2f} tokens a step. In brackets: given a rejection"
        )
        kappas = [f"κ {kappa}" for kappa in found["kappas"]]
        for kind in ("hit", "miss"):
            rows = [(_name(tap), tap["tap"]["by_kappa"]) for tap in tables["taps"]]
            rows.append(("draft", tables["draft"]["by_kappa"]))
            title = f"{kind} rate, κ roots on every row"
            _table(console, title, kappas, [(name, _pairs(rates, kind)) for name, rates in rows])
        names = [str(row) for row in range(len(tables["steps_by_row"]))]
        rows = [(_name(tap), [_rate(rate) for rate in tap["tap"]["by_row"]]) for tap in tables["taps"]]
        rows += [("draft", [_rate(rate) for rate in tables["draft"]["by_row"]])]
        rows += [("steps", [str(count) for count in tables["steps_by_row"]])]
        _table(console, f"hit rate by accepted proposals, κ {DEPTH}", names, rows)
        sources = [("draft", tables["draft"])]
        for tap in used(tables):
            sources += [(_name(tap), tap["tap"]), (f"{_name(tap)} + draft", tap["hybrid"])]
        for key, title in (("per_row", "on a row"), ("per_step", "in a step")):
            counts = [str(count) for count in found[key]]
            rows = [(name, _pairs(source[key])) for name, source in sources]
            _table(console, f"hit rate, so many roots {title} in all", counts, rows)
        fans = (("by score", "per_step"), ("geometric", "fan_out_geometric"), ("uniform", "fan_out_uniform"))
        rows = [(name, _pairs(tables["draft"][key])) for name, key in fans]
        counts = [str(count) for count in found["per_step"]]
        _table(console, "hit rate of the draft's roots, so many in a step, by how rows share them", counts, rows)
    setup, rates = found["setup"], as_run(found["temperatures"])
    listed = ", ".join(f"{layer}: {rate:.3f}" for layer, rate in sorted(rates.items()))
    console.print(
        f"\nhybrid as this pair is run (κ {setup['kappa']}, {setup['max_roots']} roots), by exit layer: {listed}\n"
        f"best exit layer: {found['exit_layer']} of {setup['layers']}"
    )


def _table(console: "Console", title: str, columns: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(min_width=22, no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    for name, cells in rows:
        table.add_row(name, *cells)
    console.print(f"\n{title}")
    console.print(table)


def _name(tap: dict[str, Any]) -> str:
    return f"tap {tap['exit_layer']}" + (", trained" if tap["lens"] == "trained" else "")


def _pairs(rates: dict[str, list[float | None]], kind: str = "hit") -> list[str]:
    both = zip(rates[f"{kind}_rate"], rates[f"{kind}_rate_given_rejection"], strict=True)
    return [f"{_rate(rate)} ({_rate(given)})" for rate, given in both]


def _rate(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.2f}".removeprefix("0")
