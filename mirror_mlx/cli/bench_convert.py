"""`mirror-mlx bench convert`: what converting a draft costs on this machine."""

import argparse
import json
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mirror_mlx.cli import flags
from mirror_mlx.cli.convert import PRECISIONS
from mirror_mlx.cli.measuring import progress, rounded
from mirror_mlx.errors import DraftError, UsageError

DESCRIPTION = """\
Seconds and peak memory of mirror-mlx convert, with each precision, and what it makes: how many packages, how large.
Its parity check, which executes the packages and takes several times as much of both, counts with --parity only.

The draft has random weights and the shape of Qwen3-0.6B, unless told otherwise. It and its packages are written into a
temporary folder of about three times the draft's size, on a disk that TMPDIR chooses, which is gone afterwards. Each
conversion has a process of its own. Its peak is the most memory this process has at once, pages of files included.
"""
_SHAPE = (
    ("--layers", 28, "layers"),
    ("--hidden-size", 1024, "width of a layer"),
    ("--intermediate-size", 3072, "width inside the MLP"),
    ("--heads", 16, "attention heads"),
    ("--kv-heads", 8, "key-value heads"),
    ("--head-dim", 128, "width of a head"),
    ("--vocab-size", 151_936, "entries of the vocabulary"),
)
_COLUMNS = (
    ("precision", "precision", "{}"),
    ("seconds", "seconds", "{:.0f}"),
    ("peak_bytes", "peak, MB", "{:.0f}"),
    ("peak_ratio", "× draft", "{:.2f}"),
    ("packages", "packages", "{}"),
    ("largest_package_bytes", "largest, MB", "{:.0f}"),
    ("below_limit", "< 1 GB", "{}"),
    ("head_part_rows", "head rows", "{}"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("draft", "one that is there, or the shape of one to be made")
    group.add_argument("--draft", metavar="NAME", help="a folder, a hub id, or demo")
    for flag, default, what in _SHAPE:
        group.add_argument(flag, metavar="N", type=int, help=f"{what} (default: {default})")
    group.add_argument("--untied", action="store_true", default=None, help="its head has weights of its own")
    group = parser.add_argument_group("measurement")
    group.add_argument(
        "--precision", nargs="+", choices=PRECISIONS, default=["float16", "int8"],
        help="one conversion each (default: float16 int8); lut6 and lut4 take twice as long",
    )  # fmt: skip
    group.add_argument(
        "--parity", action="store_true",
        help="also execute the packages and compare them with the draft, as convert does",
    )  # fmt: skip
    group.add_argument("--json", action="store_true", help="one JSON object with every figure")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    if find_spec("coremltools") is None:
        raise UsageError("bench convert needs coremltools: pip install 'mirror-mlx[coreml]'")
    with redirect_stdout(sys.stderr), flags.in_flags(vars(args)):
        from mirror_mlx.bench.conversion import STEPS, Plan, measure

        precisions = tuple(dict.fromkeys(args.precision))
        plan = Plan(_draft(args), precisions, args.parity)
        with progress(STEPS * (1 + len(precisions))) as report:
            found = measure(plan, report)
    if args.json:
        print(json.dumps(rounded(found)))
    else:
        _print(found)
    return 0


def _draft(args: argparse.Namespace) -> Any:
    """A folder, or the shape of a draft to be made."""
    from mirror_mlx.bench.conversion import Shape

    given = {name: getattr(args, name) for name in Shape.__dataclass_fields__ if getattr(args, name) is not None}
    if args.draft is None:
        return Shape(**given)
    if given:
        raise UsageError(f"{next(iter(given))} is for a draft that is made: leave it out, or --draft")
    from mirror_mlx.hub import find
    from mirror_mlx.loading import DEMO

    return Path(find(DEMO / "draft" if args.draft == "demo" else args.draft, DraftError))


def _print(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console, draft = Console(highlight=False, soft_wrap=True), found["draft"]
    size = f"{draft['parameters'] / 1e6:.1f} M parameters, {draft['float16_bytes'] / 1e6:.0f} MB in float16"
    console.print(f"{draft['name']}: {size}")
    table = Table(box=None, padding=(0, 1, 0, 0))
    for name, title, _ in _COLUMNS:
        table.add_column(title, justify="left" if name == "precision" else "right", no_wrap=True)
    for row in found["conversions"]:
        table.add_row(*(_cell(row[name], name, form) for name, _, form in _COLUMNS))
    console.print(table)
    for row in found["conversions"]:
        without = f"× {row['peak_ratio_above_baseline']:.2f} without {row['baseline_bytes'] / 1e6:.0f} MB"
        console.print(f"{row['precision']}: peak {without} of Python and its libraries")
        for name, value in row["parity"].items():
            console.print(f"  {name.replace('_', ' ')}: {value:g}")


def _cell(value: Any, name: str, form: str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "NO"
    return form.format(value / 1e6 if name.endswith("_bytes") else value)
