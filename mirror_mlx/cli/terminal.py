"""The two ends of a conversation: lines in, text and quiet remarks out. Plain text where there is no terminal."""

import re
import signal
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

from rich.console import Console
from rich.rule import Rule
from rich.text import Text

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """Where a person types and reads, or a file or pipe in the place of either."""

    def __init__(self) -> None:
        self.console = Console(highlight=False, markup=False)
        self.typed = sys.stdin.isatty()
        self._gap = False
        if self.typed and sys.stdout.isatty():
            with suppress(ImportError):
                import readline  # noqa: F401  (input() then edits lines and remembers them)
        elif hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="replace")

    def ask(self, prompt: str = "›") -> str | None:
        """The next line, or None at the end of input. KeyboardInterrupt on Ctrl-C."""
        if self.typed:
            self._close_gap()
            with self.console.capture() as capture:
                self.console.print(Text(prompt, "bold magenta"), end=" ")
            try:
                # readline must know which characters take no room.
                return input(_ESCAPES.sub(lambda escape: f"\x01{escape[0]}\x02", capture.get()))
            except EOFError:
                self.line()
                return None
        line = sys.stdin.readline()
        if not line:
            return None
        self._close_gap()
        line = line.removesuffix("\n").removesuffix("\r")
        self.write(f"{prompt} {line}\n")  # so that what is written reads as the conversation it was
        return line

    def write(self, text: str) -> None:
        """A piece of an answer, as it is."""
        sys.stdout.write(text)
        sys.stdout.flush()

    def line(self) -> None:
        self.write("\n")

    def gap(self) -> None:
        """Leave a line free before the next question, if there is one."""
        self._gap = True

    def _close_gap(self) -> None:
        if self._gap:
            self.line()
        self._gap = False

    def remark(self, text: str) -> None:
        """A line about the conversation."""
        self._print("  ", text, "bright_black")

    def warn(self, text: str) -> None:
        """A line about something that did not work."""
        self._print("  ", text, "yellow")

    def rule(self, title: str = "") -> None:
        self.console.print(Rule(Text(title, "bold"), align="left", style="bright_black"))

    def rows(self, rows: Sequence[tuple[str, str]]) -> None:
        """Names on the left, what they stand for on the right."""
        width = max(len(name) for name, _ in rows)
        for name, value in rows:
            self._print(f"  {name:{width}}  ", value)

    def _print(self, before: str, text: str, style: str = "") -> None:
        """A line that stays beside what is before it when a terminal is too narrow; elsewhere lines stay whole."""
        if self.console.is_terminal:
            room = max(self.console.width - len(before), 20)
            text = textwrap.fill(text, room, break_on_hyphens=False).replace("\n", "\n" + " " * len(before))
        self.console.print(Text.assemble((before, "bright_black"), (text, style)), soft_wrap=True)


class Stop:
    """Ctrl-C as a wish, so that no step is torn apart; a second one is an ordinary KeyboardInterrupt.

    >>> with Stop() as stop:
    ...     stop.wished
    False
    """

    def __init__(self) -> None:
        self.wished = False
        self._before: Any = None

    def __enter__(self) -> "Stop":
        try:
            self._before = signal.signal(signal.SIGINT, self._note)
        except ValueError:  # not the main thread: Ctrl-C does not arrive here
            self._before = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        if self.wished:
            raise KeyboardInterrupt
        self.wished = True
