"""`results.jsonl`: what `bench spec` has measured, a line an answer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mirror_mlx.bench.journal import Journal
from mirror_mlx.bench.spec_run import Record

NAME = "results.jsonl"


class Results:
    """The records of a measurement, and its file if it has a folder. The rest: see `journal.Journal`."""

    def __init__(self, folder: Path | None, settings: Mapping[str, Any]) -> None:
        self.records: list[Record] = []
        self._done: set[tuple[float, int, str, str]] = set()
        self._journal = Journal(folder, NAME, settings, self._keep)

    @property
    def resumed(self) -> int:
        return self._journal.resumed

    def has(self, temperature: float, run: int, question: str, method: str) -> bool:
        """Whether this dialogue is there."""
        return (temperature, run, question, method) in self._done

    @property
    def dialogues(self) -> int:
        """How many there are."""
        return len(self._done)

    def add(self, records: Sequence[Record]) -> None:
        """Keep all turns of a dialogue. Raises MirrorError where the disk refuses."""
        self._journal.add(records)
        for record in records:
            self._keep(record)

    def close(self) -> None:
        """Idempotent."""
        self._journal.close()

    def _keep(self, record: Mapping[str, Any]) -> None:
        self._done.add((record["temperature"], record["run"], record["question"], record["method"]))
        self.records.append(dict(record))
