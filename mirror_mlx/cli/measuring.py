"""What the measuring commands share: flags' values, a plot file, a bar while they run, figures as they are printed."""

import argparse
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from mirror_mlx.cli import flags
from mirror_mlx.errors import MirrorError, UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from rich.console import Console

_WIDTH = 220  # characters of the widest table
_Settings = TypeVar("_Settings", bound="DataclassInstance")


def parameters(text: str) -> int:
    """A number of parameters.

    >>> parameters("131M"), parameters("1.5e8")
    (131000000, 150000000)
    """
    match = re.fullmatch(r"([\d.]+(?:e\d+)?)([KMB]?)", text.strip(), re.IGNORECASE)
    try:
        return round(float(match[1]) * {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}[match[2].upper()])  # type: ignore[index]
    except (TypeError, ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of parameters, such as 131M") from None


def add_lab(parser: argparse.ArgumentParser) -> None:
    """The pair, and what the lab makes of it: `--model`, `--draft-model`, `--params`, `--pass-ms`."""
    group = parser.add_argument_group("lab")
    group.add_argument("--model", metavar="NAME", default="demo", help="target, or a pair (default: demo)")
    group.add_argument("--draft-model", metavar="NAME", help="draft (default: the pair's own)")
    group.add_argument(
        "--params",
        metavar="N",
        type=parameters,
        default=160_000_000,
        help="inflate the target to N (default: 160M); 0: no",
    )
    group.add_argument(
        "--pass-ms", metavar="MS", type=float, default=10.0, help="time of each draft pass (default: 10); 0: its own"
    )


def add_counts(group: argparse._ActionsContainer, *counts: tuple[str, int, str]) -> None:
    """Flags with a whole number each: name, default, help."""
    for flag, default, what in counts:
        group.add_argument(flag, metavar="N", type=int, default=default, help=f"{what} (default: {default})")


def add_window(group: argparse._ActionsContainer) -> None:
    """`--num-draft-tokens`, `--kappa`, `--max-roots` and `--exit-layer`."""
    add_counts(
        group,
        ("--num-draft-tokens", 7, "proposals in a window"),
        ("--kappa", 8, "outcomes prepared for each row and predictor"),
        ("--max-roots", 24, "all outcomes of a step"),
    )
    group.add_argument(
        "--exit-layer", metavar="N", type=int, help="target layer the tap reads (default: where a rollout still fits)"
    )


def add_prompts(group: argparse._ActionsContainer) -> None:
    """`--prompts` and `--held-out`."""
    group.add_argument(
        "--prompts", metavar="FILE", help=".jsonl, or a prompt a line (default: word problems no model was trained on)"
    )
    group.add_argument(
        "--held-out", metavar="X", type=float, default=0.0, help="only the last share X of that file, as training's "
        "--held-out keeps it aside"
    )  # fmt: skip


def settings_from(args: argparse.Namespace, settings: type[_Settings]) -> _Settings:
    """The settings of a measurement, all of which are flags; and a word to a user whose CPU could be much faster."""
    from mirror_mlx import blas

    if (slow := blas.missing()) is not None:
        print(f"mirror-mlx: {slow}", file=sys.stderr)
    return settings(**{field.name: getattr(args, field.name) for field in fields(settings)})


def check_plot(path: str) -> None:
    flags.check_writable(path, "--plot")
    if Path(path).suffix.lower() not in (".png", ".svg", ".pdf"):
        raise UsageError(f"--plot {path}: give it a name that ends in .png, .svg or .pdf")
    if find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib: pip install 'mirror-mlx[plot]'")


@contextmanager
def written(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as reason:
        raise MirrorError(f"--plot {path} cannot be written: {reason.strerror}") from None


@contextmanager
def progress(steps: int) -> Iterator[Callable[[int, str], None]]:
    """A bar on stderr while it runs, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    console = Console(stderr=True)
    # No refresh thread: it would take its share of a core that is being measured.
    with Progress(
        *columns, console=console, transient=True, auto_refresh=False, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=steps)
        yield lambda done, what: bar.update(task, completed=min(done, steps), description=what, refresh=True)


def rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list) else value


def cell(value: Any, form: str) -> str:
    """A figure in a table.

    >>> cell(0.5, "{:.0%}"), cell(True, "{}"), cell(None, "{}")
    ('50%', 'yes', '–')
    """
    if value is None:
        return "–"
    return {True: "yes", False: "NO"}[value] if isinstance(value, bool) else form.format(value)


def for_tables(markup: bool = True) -> "Console":
    """Where they are printed: wide enough for each, terminal or not. A figure that is cut off is none."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=markup)
    console.width = max(console.width, _WIDTH)
    return console
