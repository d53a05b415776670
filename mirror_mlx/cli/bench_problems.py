"""`mirror-mlx bench problems`: is what a model says right?"""

import argparse
import json
import sys
import warnings
from contextlib import redirect_stdout
from dataclasses import asdict

from mirror_mlx.cli import flags
from mirror_mlx.cli.measuring import progress, rounded
from mirror_mlx.errors import UsageError
from mirror_mlx.messages import MODES

DESCRIPTION = """\
Word problems that no training text holds, answered and marked: is the number that an answer comes to the right one?

With --prompts FILE the prompts of a file instead: whether the answers end by themselves, and whether they repeat
themselves. --show prints answers, so that one can read them.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--model", metavar="NAME", default="demo", help="target, or a pair (default: demo)")
    group.add_argument("--mode", choices=MODES, default="ar", help="how it decodes; the text is the same (default: ar)")
    group = parser.add_argument_group("exam")
    group.add_argument("--count", metavar="N", type=int, default=200, help="problems (default: 200)")
    group.add_argument("--prompts", metavar="FILE", help=".jsonl, or a prompt a line")
    group.add_argument("--max-tokens", "-m", metavar="N", type=int, default=256, help="longest answer (default: 256)")
    group.add_argument("--temp", metavar="N", type=float, default=0.0, help="temperature (default: 0)")
    group.add_argument("--seed", metavar="N", type=int, default=0, help="of problems and sampling (default: 0)")
    group.add_argument("--show", metavar="N", type=int, default=0, help="print N answers, wrong ones first")
    group.add_argument("--json", action="store_true", help="one JSON object with every figure and answer")


def run(args: argparse.Namespace) -> int:
    """Ask, mark and print."""
    for name in ("count", "max_tokens"):
        if getattr(args, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be 1 or more, not {getattr(args, name)}")
    with redirect_stdout(sys.stderr), flags.in_flags(vars(args)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mirror_mlx.bench import exam
        from mirror_mlx.loading import load
        from mirror_mlx.sampling import Sampling

        sampling = Sampling(temperature=args.temp, seed=args.seed)
        with load(args.model, mode=args.mode) as engine, progress(args.count) as report:
            if args.prompts:
                marks = exam.read(engine, args.prompts, args.count, args.max_tokens, sampling, report)
            else:
                marks = exam.sit(engine, args.seed, args.count, args.max_tokens, sampling, report)
    found = rounded(exam.summary(marks))
    if args.json:
        print(json.dumps(found | {"answers": [asdict(mark) for mark in marks]}))
        return 0
    for mark in sorted(marks, key=lambda mark: bool(mark.right))[: args.show]:
        verdict = {True: "right", False: f"wrong, it is {mark.wanted}", None: "–"}[mark.right]
        print(f"{mark.question}\n  {mark.answer.strip().replace(chr(10), chr(10) + '  ')}\n  [{verdict}]\n")
    if found["right"] is not None:
        print(f"{found['right']} of {found['asked']} right ({found['right_share']:.1%})")
    else:
        print(f"{found['asked']} answers")
    print(f"{found['ended_share']:.1%} ended by themselves, {found['repeating_share']:.1%} repeat themselves")
    return 0
