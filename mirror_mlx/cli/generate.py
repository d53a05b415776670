"""`mirror-mlx generate`: one prompt, one answer."""

import argparse
import json
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from mirror_mlx.cli import flags
from mirror_mlx.cli.report import explain_lines, verbose_lines
from mirror_mlx.errors import DataError, MirrorError, PromptError, UsageError

if TYPE_CHECKING:
    from mirror_mlx.engine import Response

EPILOG = """examples:
  mirror-mlx generate -p "Tom has 3 apples and buys 5 more. How many does he have?"
  git diff | mirror-mlx generate --system-prompt "Write a commit message." --model mlx-community/Qwen3-4B-4bit
  mirror-mlx generate -p "..." --json --trace run.json     statistics, and a timeline for ui.perfetto.dev
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "mirror-mlx generate [-p TEXT] [flags]"
    parser.epilog = EPILOG
    group = flags.add_template(parser)
    source = group.add_mutually_exclusive_group()
    source.add_argument("--prompt", "-p", metavar="TEXT", help="the prompt; '-' or nothing: standard input")
    source.add_argument("--prompt-file", metavar="FILE", help="a file with the prompt")
    group.add_argument("--prefill-response", metavar="TEXT", help="how the answer begins")
    group.add_argument("--ignore-chat-template", action="store_true", help="continue the prompt's text as it is")
    flags.add_model(parser)
    flags.add_sampling(parser, max_tokens=100)
    flags.add_decoding(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="one JSON object: text, tokens, stats")
    group.add_argument("--trace", metavar="FILE", help="write the timeline of both devices (Trace Event JSON)")
    group.add_argument(
        "--verbose",
        metavar="BOOL",
        type=lambda text: text.lower() not in ("false", "f"),
        default=True,
        help="F: print the answer alone",
    )


def run(args: argparse.Namespace) -> int:
    template = flags.template_config(args)
    if args.trace is not None:
        flags.check_writable(args.trace, "--trace")
    prompt = _prompt(args)
    out = sys.stdout
    # Libraries print to standard output at times: under --json, and between the answer's tokens, it is not theirs.
    with redirect_stdout(sys.stderr):
        engine, sampling = flags.start(args)
        with engine:
            tokens = _encode(args, engine.tokenizer, prompt, template)
            responses = engine.stream(tokens, max_tokens=args.max_tokens, sampling=sampling)
            if args.json:
                made = list(responses)
                result = {
                    "text": "".join(response.text for response in made),
                    "tokens": [response.token for response in made],
                    "stats": engine.stats.as_dict(),
                }
                print(json.dumps(result), file=out)
            else:
                peak_memory = _print(responses, out, args.verbose)
                if args.verbose:
                    print(*verbose_lines(engine.stats, peak_memory), sep="\n", file=out)
            if args.explain:
                print(*explain_lines(engine.stats), sep="\n", file=sys.stderr)
            if args.trace is not None:
                _write_trace(engine.trace, args.trace)
    return 0


def _prompt(args: argparse.Namespace) -> str:
    """The prompt's text. Raises PromptError where there is none, DataError where it cannot be read."""
    if args.prompt_file is not None:
        text = _read(args.prompt_file)
    elif args.prompt not in (None, "-"):
        text = args.prompt.replace("\\n", "\n").replace("\\t", "\t")  # as mlx-lm does
    else:
        text = "" if args.prompt is None and (sys.stdin is None or sys.stdin.isatty()) else _read(None)
        if not text and args.prompt is None:
            raise PromptError("there is no prompt: give one with --prompt, --prompt-file or on standard input")
    if args.prompt is None or args.prompt == "-":
        text = text.removesuffix("\n")  # how files end, not what they ask
    if not text.strip():
        raise PromptError("the prompt is empty: give it at least one word")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PromptError("the prompt is not valid UTF-8 text") from None
    return text


def _read(path: str | None) -> str:
    name = "standard input" if path is None else path
    try:
        return sys.stdin.read() if path is None else Path(path).expanduser().read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"there is no prompt file {name!r}: check --prompt-file") from None
    except UnicodeDecodeError:
        raise DataError(f"{name} is not UTF-8 text: convert it first") from None
    except OSError as reason:
        raise DataError(f"{name} cannot be read: {reason.strerror}") from None


def _encode(args: argparse.Namespace, tokenizer: Any, prompt: str, template: dict[str, Any]) -> list[int]:
    """Token ids as mlx-lm makes them: through the chat template, if there is one and it is wanted."""
    from mirror_mlx.prompts import chat_tokens, encode

    needs = [flag for flag in ("--system-prompt", "--prefill-response") if vars(args)[flag[2:].replace("-", "_")]]
    if args.ignore_chat_template or not tokenizer.has_chat_template:
        if needs:
            why = "--ignore-chat-template leaves it out" if args.ignore_chat_template else "this model has none"
            raise UsageError(f"{needs[0]} needs the chat template, and {why}")
        return encode(tokenizer, prompt)
    messages = [{"role": "user", "content": prompt}]
    if args.system_prompt is not None:
        messages.insert(0, {"role": "system", "content": args.system_prompt})
    if args.prefill_response is not None:
        messages.append({"role": "assistant", "content": args.prefill_response})
    return chat_tokens(tokenizer, messages, continued=args.prefill_response is not None, **template)


def _print(responses: "Iterable[Response]", out: TextIO, verbose: bool) -> float:
    """Stream the answer between mlx-lm's rules. Returns the peak memory in GB."""
    if verbose:
        print("=" * 10, file=out, flush=True)
    peak_memory = 0.0
    for response in responses:
        out.write(response.text)
        out.flush()
        peak_memory = response.peak_memory
    print(file=out)
    if verbose:
        print("=" * 10, file=out)
    return peak_memory


def _write_trace(trace: Any, path: str) -> None:
    try:
        trace.write(Path(path).expanduser())
    except OSError as reason:
        raise MirrorError(f"--trace {path} cannot be written: {reason.strerror}") from None
