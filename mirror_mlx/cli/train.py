"""`mirror-mlx train`: make the models of a pair."""

import argparse
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

EPILOG = """examples:
  mirror-mlx train lm --data chats.jsonl --out tiny --minutes 30
  mirror-mlx chat --model tiny

A line of chats.jsonl is {"messages": [...]}, {"prompt": ..., "completion": ...},
{"question": ..., "answer": ...} or {"text": ...}; any other file is taken as text.

A draft for it, with the same tokenizer, taught by it:
  mirror-mlx train lm --data chats.jsonl --out tiny-draft --teacher tiny --minutes 10 \\
      --hidden-size 128 --num-hidden-layers 4 --num-attention-heads 4 --num-key-value-heads 2 --intermediate-size 384

Ctrl-C saves the run; the same command with --resume goes on exactly where it stood.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the subcommands of `train`."""
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True)
    summary = "a causal language model from scratch, or from a given one"
    lm = kinds.add_parser(
        "lm",
        help=summary,
        description=f"Train {summary}, into a folder that mlx-lm loads.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    _add_files(lm)
    _add_shape(lm)
    _add_training(lm)
    _add_record(lm)


def _add_files(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("files")
    group.add_argument("--data", nargs="+", metavar="FILE", help="chats (.jsonl) or text; not needed with --resume")
    group.add_argument("--out", required=True, metavar="DIR", help="the model folder to make")
    group.add_argument("--resume", action="store_true", help="go on with the interrupted run in --out")
    group.add_argument("--init", metavar="DIR", help="begin with this mlx-lm model folder, not with random weights")
    group.add_argument("--teacher", metavar="DIR", help="also learn this model's distribution (same tokenizer)")
    group.add_argument(
        "--tokenizer", metavar="DIR",
        help="take the tokenizer of this folder (default: that of --init or --teacher, else one trained on the data)",
    )  # fmt: skip
    group.add_argument("--vocab-size", type=int, metavar="N", help="entries of a trained tokenizer (default 4096)")


def _add_shape(parser: argparse.ArgumentParser) -> None:
    from mirror_mlx.train.lm import ARCHITECTURE, SHAPE

    group = parser.add_argument_group("architecture", "defaults: the bundled demo target, a Qwen3 of 7.3 M parameters")
    group.add_argument("--config", metavar="FILE", help="a config.json of any architecture mlx-lm has")
    for name in SHAPE:
        flag = "--" + name.replace("_", "-")
        group.add_argument(flag, type=int, metavar="N", help=f"default {ARCHITECTURE[name]}, or as in --config")


def _add_training(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training")
    end = group.add_mutually_exclusive_group()
    end.add_argument("--iters", type=int, metavar="N", help="steps to train for (default 1000)")
    end.add_argument("--minutes", type=float, metavar="M", help="time to train for; the learning rate is planned by it")
    group.add_argument(
        "--batch-size", type=int, metavar="N",
        help="rows of --max-seq-length tokens a step; shorter rows take turns with them, more to a step (default 2)",
    )  # fmt: skip
    group.add_argument("--max-seq-length", type=int, metavar="N", help="tokens in the longest row (default 1024)")
    group.add_argument("--learning-rate", type=float, metavar="X", help="peak of AdamW's rate (default 1.5e-3)")
    group.add_argument("--warmup", type=int, metavar="N", help="steps to reach it; a cosine follows (default 100)")
    group.add_argument("--grad-clip", type=float, metavar="X", help="largest norm of the gradient (default 1.0)")
    group.add_argument("--weight-decay", type=float, metavar="X", help="AdamW's weight decay (default 0.1)")
    group.add_argument(
        "--prompt-weight", type=float, metavar="X",
        help="how much tokens outside the assistant's words count: 0 masks them, 1 levels them (default 0.3)",
    )  # fmt: skip
    group.add_argument(
        "--distill-weight", type=float, metavar="X", help="share of the teacher in the loss (default 0.7)"
    )
    group.add_argument("--seed", type=int, metavar="N", help="of weights and data order (default 0)")


def _add_record(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("record")
    group.add_argument(
        "--held-out", type=float, metavar="X", help="last share of each file to validate on (default 0.05)"
    )
    group.add_argument("--eval-every", type=int, metavar="N", help="steps between validations (default 200)")
    group.add_argument("--val-batches", type=int, metavar="N", help="batches in a validation (default 25)")
    group.add_argument("--save-every", type=int, metavar="N", help="steps between checkpoints (default 200)")
    group.add_argument(
        "--steps-per-report", type=int, metavar="N", help="steps between lines of metrics.jsonl (default 10)"
    )
    group.add_argument(
        "--dtype", choices=["float16", "bfloat16", "float32"], help="of the model written (default bfloat16)"
    )


def run(args: argparse.Namespace) -> int:
    """Train, and return the exit status: 0 finished, 130 interrupted and saved."""
    from mirror_mlx.errors import UsageError
    from mirror_mlx.train import checkpoint, lm
    from mirror_mlx.train.display import Display
    from mirror_mlx.train.lm import LmSettings
    from mirror_mlx.train.settings import merge

    given = _given(args)
    resume = bool(getattr(args, "resume", False))
    found = checkpoint.find(Path(args.out)) if resume else []
    if found:
        settings = merge(LmSettings.from_json(checkpoint.read(found[-1])[1]), given)
    elif "data" in given:
        settings = LmSettings(**given)
    else:
        raise UsageError(
            f"{args.out} holds no unfinished run to resume" if resume else "--data is missing: name a file"
        )

    with Display() as display, _Interrupts() as interrupts:
        result = lm.train(settings, resume=resume, observer=display, stop=interrupts.pending)
    if not result.finished:
        again = shlex.join(["mirror-mlx", "train", "lm", "--out", args.out, "--resume"])
        print(f"stopped after step {result.progress.step}, saved; to go on: {again}", file=sys.stderr)
        return 130
    loss = "" if result.val_loss is None else f", validation loss {result.val_loss:.3f}"
    print(f"{args.out}: {result.progress.step} steps, {result.progress.tokens} tokens{loss}")
    print("try it: " + shlex.join(["mirror-mlx", "chat", "--model", args.out]))
    return 0


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The settings on the command line, and only those: what was not said may come from a checkpoint."""
    from dataclasses import fields

    from mirror_mlx.train.lm import SHAPE, LmSettings

    said = vars(args)
    given = {item.name: said[item.name] for item in fields(LmSettings) if item.name in said}
    shape = {name: said[name] for name in SHAPE if name in said}
    if "data" in given:
        given["data"] = tuple(given["data"])
    return given | ({"shape": shape} if shape else {})


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
        print("\nsaving after this step; once more to stop without", file=sys.stderr)
