"""The flags that commands share, under mlx-lm's names where it has one, and the engine they ask for.

Whatever can be checked without a model is checked before one is loaded. No MLX at module level.
"""

import argparse
import json
import os
import re
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_mlx.errors import UsageError
from mirror_mlx.messages import DRAFT_HOSTS, FALLBACKS, FAN_OUTS, MODES, PREDICTORS
from mirror_mlx.options import Options

if TYPE_CHECKING:
    from mirror_mlx.engine import Engine
    from mirror_mlx.sampling import Sampling

_SAMPLING = ("top_p", "min_p", "top_k", "seed", "min_tokens_to_keep", "xtc_probability", "xtc_threshold")
_DECODING = [field.name for field in fields(Options) if field.name not in ("mode", "trace")]
_PYTHON_NAMES = {"temperature": "temp"}  # options whose flags are called otherwise
_CHOSEN = re.compile(r"\b(mode|accept)='(\w+)'")
_COMPOUND = re.compile(r"(?<!-)\b[a-z]+(?:_[a-z]+)+\b")


def add_model(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model", metavar="NAME", default="demo", help="folder, hub id, or 'demo', the bundled pair (default: demo)"
    )
    group.add_argument(
        "--draft-model",
        metavar="NAME",
        help="the model that guesses, of the same family (default: the pair's own, where --model is a pair); or "
        "lookup, recycle, lookahead, retrieve: no model, but what followed before",
    )
    group.add_argument("--adapter-path", metavar="FOLDER", help="trained adapter weights for the target")
    group.add_argument("--trust-remote-code", action="store_true", help="run code that a model's folder brings along")
    group.add_argument(
        "--extra-eos-token", metavar="TOKEN", nargs="+", default=(), help="tokens that end an answer too"
    )


