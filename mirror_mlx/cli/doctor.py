"""`mirror-mlx doctor`: is all well on this machine?"""

import argparse
import json
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_mlx.cli import flags
from mirror_mlx.errors import MirrorError

if TYPE_CHECKING:
    from mirror_mlx.doctor import Finding

DESCRIPTION = """\
Examine this machine: versions, devices, converted drafts, and a short run of the bundled pair.

On a Mac each converted draft is compiled, loaded and predicted with; Core ML is asked on which device each operation
is to run; its answers are compared with the draft's own; latency is measured alone and beside a busy GPU. Then longer
states and compressed weights are tried, with the bundled draft. Elsewhere what needs Core ML is listed as skipped.
Nothing is changed. Exit status 1 if something failed; what to do about it stands below it.
"""
EPILOG = """examples:
  mirror-mlx doctor                        everything; a minute or two on a Mac
  mirror-mlx doctor --quick                without trying longer states and compressed weights
  mirror-mlx doctor Qwen/Qwen3-0.6B        compare its converted packages with it, too
  mirror-mlx doctor --json > report.json   all figures, for a bug report
"""
_SIGNS = {"ok": ("✓", "green"), "note": ("!", "yellow"), "failed": ("✗", "red"), "skipped": ("–", "dim")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("drafts", metavar="DRAFT", nargs="*", help="drafts that were converted: folders or hub ids")
    parser.add_argument("--model", metavar="NAME", default="demo", help="the pair to run (default: demo)")
    parser.add_argument("--quick", action="store_true", help="leave out what converts the bundled draft anew")
    parser.add_argument("--trace", metavar="FILE", help="write the run's timeline (Trace Event JSON)")
    parser.add_argument("--json", action="store_true", help="one JSON object: findings with all figures")


def run(args: argparse.Namespace) -> int:
    """Examine and print. 0, or 1 where something failed."""
    if args.trace is not None:
        flags.check_writable(args.trace, "--trace")
    out, found, traces = sys.stdout, [], []
    with redirect_stdout(sys.stderr), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mirror_mlx.doctor import Settings, examine

        settings = Settings(args.model, tuple(args.drafts), args.quick)
        with _printer(out, quiet=args.json) as (show, notify):
            for finding in examine(settings, notify, traces):
                found.append(finding)
                show(finding)
    failed = [finding for finding in found if finding.status == "failed"]
    if args.trace is not None and traces:
        try:
            traces[-1].write(Path(args.trace).expanduser())
        except OSError as reason:
            raise MirrorError(f"--trace {args.trace} cannot be written: {reason.strerror}") from None
    if args.json:
        report = {"ok": not failed, "findings": [finding.as_dict() for finding in found]}
        print(json.dumps(report, indent=2, default=str), file=out)
    else:
        print(_summary(found), file=out)
    return 1 if failed else 0


@contextmanager
def _printer(out: Any, *, quiet: bool) -> Iterator[tuple[Any, Any]]:
    """Show a finding, and say what is being done meanwhile on a terminal."""
    from rich.console import Console
    from rich.text import Text

    console, status = Console(file=out, highlight=False, soft_wrap=True, quiet=quiet), Console(stderr=True)
    groups: list[str] = []
    with status.status("looking at the machine", spinner="dots") as spinner:

        def show(finding: "Finding") -> None:
            if groups[-1:] != [finding.group]:
                console.print(Text(("\n" if groups else "") + finding.group, "bold"))
                groups.append(finding.group)
            sign, style = _SIGNS[finding.status]
            console.print(Text.assemble((f"  {sign} ", style), f"{finding.name}: {finding.said}"))
            if finding.advice:
                console.print(Text(f"    → {finding.advice}"))
            for line in finding.figures.get("timeline", ()):
                console.print(Text(f"      {line}"))

        yield show, lambda line: spinner.update(line)


def _summary(found: "list[Finding]") -> str:
    count = {name: sum(finding.status == name for finding in found) for name in _SIGNS}
    said = [f"{count['ok']} well"]
    said += [f"{count['note']} could be better"] if count["note"] else []
    said += [f"{count['failed']} failed"] if count["failed"] else []
    if count["skipped"]:
        said.append(f"{count['skipped']} could not be examined here")
    return "\n" + ", ".join(said)
