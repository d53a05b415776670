"""`mirror-mlx`: finds the command, and turns every user's mistake into one line and exit status 2.

Nothing heavy is imported before a command is known, so that `--help` answers at once. A command is a module with
`add_arguments(parser)` and `run(args) -> int`; neither imports MLX at module level.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module

from mirror_mlx import __version__
from mirror_mlx.errors import MirrorError

COMMANDS = {
    "chat": "talk to a model",
    "generate": "complete one prompt",
    "train": "train the models of a pair",
    "convert": "make Core ML packages of a draft, for the Neural Engine",
    "datastore": "make a datastore of texts, which proposals are looked up in",
    "plan": "what to expect of a pair, here or on another machine",
    "bench": "measure this machine",
    "doctor": "examine this machine and its converted drafts",
}

EPILOG = """examples:
  mirror-mlx chat                                     talk to the bundled demo pair, no network needed
  mirror-mlx chat --model mlx-community/Qwen3-8B-4bit --draft-model mlx-community/Qwen3-0.6B-8bit
  mirror-mlx generate -p "Tom has 3 apples." --json   text, tokens and statistics as one JSON object
  mirror-mlx COMMAND --help                           what a command takes
"""


class _Parser(argparse.ArgumentParser):
    """Mistakes are one line, and flags are written out."""

    def error(self, message: str) -> None:  # type: ignore[override]
        self.exit(2, f"{self.prog}: {message} (see '{self.prog} --help')\n")


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=30)


def build_parser(command: str | None) -> argparse.ArgumentParser:
    """The parser; only the arguments of `command` are filled in, since the other modules are not imported."""
    parser = _Parser(
        prog="mirror-mlx",
        description="Mirror Speculative Decoding: the draft prepares the next window while the target still checks.",
        epilog=EPILOG,
        formatter_class=_formatter,
    )
    parser.add_argument("--version", action="version", version=f"mirror-mlx {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for name, summary in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            allow_abbrev=False,
            formatter_class=_formatter,
        )
        if name == command:
            import_module(f"mirror_mlx.cli.{name}").add_arguments(sub)
    return parser


def _unknown(parser: argparse.ArgumentParser, args: argparse.Namespace, words: Sequence[str]) -> None:
    """Exit with a line about the first of these words that nothing asked for."""
    flag = next((word for word in words if word.startswith("-")), words[0])
    flag = flag.partition("=")[0]
    path = [name for name in (args.command, getattr(args, "kind", None)) if name]
    near = get_close_matches(flag, _flags(parser, path), n=1)
    what = f"there is no flag {flag}" if flag.startswith("-") else f"{flag!r} belongs to no flag"
    prog = " ".join(["mirror-mlx", *path])
    parser.exit(2, f"{prog}: {what}{f', did you mean {near[0]}?' if near else ''} (see '{prog} --help')\n")


def _flags(parser: argparse.ArgumentParser, path: Sequence[str]) -> Iterator[str]:
    """Those of the parser and of the commands that `path` leads to."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction) and path:
            yield from _flags(action.choices[path[0]], path[1:])


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status (0 done, 2 a user's mistake, 130 interrupted)."""
    argv = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to stop
    command = next((word for word in argv if word in COMMANDS), None)
    parser = build_parser(command)
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        _unknown(parser, args, unknown)
    try:
        status = int(import_module(f"mirror_mlx.cli.{args.command}").run(args) or 0)
        sys.stdout.flush()
        return status
    except MirrorError as error:
        print(f"mirror-mlx: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader has seen enough. Python flushes once more at exit: into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
