"""The flags of `mirror-mlx train`, kind by kind. A flag that is not given is left out: a resumed run has it already."""

import argparse

DATA = """A line of a .jsonl file is {"messages": [...]}, {"prompt": ..., "completion": ...},
{"question": ..., "answer": ...} or {"text": ...}; any other file is taken as text."""
AGAIN = "Ctrl-C saves the run; the same command with --resume goes on exactly where it stood."

LM = f"""examples:
  mirror-mlx train lm --data chats.jsonl --out tiny --minutes 30
  mirror-mlx chat --model tiny

{DATA}
{AGAIN}
"""
DRAFT = f"""examples:
  a streaming draft for a target, from a small model of its family
    mirror-mlx train draft --target Qwen3-8B --init Qwen3-0.6B --data chats.jsonl --out my-draft \\
        --learning-rate 2e-4 --cache answers
  from scratch, with a head of 8,000 tokens
    mirror-mlx train draft --target tiny --data chats.jsonl --out tiny-draft --minutes 20 \\
        --hidden-size 128 --num-hidden-layers 4 --head-size 8000
  an ordinary autoregressive draft, by the same losses
    mirror-mlx train draft --target tiny --data chats.jsonl --out plain-draft --streams 0
  mirror-mlx chat --model tiny --draft-model tiny-draft

First the target writes all answers anew and its opinion of every position is kept
(--cache keeps both for other runs; about 400 bytes a token). Then the draft learns them.

{DATA}
{AGAIN}
"""
TAP = f"""examples:
  mirror-mlx train tap --target Qwen3-8B --data chats.jsonl --out my-tap --cache answers
  cp my-tap/tap.safetensors my-pair/            # or into the target's own folder
  mirror-mlx bench tap --model my-pair --write  # measures the hits, chooses the exit layer

{DATA}
{AGAIN}
"""
PROBLEMS = """examples:
  mirror-mlx train problems --count 100000 --seed 1 --out problems.jsonl
  mirror-mlx train lm --data problems.jsonl --out tiny

School maths problems as chats, their answers worked out step by step and right.
None of them is one that `bench problems` asks.
"""


def add_lm(parser: argparse.ArgumentParser) -> None:
    group = _files(parser, "the model folder to make")
    group.add_argument(
        "--init", metavar="NAME", help="begin with this model, a folder or hub id, not with random weights"
    )
    group.add_argument("--teacher", metavar="NAME", help="also learn this model's distribution (same tokenizer)")
    group.add_argument(
        "--tokenizer", metavar="DIR",
        help="take the tokenizer of this folder (default: that of --init or --teacher, else one trained on the data)",
    )  # fmt: skip
    group.add_argument("--vocab-size", type=int, metavar="N", help="entries of a trained tokenizer (default 4096)")
    group = parser.add_argument_group("architecture", "defaults: the bundled demo target, a Qwen3 of 8.1 M parameters")
    group.add_argument("--config", metavar="FILE", help="a config.json of any architecture mlx-lm has")
    _shape(group, "default {}, or as in --config")
    group = _training(parser, batch_size=2, max_seq_length=1024, learning_rate="1.5e-3", prompt_weight=0.3)
    group.add_argument(
        "--distill-weight", type=float, metavar="X", help="share of the teacher in the loss (default 0.7)"
    )
    _record(parser)


def add_draft(parser: argparse.ArgumentParser) -> None:
    group = _files(parser, "the draft's folder to make")
    group.add_argument("--target", metavar="NAME", help="the model the draft is for: a folder, a hub id, or demo")
    group.add_argument("--init", metavar="NAME", help="begin with this Qwen3 or Llama model, cut in two segments")
    _answers(group)
    group = parser.add_argument_group("architecture", "defaults: half the target's layers at half its width")
    _shape(group, None)
    group.add_argument("--boundary", type=int, metavar="N", help="layers of the first segment (default: half of them)")
    group.add_argument(
        "--streams", type=int, metavar="S", help="lookahead streams: 1 + S tokens a pass (default 3); 0: autoregressive"
    )
    group.add_argument("--tracks", type=int, metavar="G", help="parallel tracks, 1, 2, 4 or 8 (default 1)")
    group.add_argument("--head-size", type=int, metavar="N", help="trim the head to the N most frequent tokens")
    group.add_argument("--head-rank", type=int, metavar="R", help="factor the head to rank R")
    group = _training(parser, batch_size=8, max_seq_length=512, learning_rate="1e-3", prompt_weight=0.1)
    group.add_argument(
        "--loss", choices=["lk", "kl", "ce"],
        help="lk: the target's distribution, by KL while far from it and by acceptance rate when near (default); "
        "kl: by KL alone; ce: the text alone",
    )  # fmt: skip
    group.add_argument("--stream-weight", type=float, metavar="X", help="weight of each stream's loss (default 0.1)")
    group.add_argument(
        "--on-policy", type=float, metavar="X",
        help="last share of the run that also learns from the draft's own proposals (default 0.25)",
    )  # fmt: skip
    group.add_argument(
        "--policy-temps", type=float, nargs="+", metavar="T", help="temperatures of those proposals (default 0 1)"
    )
    group.add_argument("--num-draft-tokens", type=int, metavar="N", help="proposals in a window (default 7)")
    group = _record(parser)
    group.add_argument(
        "--trial-prompts", type=int, metavar="N", help="held-out prompts tried in the real engine (default 8)"
    )
    group.add_argument("--trial-tokens", type=int, metavar="N", help="tokens decoded after each (default 64)")


