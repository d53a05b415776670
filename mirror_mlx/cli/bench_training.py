"""`mirror-mlx bench training`: what training costs on this machine."""

import argparse
import json
import sys
from contextlib import redirect_stdout

from mirror_mlx.cli.measuring import progress, rounded
from mirror_mlx.errors import UsageError

DESCRIPTION = """\
Tokens a second and peak memory of each kind of training, over the rows of a step and their length: how long a run
will take, and what fits. A few steps of each are done on made-up problems; nothing is kept.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", metavar="DIR", default="demo", help="the target trained for (default: demo)")
    parser.add_argument(
        "--kinds", nargs="+", choices=["lm", "draft", "on policy", "tap"], metavar="KIND",
        help="lm, draft, 'on policy', tap (default: all)",
    )  # fmt: skip
    parser.add_argument("--batch-sizes", nargs="+", type=int, metavar="N", default=[2, 8], help="default: 2 8")
    parser.add_argument("--lengths", nargs="+", type=int, metavar="N", default=[128, 512], help="default: 128 512")
    parser.add_argument("--steps", type=int, metavar="N", default=3, help="steps timed of each (default: 3)")
    parser.add_argument("--long", action="store_true", help="as in a long run, whose steps are compiled first")
    parser.add_argument("--json", action="store_true", help="one JSON list with every figure")


def run(args: argparse.Namespace) -> int:
    """Measure and print."""
    for name in ("batch_sizes", "lengths", "steps"):
        value = getattr(args, name)
        if min(value if isinstance(value, list) else [value]) < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be 1 or more")
    with redirect_stdout(sys.stderr):
        from mirror_mlx.bench.training import KINDS, Plan, measure, table

        plan = Plan(
            args.target, tuple(args.kinds or KINDS), tuple(args.batch_sizes), tuple(args.lengths), args.steps, args.long
        )
        with progress(len(plan.kinds) * len(plan.batch_sizes) * len(plan.lengths)) as report:
            rows = measure(plan, report)
    if args.json:
        print(json.dumps(rounded(rows)))
        return 0
    from rich.console import Console
    from rich.table import Table

    drawn = Table()
    for title in ("kind", "rows × length", "tokens/s", "step, s", "peak, MB"):
        drawn.add_column(title, justify="left" if title == "kind" else "right")
    for row in table(rows):
        drawn.add_row(*row)
    Console(highlight=False).print(drawn)
    return 0
