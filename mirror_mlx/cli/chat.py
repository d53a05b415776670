"""`mirror-mlx chat`: a conversation."""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror_mlx import __version__
from mirror_mlx.cli import flags
from mirror_mlx.cli.report import explain_lines, models, stats_line
from mirror_mlx.errors import PromptError, UsageError

if TYPE_CHECKING:
    from mirror_mlx.cli.terminal import Terminal
    from mirror_mlx.engine import Engine
    from mirror_mlx.sampling import Sampling

EPILOG = """examples:
  mirror-mlx chat
  mirror-mlx chat --model mlx-community/Qwen3-8B-4bit --draft-model mlx-community/Qwen3-0.6B-8bit --temp 0.7
  echo "Tom has 3 apples and buys 5 more. How many does he have?" | mirror-mlx chat
"""

HELP = (
    ("q", "quit; so does the end of input, or Ctrl-C at the prompt"),
    ("r, /clear", "start a new conversation"),
    ("h, /help", "this help"),
    ("/model", "which models answer, and how"),
    ("/save FILE", "write the conversation as JSON"),
    ('"""', "begins and ends a message of several lines"),
    ("Ctrl-C", "stops an answer; what was said stays in the conversation"),
)

# What the bundled pair was trained for: word problems of primary school.
TRY = (
    "Tom has 3 boxes with 12 pencils in each. He gives 9 pencils to his sister. How many pencils does he have left?",
    "Lena reads 20 pages a day from Monday to Friday and 35 pages on each day of the weekend. "
    "How many pages does she read in a week?",
    "A shop has 90 apples. It sells 40 on Monday and half of the rest on Tuesday. How many apples are left?",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "mirror-mlx chat [flags]"
    parser.epilog = EPILOG
    flags.add_model(parser)
    flags.add_template(parser)
    flags.add_sampling(parser, max_tokens=256)
    flags.add_decoding(parser)


def run(args: argparse.Namespace) -> int:
    template = flags.template_config(args)
    with _loading(args.model):
        engine, sampling = flags.start(args)
    with engine:
        if not engine.tokenizer.has_chat_template:
            raise UsageError(
                f"{args.model} has no chat template: use 'mirror-mlx generate', or --use-default-chat-template"
            )
        from mirror_mlx.cli.terminal import Terminal

        chat = Chat(engine, Terminal(), sampling, args, template)
        chat.greet()
        chat.talk()
    return 0


@contextmanager
def _loading(name: str) -> Iterator[None]:
    """A word for the seconds until there is something to read; gone afterwards."""
    note = f"loading {name} …" if sys.stderr.isatty() else ""
    sys.stderr.write(note)
    sys.stderr.flush()
    try:
        yield
    finally:
        sys.stderr.write("\r" + " " * len(note) + "\r" if note else "")
        sys.stderr.flush()


class Chat:
    """A conversation with one engine: the messages so far, and what a line of input does to them."""

    def __init__(
        self,
        engine: "Engine",
        terminal: "Terminal",
        sampling: "Sampling",
        args: argparse.Namespace,
        template: dict[str, Any],
    ) -> None:
        self._engine, self._terminal, self._sampling = engine, terminal, sampling
        self._args, self._template = args, template
        system = args.system_prompt
        self._system = [] if system is None else [{"role": "system", "content": system}]
        self.messages = list(self._system)

    def greet(self) -> None:
        self._terminal.rule(f"mirror-mlx {__version__}")
        self._show_models()
        self._terminal.remark("q quits · r starts anew · h helps")
        self._terminal.rule()

    def talk(self) -> None:
        """Until `q`, the end of input or Ctrl-C at the prompt."""
        while True:
            try:
                line = self._read()
            except KeyboardInterrupt:
                self._terminal.line()
                return
            if line is None or line.strip() == "q":
                return
            if line.strip():
                self.take(line)

    def take(self, line: str) -> None:
        """Do what a line or a message of several asks for."""
        word, _, rest = line.strip().partition(" ")
        if line.strip() in ("r", "/clear"):
            self._reset()
        elif line.strip() in ("h", "/help"):
            self._help()
        elif line.strip() == "/model":
            self._show_models()
        elif word == "/save":
            self._save(rest.strip())
        elif re.fullmatch(r"/[a-z]+", word):
            self._terminal.warn(f"there is no {word}: h lists what there is")
        else:
            self.answer(line)

    def answer(self, question: str) -> None:
        """Ask, stream the answer, keep both; what could not be asked is not kept."""
        from mirror_mlx.cli.terminal import Stop

        self.messages.append({"role": "user", "content": question})
        said, last, stop = "", None, Stop()
        try:
            with stop:
                for response in self._responses(stop):
                    self._terminal.write(response.text)
                    said, last = said + response.text, response
                    if stop.wished:
                        break
        except _StoppedError:
            pass
        except PromptError as error:
            self._terminal.warn(f"{error}, or start anew with r")
        if not said.endswith("\n") and (said or stop.wished):
            self._terminal.line()
        if said:
            self.messages.append({"role": "assistant", "content": said})
        else:
            self.messages.pop()
        if stop.wished:
            self._terminal.remark("stopped")
        elif last is not None:
            self._terminal.remark(stats_line(self._engine.stats))
            if self._args.explain:
                for line in explain_lines(self._engine.stats):
                    self._terminal.remark(line)
            if last.finish_reason == "length":
                self._explain_end(last.generation_tokens)
        self._terminal.gap()

    def _responses(self, stop: Any) -> Any:
        from mirror_mlx.prompts import chat_tokens

        def progress(_done: int, _all: int) -> None:
            if stop.wished:
                raise _StoppedError

        tokens = chat_tokens(self._engine.tokenizer, self.messages, **self._template)
        stream = self._engine.stream(tokens, self._args.max_tokens, self._sampling, progress)
        try:
            yield from stream
        finally:
            stream.close()  # now, so that the stats are there

    def _explain_end(self, tokens: int) -> None:
        if tokens == self._args.max_tokens:
            self._terminal.remark(f"the answer was cut after {tokens} tokens: --max-tokens allows more")
        else:
            self._terminal.warn("the model's context is full: start anew with r")

    def _read(self) -> str | None:
        line = self._terminal.ask()
        if line is None or not line.lstrip().startswith('"""'):
            return line
        lines = [line.lstrip()[3:]]
        while not lines[-1].rstrip().endswith('"""'):
            following = self._terminal.ask("…")
            if following is None:
                break
            lines.append(following)
        return "\n".join(lines).rstrip().removesuffix('"""').strip("\n")

    def _reset(self) -> None:
        self.messages = list(self._system)
        # Another conversation, other draws: still the same for the same seed.
        self._sampling = replace(self._sampling, seed=self._sampling.seed + 1)
        self._terminal.remark("a new conversation")

    def _help(self) -> None:
        demo = [("demo", "the bundled pair knows word problems, such as:"), *(("", question) for question in TRY)]
        self._terminal.rows([*HELP, *(demo if self._args.model == "demo" else [])])

    def _show_models(self) -> None:
        self._terminal.rows(models(self._engine, self._args))

    def _save(self, name: str) -> None:
        if not name:
            self._terminal.warn("a file name is missing: /save FILE")
            return
        path = Path(name).expanduser()
        try:
            with path.open("x", encoding="utf-8") as file:
                json.dump({"model": self._args.model, "messages": self.messages}, file, indent=2, ensure_ascii=False)
                file.write("\n")
        except FileExistsError:
            self._terminal.warn(f"{name} exists: choose another name")
        except OSError as reason:
            self._terminal.warn(f"{name} cannot be written: {reason.strerror}")
        else:
            count = len(self.messages)
            self._terminal.remark(f"{count} message{'s' if count != 1 else ''} saved to {name}")


class _StoppedError(Exception):
    """Ctrl-C while the prompt was processed."""
