"""`mirror-mlx bench report`: what was measured, as one page."""

import argparse
import sys
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path

from mirror_mlx.cli import flags
from mirror_mlx.errors import UsageError

DESCRIPTION = """\
One HTML file of what was measured: tables, pictures, and timelines to zoom into. It opens with no network.

  mirror-mlx bench law --json > law.json
  mirror-mlx generate -p "Tom has 3 apples." --mode mirror --trace run.json
  mirror-mlx bench report law.json run.json --out report.html

Files are what bench's --json wrote, the summary.json of bench spec --out, and traces. Each is known by its content.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILE", nargs="+", help="JSON of bench's --json, or a trace")
    parser.add_argument(
        "--out", metavar="FILE.html", default="report.html", help="the page to write (default: report.html)"
    )
    parser.add_argument("--title", metavar="TEXT", default="mirror-mlx report", help="its title")


def run(args: argparse.Namespace) -> int:
    """Read, draw and write."""
    out = Path(args.out).expanduser()
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {args.out}: give it a name that ends in .html")
    flags.check_writable(args.out, "--out")
    if find_spec("matplotlib") is None:
        raise UsageError("bench report needs matplotlib: pip install 'mirror-mlx[plot]'")
    with redirect_stdout(sys.stderr):
        from mirror_mlx.bench.report import write

        size = write(args.files, out, args.title)
    count = len(args.files)
    print(f"{args.out}: {count} {'file' if count == 1 else 'files'}, {size / 1e3:.0f} kB")
    return 0
