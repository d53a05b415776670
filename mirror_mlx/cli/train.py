"""`mirror-mlx train`: make the models of a pair."""

import argparse
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mirror_mlx.cli import train_flags as flags

_KINDS = (
    ("lm", "a causal language model from scratch, or from a given one", flags.LM, flags.add_lm),
    ("draft", "a streaming draft for a target, that emits several tokens a pass", flags.DRAFT, flags.add_draft),
    ("tap", "an early exit that predicts how a target's verification will end", flags.TAP, flags.add_tap),
    (
        "problems",
        "school maths problems with worked answers, as a file to train on",
        flags.PROBLEMS,
        flags.add_problems,
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of `train`."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    for name, summary, epilog, add in _KINDS:
        one = kinds.add_parser(
            name,
            help=summary,
            description=f"{'Write' if name == 'problems' else 'Train'} {summary}.",
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=None if name == "problems" else argparse.SUPPRESS,
            allow_abbrev=False,
        )
        add(one)


def run(args: argparse.Namespace) -> int:
    """Train, and return the exit status: 0 finished, 130 interrupted and saved."""
    return _problems(args) if args.kind == "problems" else _train(args)


def _train(args: argparse.Namespace) -> int:
    from mirror_mlx.errors import UsageError
    from mirror_mlx.train import checkpoint
    from mirror_mlx.train.display import Display, told
    from mirror_mlx.train.settings import merge

    made, train = _kind(args.kind)
    given = _given(args, made)
    resume = bool(getattr(args, "resume", False))
    found = checkpoint.find(Path(args.out)) if resume else []
    if found:
        settings = merge(made.from_json(checkpoint.read(found[-1])[1]), given)
    elif "data" in given:
        settings = made(**given)
    else:
        raise UsageError(
            f"{args.out} holds no unfinished run to resume" if resume else "--data is missing: name a file"
        )

    with Display() as display, _Interrupts() as interrupts:

        def report(what: str, done: int, total: int) -> None:
            display.report(what, done, total)
            if interrupts.pending():
                raise _StoppedError

        how = {"report": report} if args.kind != "lm" else {}
        try:
            result = train(settings, resume=resume, observer=display, stop=interrupts.pending, **how)
        except _StoppedError:
            print("stopped before the first step; what was done is kept: give the same command again", file=sys.stderr)
            return 130
    if not result.finished:
        again = shlex.join(["mirror-mlx", "train", args.kind, "--out", args.out, "--resume"])
        print(f"stopped after step {result.progress.step}, saved; to go on: {again}", file=sys.stderr)
        return 130
    said = f"{args.out}: {result.progress.step} steps, {result.progress.tokens} tokens"
    print(", ".join([said, *told(result.figures)]))
    print(_next_step(args.kind, settings))
    return 0


def _kind(name: str) -> tuple[Any, Callable[..., Any]]:
    """Its settings class, and the function that runs them."""
    if name == "lm":
        from mirror_mlx.train import lm

        return lm.LmSettings, lm.train
    if name == "draft":
        from mirror_mlx.train import draft

        return draft.DraftSettings, draft.train
    from mirror_mlx.train import tap

    return tap.TapSettings, tap.train


def _next_step(kind: str, settings: Any) -> str:
    if kind == "lm":
        return "try it: " + shlex.join(["mirror-mlx", "chat", "--model", settings.out])
    if kind == "draft":
        return "try it: " + shlex.join(
            ["mirror-mlx", "chat", "--model", settings.target, "--draft-model", settings.out]
        )
    file = os.path.join(settings.out, "tap.safetensors")
    return "to use it: " + shlex.join(["cp", file, settings.target + os.sep])


def _given(args: argparse.Namespace, made: Any) -> dict[str, Any]:
    """The settings on the command line, and only those: what was not said may come from a checkpoint."""
    from dataclasses import fields

    from mirror_mlx.errors import ModelError
    from mirror_mlx.hub import find
    from mirror_mlx.loading import DEMO
    from mirror_mlx.train.architecture import SHAPE

    said = vars(args)
    given = {item.name: said[item.name] for item in fields(made) if item.name in said}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    for name in ("target", "teacher", "init"):
        if given.get(name):
            given[name] = str(find(DEMO / "target" if given[name] == "demo" else given[name], ModelError))
    shape = {name: said[name] for name in SHAPE if name in said}
    return given | ({"shape": shape} if shape else {})


def _problems(args: argparse.Namespace) -> int:
    """Write the file, under another name until it is complete."""
    from mirror_mlx.errors import UsageError
    from mirror_mlx.problems import conversations

    if args.count < 1:
        raise UsageError(f"--count must be at least 1, not {args.count}")
    out = Path(args.out)
    partial = out.with_name(f".{out.name}.partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            for messages in conversations(args.seed, args.count):
                file.write(json.dumps({"messages": messages}) + "\n")
        partial.replace(out)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UsageError(f"cannot write {args.out}: {error.strerror}") from None
    except KeyboardInterrupt:
        partial.unlink(missing_ok=True)
        raise
    print(f"{args.out}: {args.count} conversations")
    return 0


class _StoppedError(Exception):
    """Ctrl-C in the work before the first step."""


class _Interrupts:
    """Ctrl-C and SIGTERM as a question asked between steps; a second one is not waited for."""

    def __init__(self) -> None:
        self._seen = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "_Interrupts":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def pending(self) -> bool:
        return self._seen

    def _handle(self, number: int, frame: object) -> None:
        if self._seen:
            raise KeyboardInterrupt
        self._seen = True
        print("\nstopping, and saving, after this step; once more to stop without", file=sys.stderr)