def add_tap(parser: argparse.ArgumentParser) -> None:
    group = _files(parser, "the folder for tap.safetensors")
    group.add_argument(
        "--target", metavar="NAME", help="the model the tap is for: a folder, a hub id, or demo; it is not changed"
    )
    _answers(group)
    group = parser.add_argument_group("the tap")
    group.add_argument(
        "--exit-layers", type=int, nargs="+", metavar="N",
        help="after how many layers it may read (default: a quarter, a half and three quarters of them)",
    )  # fmt: skip
    group.add_argument("--rank", type=int, metavar="R", help="rank of its residual (default 8)")
    _training(parser, batch_size=8, max_seq_length=512, learning_rate="2e-3", prompt_weight=0.1, weight_decay=0)
    _record(parser)


def add_problems(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--count", type=int, default=10_000, metavar="N", help="conversations (default 10000)")
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="the same seed gives the same file (default 1)"
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="the .jsonl file to write")


def _files(parser: argparse.ArgumentParser, out: str) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("files")
    group.add_argument("--data", nargs="+", metavar="FILE", help="chats (.jsonl) or text; not needed with --resume")
    group.add_argument("--out", required=True, metavar="DIR", help=out)
    group.add_argument("--resume", action="store_true", help="go on with the interrupted run in --out")
    return group


def _answers(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--answers",
        choices=["target", "given"],
        help="target: the target writes the assistant's turns anew (default); given: they are learnt as they are",
    )
    group.add_argument(
        "--answer-temps", type=float, nargs="+", metavar="T",
        help="temperatures of those answers; conversations take turns with them (default 0 1)",
    )  # fmt: skip
    group.add_argument("--max-answer-tokens", type=int, metavar="N", help="longest answer (default 256)")
    group.add_argument(
        "--cache", metavar="DIR", help="keep answers and opinions here, for other runs too (default: until it is done)"
    )


def _shape(group: argparse._ArgumentGroup, default: str | None) -> None:
    from mirror_mlx.train.architecture import ARCHITECTURE, SHAPE

    for name in SHAPE:
        told = default.format(ARCHITECTURE[name]) if default else f"the draft's {name.replace('_', ' ')}"
        group.add_argument("--" + name.replace("_", "-"), type=int, metavar="N", help=told)


def _training(
    parser: argparse.ArgumentParser, *, batch_size: int, max_seq_length: int, learning_rate: str, prompt_weight: float,
    weight_decay: float = 0.1,
) -> argparse._ArgumentGroup:  # fmt: skip
    group = parser.add_argument_group("training")
    end = group.add_mutually_exclusive_group()
    end.add_argument("--iters", type=int, metavar="N", help="steps to train for (default 1000)")
    end.add_argument("--minutes", type=float, metavar="M", help="time to train for; the learning rate is planned by it")
    told = (
        ("--batch-size", int, "N", f"rows of --max-seq-length tokens in a batch (default {batch_size})"),
        ("--accumulate", int, "N", "batches in a step, for more rows than fit into memory (default 1)"),
        ("--max-seq-length", int, "N", f"tokens in the longest row (default {max_seq_length})"),
        ("--learning-rate", float, "X", f"its peak (default {learning_rate})"),
        ("--warmup", int, "N", "steps to reach it; a cosine follows (default 100)"),
        ("--grad-clip", float, "X", "largest norm of the gradient (default 1.0)"),
        ("--weight-decay", float, "X", f"decoupled weight decay (default {weight_decay})"),
        ("--prompt-weight", float, "X", "how much tokens outside the assistant's words count: 0 masks them, 1 levels "
         f"them (default {prompt_weight})"),
        ("--seed", int, "N", "of weights and data order (default 0)"),
    )  # fmt: skip
    for name, kind, metavar, text in told:
        group.add_argument(name, type=kind, metavar=metavar, help=text)
    group.add_argument(
        "--optimizer", choices=["adamw", "muon"],
        help="muon: for the matrices of the layers, at about 0.02, AdamW for the rest (default adamw)",
    )  # fmt: skip
    return group


def _record(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("record")
    for name, kind, metavar, text in (
        ("--held-out", float, "X", "last share of each file to validate on (default 0.05)"),
        ("--eval-every", int, "N", "steps between validations (default 200)"),
        ("--val-batches", int, "N", "batches in a validation (default 25)"),
        ("--save-every", int, "N", "steps between checkpoints (default 200)"),
        ("--steps-per-report", int, "N", "steps between lines of metrics.jsonl (default 10)"),
    ):
        group.add_argument(name, type=kind, metavar=metavar, help=text)
    kinds = ["float16", "bfloat16", "float32"]
    group.add_argument("--dtype", choices=kinds, help="of the weights written (default bfloat16)")
    return group