def add_template(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Returns the group, for a command's own prompt flags."""
    group = parser.add_argument_group("prompt")
    group.add_argument("--system-prompt", metavar="TEXT", help="the system's message, before all others")
    group.add_argument(
        "--use-default-chat-template", action="store_true", help="ChatML, if the model has no chat template"
    )
    group.add_argument(
        "--chat-template-config", metavar="JSON", help="variables for the template: '{\"enable_thinking\": false}'"
    )
    return group


def add_sampling(parser: argparse.ArgumentParser, *, max_tokens: int) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument(
        "--max-tokens",
        "-m",
        metavar="N",
        type=int,
        default=max_tokens,
        help=f"longest answer; -1: until the context is full (default: {max_tokens})",
    )
    for flag, kind, default, what in (
        ("--temp", float, 0.0, "temperature; 0: the likeliest token"),
        ("--top-p", float, 1.0, "likeliest tokens that together have this probability"),
        ("--min-p", float, 0.0, "least probability, as a share of the likeliest token's"),
        ("--top-k", int, 0, "this many likeliest tokens; 0: all"),
        ("--xtc-probability", float, 0.0, "how often XTC leaves out the likeliest tokens"),
        ("--xtc-threshold", float, 0.1, "probability above which XTC may leave tokens out"),
        ("--min-tokens-to-keep", int, 1, "tokens that --min-p always keeps"),
        ("--seed", int, 0, "the same seed gives the same text"),
    ):
        group.add_argument(flag, metavar="N", type=kind, default=default, help=f"{what} (default: {default:g})")


def add_decoding(parser: argparse.ArgumentParser) -> None:
    usual = Options()
    group = parser.add_argument_group("speculation")
    group.add_argument(
        "--mode",
        choices=MODES,
        default="auto",
        help="mirror: draft beside the target; sd: draft in turns; ar: no draft; auto: what is fastest here, measured",
    )
    group.add_argument("--explain", action="store_true", help="say afterwards what was decided, and what it was worth")
    for name, what, default in (
        ("num_draft_tokens", "proposals in a window; in mode auto at most so many", usual.length),
        ("kappa", "outcomes prepared for each of them", usual.kappa),
        ("max_roots", "outcomes prepared in a step, in all", usual.max_roots),
    ):
        group.add_argument(_flag(name), metavar="N", type=int, help=f"{what} (default: the pair's own, or {default})")
    group.add_argument("--exit-layer", metavar="N", type=int, help="target layer the tap reads (default: the middle)")
    group.add_argument("--predictor", choices=PREDICTORS, help="who predicts outcomes (default: hybrid)")
    group.add_argument(
        "--fan-out",
        choices=FAN_OUTS,
        help="of the draft's outcomes, how many for each proposal: by their score, by how often it was the last that "
        "held, or as many for each (default: score)",
    )
    group.add_argument(
        "--fallback",
        choices=FALLBACKS,
        help="unforeseen outcome: jit drafts while the target waits, empty goes on without, the others propose what "
        "followed before, at no cost (default: jit)",
    )
    group.add_argument("--datastore", metavar="FILE", help="what retrieve looks in (mirror-mlx datastore makes one)")
    group.add_argument(
        "--adaptive", action="store_true", default=None, help="longer windows after those that held, else shorter ones"
    )
    group.add_argument(
        "--accept", choices=("match", "reject"),
        help="match: a proposal holds if it is the target's own token; reject: where tokens are sampled, by rejection "
        "sampling, which keeps the target's probabilities, not the text that a seed gives (default: match)",
    )  # fmt: skip
    group.add_argument(
        "--downweight", metavar="X", type=float,
        help="with --accept reject: how much a draft avoids what is prepared for anyway, in (0, 1]; 1: not at all "
        f"(default: {usual.downweight:g})",
    )  # fmt: skip
    group.add_argument("--streams", metavar="N", type=int, help="streams of a streaming draft (default: all it has)")
    group.add_argument(
        "--stream-mode", choices=("trust", "exact"), help="exact: a streaming draft checks its streams (default: trust)"
    )
    group.add_argument(
        "--draft-timeout",
        metavar="S",
        type=float,
        help=f"seconds until a silent draft is given up for the request (default: {usual.draft_timeout:g})",
    )
    group.add_argument(
        "--draft-host",
        choices=DRAFT_HOSTS,
        default="auto",
        help="where the draft runs: the Neural Engine where it can (default: auto)",
    )
    group = parser.add_argument_group("key-value cache")
    group.add_argument("--max-kv-size", metavar="N", type=int, help="keep the last N positions only")
    group.add_argument("--kv-bits", metavar="N", type=int, help="quantise keys and values to N bits")
    for name, what in (
        ("kv_group_size", "group size of --kv-bits"),
        ("quantized_kv_start", "position from which --kv-bits applies"),
        ("prefill_step_size", "prompt tokens processed at once"),
    ):
        default = getattr(usual, name)
        group.add_argument(_flag(name), metavar="N", type=int, default=default, help=f"{what} (default: {default})")


def template_config(args: argparse.Namespace) -> dict[str, Any]:
    """The variables of --chat-template-config. Raises UsageError where that is no JSON object."""
    if args.chat_template_config is None:
        return {}
    try:
        config = json.loads(args.chat_template_config)
    except json.JSONDecodeError as reason:
        raise UsageError(f"--chat-template-config is no JSON: {reason}") from None
    if not isinstance(config, dict):
        raise UsageError("--chat-template-config must be a JSON object, such as '{\"enable_thinking\": false}'")
    return config


def check_writable(path: str, flag: str) -> None:
    """Raise UsageError unless a file can be written there. Nothing is written yet."""
    file = Path(path).expanduser()
    if file.is_dir():
        reason = "it is a folder"
    elif not file.parent.is_dir():
        reason = f"there is no folder {str(file.parent)!r}"
    elif not os.access(file if file.exists() else file.parent, os.W_OK):
        reason = "permission denied"
    else:
        return
    raise UsageError(f"{flag} {path} cannot be written: {reason}")


def start(args: argparse.Namespace) -> "tuple[Engine, Sampling]":
    """What the flags ask for, loaded. Raises MirrorError; out-of-range values before anything is loaded."""
    _quiet(args)
    with in_flags(vars(args)):
        if args.max_tokens == 0 or args.max_tokens < -1:
            raise UsageError(f"max_tokens is {args.max_tokens}: it must be 1 or more, or -1 for no limit")
        given = {name: getattr(args, name) for name in _DECODING}
        options = {name: value for name, value in given.items() if value is not None}
        Options.of({"mode": args.mode, **options})

        from mirror_mlx.sampling import Sampling

        sampling = Sampling(args.temp, **{name: getattr(args, name) for name in _SAMPLING})
        engine = _load(args, options)
    tokenizer = engine.tokenizer
    if args.use_default_chat_template:
        from mirror_mlx.prompts import use_default_template

        use_default_template(tokenizer)
    kept = (*tokenizer.encode("\n", add_special_tokens=False), *tokenizer.eos_token_ids)
    return engine, replace(sampling, xtc_special_tokens=kept)


def _load(args: argparse.Namespace, options: dict[str, Any]) -> "Engine":
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from mirror_mlx import blas
        from mirror_mlx.loading import load

        engine = load(
            args.model,
            args.draft_model,
            mode=args.mode,
            draft_host=args.draft_host,
            adapter_path=args.adapter_path,
            trust_remote_code=args.trust_remote_code,
            extra_eos_token=args.extra_eos_token,
            notify=lambda line: print(f"mirror-mlx: {line}", file=sys.stderr),
            report=_calibrating,
            **options,
        )
    if any(str(warning.message) == blas.missing() for warning in caught):  # others are libraries talking to us
        print(f"mirror-mlx: {blas.missing()}", file=sys.stderr)
    return engine


def _calibrating(share: float) -> None:
    """A line that goes away again, on a terminal."""
    if sys.stderr.isatty():
        line = f"measuring target and draft, once on this machine: {share:.0%}" if share < 1 else ""
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


def _quiet(args: argparse.Namespace) -> None:
    """Libraries read these when they are imported. A download still shows its progress on a terminal."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    if not sys.stderr.isatty() or getattr(args, "json", False):
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


@contextmanager
def in_flags(names: Collection[str]) -> Iterator[None]:
    """UsageErrors name options as Python does; a person typed flags. names: those there are a flag for."""
    try:
        yield
    except UsageError as error:
        message = _CHOSEN.sub(r"--\1 \2", str(error))
        message = _COMPOUND.sub(lambda match: _flag(match[0]) if match[0] in names else match[0], message)
        first, _, rest = message.partition(" ")
        first = _PYTHON_NAMES.get(first, first)
        raise UsageError(f"{_flag(first) if first in names else first} {rest}") from None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
