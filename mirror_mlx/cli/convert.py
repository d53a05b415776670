"""`mirror-mlx convert`: a draft becomes Core ML packages for the Neural Engine."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_mlx.cli import flags
from mirror_mlx.errors import DraftError, UsageError

if TYPE_CHECKING:
    from mirror_mlx.convert.options import Build
    from mirror_mlx.draft.package.manifest import Manifest

PRECISIONS = ("float16", "int8", "lut6", "lut4")
DESCRIPTION = """\
Convert a draft into Core ML packages for the Neural Engine, and check that they say what the draft says.

DRAFT is a streaming draft (mirror-mlx train draft) or any model of the Qwen3, Qwen2, Llama or Mistral type with the
target's tokenizer. The packages are executed here, by MLX, and compared with the draft before they are kept; what a
Mac's Neural Engine does with them, `mirror-mlx doctor` says. The draft's folder is still needed to run them: they are
found again by its contents, in ./ane_models and in ~/.cache/mirror-mlx/ane_models.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("draft", metavar="DRAFT", help="a folder, a hub id, or demo")
    parser.add_argument("--out", metavar="DIR", help="default: ~/.cache/mirror-mlx/ane_models/NAME")
    add_build_flags(parser)


def add_build_flags(parser: argparse.ArgumentParser) -> None:
    """What `build_of` reads."""
    group = parser.add_argument_group("packages")
    group.add_argument(
        "--precision",
        choices=PRECISIONS,
        default="float16",
        help="of the weights (default: float16). lut6 and lut4 are experimental: on some chips such packages give "
        "wrong numbers or crash after some hundred calls",
    )
    for flag, default, what in (
        ("--context", 1024, "key-value slots: the longest text with its branches"),
        ("--num-draft-tokens", 7, "the window it is sized for"),
        ("--first", 32, "columns of a pass before the streams start"),
        ("--second", 64, "columns after that: mains and streams"),
        ("--prefill", 64, "columns of a prefill pass"),
        ("--buckets", 256, "parts of the vocabulary whose best tokens are given"),
    ):
        group.add_argument(flag, metavar="N", type=int, default=default, help=f"{what} (default: {default})")
    group.add_argument("--boundary", metavar="N", type=int, help="cut an ordinary model after N layers (default: half)")
    group.add_argument("--max-package-bytes", metavar="N", type=float, default=1e9, help="default: 1e9")
    group.add_argument(
        "--write", choices=("slice", "blend"), default="slice", help="how rows get into the slots (default: slice)"
    )
    group.add_argument("--stateless", action="store_true", help="slots as inputs and outputs, not as Core ML state")


def run(args: argparse.Namespace) -> int:
    """Convert, check, and say what was made."""
    if find_spec("coremltools") is None:
        raise UsageError("convert needs coremltools: pip install 'mirror-mlx[coreml]'")
    with flags.in_flags(vars(args)):
        from mirror_mlx import memory
        from mirror_mlx.draft.package.find import CACHE

        draft = folder_of(args.draft)
        name = "demo" if args.draft == "demo" else Path(args.draft).expanduser().resolve().name
        out = Path(args.out).expanduser() if args.out else CACHE.expanduser() / name
        from mirror_mlx.convert import parity
        from mirror_mlx.convert.convert import convert

        memory.reuse()
        with progress() as report:
            made = convert(draft, out, build_of(args), report=report, check=parity.check)
    _print(made, out)
    return 0


def folder_of(name: str) -> Path:
    """The draft that a user means. Raises DraftError."""
    from mirror_mlx.hub import find
    from mirror_mlx.loading import DEMO

    return find(DEMO / "draft" if name == "demo" else name, DraftError)


def build_of(args: argparse.Namespace) -> "Build":
    """What the flags say."""
    from mirror_mlx.convert.options import Build

    return Build(
        first=args.first, second=args.second, prefill=args.prefill, context=args.context,
        num_draft_tokens=args.num_draft_tokens, precision=args.precision, write=args.write,
        stateful=not args.stateless, buckets=args.buckets, max_bytes=args.max_package_bytes, boundary=args.boundary,
    )  # fmt: skip


@contextmanager
def progress() -> Iterator[Any]:
    """A bar on stderr, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = TextColumn("{task.description:<32}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading the draft", total=None)
        yield lambda done, total, what: bar.update(task, completed=done, total=total, description=what)


def _print(made: "Manifest", out: Path) -> None:
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    shapes = made.shapes
    print(f"{out}: {len(made.packages)} packages, {size / 1e6:.1f} MB, {made.precision}", file=sys.stdout)
    print(
        f"  {shapes.context} slots, {shapes.first} and {shapes.second} columns a pass, {shapes.streams} streams, "
        f"windows of {made.num_draft_tokens}"
    )
    for name, value in made.parity.items():
        print(f"  {name.replace('_', ' ')}: {value:g}")
