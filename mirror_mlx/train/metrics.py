"""The record of a run (metrics.jsonl, one JSON object a line), and who else wants to know."""

import json
import time
from pathlib import Path
from typing import Any, Protocol

from mirror_mlx.train.checkpoint import Progress
from mirror_mlx.train.settings import Settings


class Metrics:
    """Appends lines to `path`; lines past step `after`, which a resumed run will write again, are removed first."""

    def __init__(self, path: Path, after: int) -> None:
        self._path = path
        kept = [line for line in read(path) if line["step"] <= after] if path.is_file() else []
        path.write_text("".join(json.dumps(line) + "\n" for line in kept), encoding="utf-8")

    def write(self, line: dict[str, Any]) -> None:
        """Append one line; it is on disk when this returns."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[Any]:
    """The complete lines of a file of JSON lines; a last one cut short by a crash is left out."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            break
    return lines


class Window:
    """Means since the last report."""

    def __init__(self) -> None:
        self.losses: list[float] = []
        self.tokens = 0
        self.since = time.monotonic()

    def add(self, loss: float, tokens: int) -> None:
        self.losses.append(loss)
        self.tokens += tokens

    def close(self) -> dict[str, float]:
        seconds = max(time.monotonic() - self.since, 1e-9)
        means = {"loss": sum(self.losses) / len(self.losses), "tokens_per_second": round(self.tokens / seconds, 1)}
        self.losses, self.tokens, self.since = [], 0, time.monotonic()
        return means


class Observer(Protocol):
    """Who watches a run. `facts` and `metrics` are what metrics.jsonl records."""

    def begin(self, settings: Settings, progress: Progress, facts: dict[str, Any]) -> None: ...
    def step(self, progress: Progress, metrics: dict[str, Any]) -> None: ...
    def validated(self, progress: Progress, metrics: dict[str, Any]) -> None: ...


class Silent:
    """The observer that does nothing."""

    def begin(self, settings: Settings, progress: Progress, facts: dict[str, Any]) -> None:
        pass

    def step(self, progress: Progress, metrics: dict[str, Any]) -> None:
        pass

    def validated(self, progress: Progress, metrics: dict[str, Any]) -> None:
        pass
