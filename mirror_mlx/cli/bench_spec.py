"""`mirror-mlx bench spec`: SpecBench, with mlx-lm's own decoding beside every method of this runtime."""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from mirror_mlx.cli import flags
from mirror_mlx.cli.measuring import add_counts, for_tables, parameters, rounded

DESCRIPTION = """\
What is it worth? mlx-lm's plain and speculative decoding, unchanged, and every method of this runtime answer the same
questions in turn: one process, the same target, type and cores. Spec-Bench's protocol and metrics.

  --questions FILE   Spec-Bench's question.jsonl, or any .jsonl with question, prompt, messages or turns
  --out DIR          keeps every answer's figures: Ctrl-C loses nothing, the same command goes on. At the end DIR has
                     results.jsonl, summary.json, table.md and spec.png
"""
PICTURE = "spec.png"
_QUIET = 60  # seconds between lines about progress where there is no terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("pair")
    group.add_argument("--model", metavar="NAME", default="demo", help="target, or a pair (default: demo)")
    group.add_argument(
        "--draft-model", metavar="NAME", help="autoregressive draft (default: the streaming draft's main stream)"
    )
    group.add_argument("--streaming-draft", metavar="NAME", help="streaming draft (default: the pair's own)")
    group.add_argument("--datastore", metavar="FILE", help="for rest: see mirror-mlx datastore")
    group = parser.add_argument_group("measurement")
    group.add_argument(
        "--questions",
        metavar="FILE",
        help="what to ask (default: for the bundled pair the last 5 %% of "
        "gsm8k_train.jsonl, which it was not trained on, if that is here or in $MIRROR_MLX_DATA; else made problems)",
    )
    group.add_argument(
        "--held-out",
        metavar="X",
        type=float,
        default=0.0,
        help="ask only the last share X of the file, as training's --held-out keeps it aside",
    )
    group.add_argument(
        "--limit", metavar="N", type=int, default=10, help="questions of each category (default: 10); 0: all"
    )
    group.add_argument(
        "--methods", metavar="NAME", nargs="+", help="plain always runs; mlx-sd@N has windows of N (default: all)"
    )
    group.add_argument("--temp", metavar="N", type=float, nargs="+", default=[0.0, 1.0], help="default: 0 1")
    add_counts(
        group,
        ("--runs", 3, "how often everything is answered"),
        ("--warmups", 3, "answers begun before, for each method and temperature"),
        ("--max-tokens", 256, "longest answer; Spec-Bench has 1024"),
        ("--seed", 0, "of made problems and sampling"),
    )
    group.add_argument("--out", metavar="DIR", help="keep the figures, and go on there")
    group.add_argument("--json", action="store_true", help="one JSON object with every figure")
    group = parser.add_argument_group("lab", "defaults: the target as it is, the drafts at their own speed")
    group.add_argument("--params", metavar="N", type=parameters, default=0, help="inflate the target to N parameters")
    group.add_argument("--pass-ms", metavar="MS", type=float, default=0.0, help="time of each pass of a model draft")
    group = parser.add_argument_group("decoding", "of this runtime's methods; defaults: the pair's own")
    for flag, what in (
        ("--num-draft-tokens", "proposals in a window"),
        ("--kappa", "outcomes prepared for each row and predictor"),
        ("--max-roots", "all outcomes of a step"),
        ("--exit-layer", "target layer the tap reads"),
    ):
        group.add_argument(flag, metavar="N", type=int, help=what)


def run(args: argparse.Namespace) -> int:
    """Measure, print and write. 0, or 130 where Ctrl-C ended it."""
    with redirect_stdout(sys.stderr), flags.in_flags(vars(args)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mirror_mlx import blas
        from mirror_mlx.bench.spec import Settings, measure

        given = {name: getattr(args, name) for name in Settings.__dataclass_fields__ if hasattr(args, name)}
        methods = tuple(args.methods) if args.methods else None
        settings = Settings(**given | {"temps": tuple(args.temp), "methods": methods})
        if blas.missing() is not None:
            print(f"mirror-mlx: {blas.missing()}", file=sys.stderr)
        with _progress() as report:
            found = rounded(measure(settings, report))
    if args.out is not None:
        _write(Path(args.out).expanduser(), found)
    if args.json:
        print(json.dumps(found))
    else:
        _print(found)
    if not found["finished"]:
        kept = "the same command goes on from here" if args.out else "give --out DIR to be able to go on"
        print(f"mirror-mlx: stopped: {kept}", file=sys.stderr)
    return 0 if found["finished"] else 130


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None]]:
    """A bar on stderr with the time that is left; where that is no terminal, a line now and then."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines()
        return
    columns = TextColumn("{task.description:<36}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    # No refresh thread: it would take its share of a core that is being measured.
    with Progress(*columns, console=console, transient=True, auto_refresh=False, speed_estimate_period=600) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, wanted, what: bar.update(
            task, completed=done, total=wanted or None, description=what, refresh=True
        )


def _lines() -> Callable[[int, int, str], None]:
    began = said = time.monotonic()
    first = -1  # dialogues that were there before the last warm-up

    def report(done: int, wanted: int, what: str) -> None:
        nonlocal began, said, first
        now = time.monotonic()
        if "warm-up" in what or first < 0:
            began, first = now, done
        if now - said < _QUIET:
            return
        said, gone = now, done - first
        left = f", about {(now - began) / gone * (wanted - done) / 60:.0f} min left" if gone else f": {what}"
        print(f"{done} of {wanted} dialogues{left}", file=sys.stderr, flush=True)

    return report


def _write(folder: Path, found: dict[str, Any]) -> None:
    """summary.json, table.md and the picture."""
    from importlib.util import find_spec

    from mirror_mlx.bench.files import replace
    from mirror_mlx.bench.plot_spec import draw
    from mirror_mlx.bench.spec_tables import markdown, setup
    from mirror_mlx.errors import MirrorError

    replace(folder / "summary.json", json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    replace(folder / "table.md", markdown(found))
    if find_spec("matplotlib") is None:
        print(f"mirror-mlx: no {PICTURE}: pip install 'mirror-mlx[plot]'", file=sys.stderr)
    elif found["temperatures"]:
        try:
            draw(found, folder / PICTURE, "\n".join(setup(found)[:2]))
        except OSError as reason:
            raise MirrorError(f"{folder / PICTURE} cannot be written: {reason.strerror}") from None


def _print(found: dict[str, Any]) -> None:
    from rich.table import Table

    from mirror_mlx.bench.spec_tables import remarks, setup, tables, verdict

    console = for_tables(markup=False)
    for line in setup(found):
        console.print(line)
    for table in tables(found):
        shown = Table(title=f"\n{table.title}", title_justify="left", box=None, padding=(0, 2, 0, 0))
        for i, column in enumerate(table.columns):
            shown.add_column(column, justify="right" if i else "left", no_wrap=True)
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)
    console.print()
    for line in [*verdict(found), *remarks(found)]:
        console.print(f"· {line}")
