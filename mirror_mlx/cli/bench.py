"""`mirror-mlx bench`: measure this machine, or a pair."""

import argparse

from mirror_mlx import memory
from mirror_mlx.cli import (
    bench_auto,
    bench_contend,
    bench_convert,
    bench_hosts,
    bench_law,
    bench_problems,
    bench_report,
    bench_spec,
    bench_tap,
    bench_training,
    bench_variants,
)

EPILOG = """examples:
  mirror-mlx bench law                                does the draft's work hide behind verification?
  mirror-mlx bench law --steps 300 --plot law.png     the same, and a picture of some steps
  mirror-mlx bench law --pass-ms 20                   with a draft that is too slow for this target
  mirror-mlx bench tap                                who foresees the outcome: tap, draft, or both?
  mirror-mlx bench tap --model pair --write           the same, and its pair.json gets the best exit layer
  mirror-mlx bench spec --questions question.jsonl    what is it worth? SpecBench, with mlx-lm's own decoding beside it
  mirror-mlx bench variants --exact                   what does a streaming draft save, and cost?
  mirror-mlx bench contend                            does it still gain while something else uses the machine?
  mirror-mlx bench auto                               is mode "auto" ever worse than plain decoding?
  mirror-mlx bench hosts                              does the converted draft propose the same?
  mirror-mlx bench problems --show 5                  how often is the bundled pair right?
  mirror-mlx bench training --long                    how long will training take, and what fits into memory?
  mirror-mlx bench convert                            how long does mirror-mlx convert take, in how much memory?
  mirror-mlx bench report law.json --out report.html  what was measured, as one page with pictures
"""

KINDS = {
    "law": (bench_law, "step time against bare verification, in the lab"),
    "tap": (bench_tap, "how often tap and draft foresee the outcome, by exit layer"),
    "spec": (bench_spec, "SpecBench: every method beside mlx-lm's own decoding, in turn"),
    "variants": (bench_variants, "serial speculation and Mirror, with each of a pair's drafts"),
    "contend": (bench_contend, "plain decoding and Mirror while something else uses the machine"),
    "auto": (bench_auto, "mode auto with hostile drafts, and beside the best fixed setting"),
    "hosts": (bench_hosts, "the same draft on several hosts: same proposals? how fast?"),
    "problems": (bench_problems, "is what a model says right? word problems it has never seen"),
    "training": (bench_training, "tokens a second and memory of each kind of training"),
    "convert": (bench_convert, "seconds and memory of mirror-mlx convert"),
    "report": (bench_report, "what was measured, as one page of tables, pictures and timelines"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what can be measured."""
    parser.epilog = EPILOG
    kinds = parser.add_subparsers(dest="kind", metavar="WHAT", required=True, parser_class=type(parser))
    for name, (module, summary) in KINDS.items():
        kind = kinds.add_parser(
            name,
            help=summary,
            description=module.DESCRIPTION,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(kind)


def run(args: argparse.Namespace) -> int:
    """Measure and print; the exit status of the kind."""
    memory.apart()  # many engines, with threads of their own, are compared with one another
    return KINDS[args.kind][0].run(args)
