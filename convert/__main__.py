"""`mirror-mlx convert`, one step at a time: for looking at what each of them makes.

    python -m mirror_mlx.convert build DRAFT DIR [flags of mirror-mlx convert]    packages and manifest, not compared
    python -m mirror_mlx.convert check DIR                                        rules of the Neural Engine
    python -m mirror_mlx.convert parity DIR DRAFT                                 compare, and write the figures down

Packages that were never compared are not used by the runtime.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mirror_mlx.cli.convert import add_build_flags, build_of, folder_of, progress
from mirror_mlx.convert import checks, parity
from mirror_mlx.convert.convert import convert
from mirror_mlx.draft.package import manifest
from mirror_mlx.errors import MirrorError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one step; returns the exit status (0 done, 2 a user's mistake)."""
    parser = argparse.ArgumentParser(
        prog="python -m mirror_mlx.convert", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = parser.add_subparsers(dest="step", metavar="STEP", required=True)
    build, check, compare = (steps.add_parser(name) for name in ("build", "check", "parity"))
    build.add_argument("draft", metavar="DRAFT", help="a folder, a hub id, or demo")
    add_build_flags(build)
    for one in (build, check, compare):
        one.add_argument("folder", metavar="DIR", type=Path)
    compare.add_argument("draft", metavar="DRAFT", help="a folder, a hub id, or demo")
    args = parser.parse_args(argv)
    try:
        {"build": _build, "check": _check, "parity": _parity}[args.step](args)
    except MirrorError as error:
        print(f"{parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _build(args: argparse.Namespace) -> None:
    with progress() as report:
        made = convert(folder_of(args.draft), args.folder, build_of(args), report=report)
    print(*(package.file for package in made.packages), sep="\n")


def _check(args: argparse.Namespace) -> None:
    made = manifest.read(args.folder)
    manifest.verify(made, args.folder)
    for package in made.packages:
        checks.check(args.folder / package.file, stateful=made.stateful, max_bytes=float("inf"))
        print(f"{package.file}: rules kept")


def _parity(args: argparse.Namespace) -> None:
    made = manifest.read(args.folder)
    made = replace(made, parity=parity.check(made, args.folder, folder_of(args.draft)))
    (args.folder / manifest.FILE).write_text(json.dumps(made.to_json(), indent=2) + "\n", encoding="utf-8")
    print(*(f"{name}: {value:g}" for name, value in made.parity.items()), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
