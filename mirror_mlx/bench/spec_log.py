"""`results.jsonl`: what was measured, a line an answer, so that a measurement can be stopped and go on.

The first line says with which settings. All turns of a dialogue are appended in one write; a line that was torn when
the machine stopped is cut off at the next start.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from mirror_mlx.bench.spec_run import Record
from mirror_mlx.errors import DataError, MirrorError, UsageError

NAME = "results.jsonl"


class Results:
    """The records of a measurement, and its file if it has a folder.

    settings  what the figures depend on, as JSON takes it; a file that was begun with others is refused: UsageError
    resumed   how often the measurement was stopped and went on

    Raises DataError for a damaged file, MirrorError for a folder that cannot be used.
    """

    def __init__(self, folder: Path | None, settings: Mapping[str, Any]) -> None:
        self.records: list[Record] = []
        self.resumed = 0
        self._done: set[tuple[float, int, str, str]] = set()
        self._file: int | None = None
        if folder is not None:
            self._open(folder, json.loads(json.dumps(dict(settings))))

    def _open(self, folder: Path, settings: dict[str, Any]) -> None:
        file = folder / NAME
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            text = file.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            os.ftruncate(self._file, len(whole))
        except OSError as reason:
            self.close()
            raise MirrorError(f"{file} cannot be written: {reason.strerror}") from None
        try:
            self._read(file, whole.decode("utf-8", "replace").splitlines(), settings)
        except BaseException:
            self.close()
            raise

    def _read(self, file: Path, lines: Sequence[str], settings: dict[str, Any]) -> None:
        if not lines:
            self._write([{"settings": settings, "hash": digest(settings)}])
            return
        for number, line in enumerate(lines, start=1):
            try:
                given = json.loads(line)
                if number == 1:
                    _check_same(file, given["settings"], settings)
                elif "resumed" in given:
                    self.resumed = given["resumed"]
                else:
                    self._keep(given)
            except (ValueError, KeyError, TypeError, AttributeError) as reason:
                if isinstance(reason, UsageError):
                    raise
                raise DataError(f"{file}, line {number}: it is damaged; remove the file to measure anew") from None
        if self.records:
            self.resumed += 1
            self._write([{"resumed": self.resumed}])

    def has(self, temperature: float, run: int, question: str, method: str) -> bool:
        """Whether this dialogue is there."""
        return (temperature, run, question, method) in self._done

    @property
    def dialogues(self) -> int:
        """How many there are."""
        return len(self._done)

    def add(self, records: Sequence[Record]) -> None:
        """Keep all turns of a dialogue. Raises MirrorError where the disk refuses."""
        self._write(records)
        for record in records:
            self._keep(record)

    def close(self) -> None:
        """Idempotent."""
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None

    def _keep(self, record: Record) -> None:
        self._done.add((record["temperature"], record["run"], record["question"], record["method"]))
        self.records.append(record)

    def _write(self, lines: Sequence[Mapping[str, Any]]) -> None:
        if self._file is None:
            return
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        try:
            os.write(self._file, text.encode())
            os.fsync(self._file)
        except OSError as reason:
            raise MirrorError(f"{NAME} cannot be written: {reason.strerror}") from None


def digest(settings: Mapping[str, Any]) -> str:
    """A short name for settings, whatever their order."""
    return blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=8).hexdigest()


def _check_same(file: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    if digest(before) == digest(now):
        return
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    said = ", ".join(f"{name} was {_brief(before.get(name))} and is {_brief(now.get(name))}" for name in names[:3])
    more = f", and {len(names) - 3} more" if len(names) > 3 else ""
    raise UsageError(f"{file} has results of other settings ({said}{more}): choose another folder, or remove the file")


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "…"
