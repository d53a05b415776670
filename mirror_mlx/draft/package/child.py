"""A question for Core ML, put to a process of its own: it may crash there, or hang, and this process goes on."""

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What a child process came to.

    value    the JSON it wrote, or None
    code     its exit status, negative for a signal; None: it did not end in time, and was killed
    said     its last line of output
    seconds  it took
    """

    value: Any
    code: int | None
    said: str
    seconds: float

    @property
    def crash(self) -> str | None:
        """The signal that ended it, by name, or None."""
        if self.code is None or self.code >= 0:
            return None
        return signal.Signals(-self.code).name if -self.code in signal.valid_signals() else f"signal {-self.code}"


def ask(command: Sequence[str], limit: float) -> Answer:
    """Run a command, which gets as its last argument the file to write its answer to, for at most `limit` seconds."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mirror-mlx-") as scratch:
        answer, output = Path(scratch, "answer.json"), Path(scratch, "said.txt")
        with output.open("wb") as said:  # Core ML's compiler is talkative
            child = subprocess.Popen(
                [*command, str(answer)], stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )
            try:
                code = child.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(child)
        try:
            value = json.loads(answer.read_text())
        except (OSError, ValueError):
            value = None
        lines = output.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
        return Answer(value, code, lines[-1], time.monotonic() - began)


def _end(child: "subprocess.Popen[bytes]") -> None:
    """Kill the child and what it started. One that hangs in the kernel is left behind."""
    if child.poll() is None:
        try:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait(5.0)
        except (OSError, subprocess.TimeoutExpired):
            pass
