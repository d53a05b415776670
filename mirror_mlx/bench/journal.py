"""What a long measurement has found so far, a line each, so that it can be stopped and go on.

The first line says with which settings. What belongs together is appended in one write; a line that was torn when the
machine stopped is cut off at the next start.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any

from mirror_mlx.errors import DataError, MirrorError, UsageError


class Journal:
    """A file, if there is a folder for it.

    settings  what the figures depend on, as JSON takes it; a file that was begun with others is refused: UsageError
    found     told of each line that is there already; ValueError, KeyError, TypeError: it is damaged
    resumed   how often the measurement was stopped and went on

    Raises DataError for a damaged file, MirrorError for a folder that cannot be used.
    """

    def __init__(
        self, folder: Path | None, name: str, settings: Mapping[str, Any], found: Callable[[Mapping[str, Any]], object]
    ) -> None:
        self.resumed, self._name, self._file = 0, name, None if folder is None else _opened(folder, name)
        if folder is None:
            return
        try:
            self._read(folder / name, json.loads(json.dumps(dict(settings))), found)
        except BaseException:
            self.close()
            raise

    def _read(self, file: Path, settings: dict[str, Any], found: Callable[[Mapping[str, Any]], object]) -> None:
        assert self._file is not None
        try:
            text = file.read_bytes()
            whole = text[: text.rfind(b"\n") + 1]
            os.ftruncate(self._file, len(whole))
        except OSError as reason:
            raise MirrorError(f"{file} cannot be written: {reason.strerror}") from None
        lines = whole.decode("utf-8", "replace").splitlines()
        if not lines:
            self.add([{"settings": settings, "hash": digest(settings)}])
            return
        kept = 0
        for number, line in enumerate(lines, start=1):
            try:
                given = json.loads(line)
                if number == 1:
                    _check_same(file, given["settings"], settings)
                elif "resumed" in given:
                    self.resumed = given["resumed"]
                else:
                    found(given)
                    kept += 1
            except (ValueError, KeyError, TypeError, AttributeError) as reason:
                if isinstance(reason, UsageError):
                    raise
                raise DataError(f"{file}, line {number}: it is damaged; remove the file to measure anew") from None
        if kept:
            self.resumed += 1
            self.add([{"resumed": self.resumed}])

    def add(self, lines: Sequence[Mapping[str, Any]]) -> None:
        """Raises MirrorError where the disk refuses."""
        if self._file is None:
            return
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        try:
            os.write(self._file, text.encode())
            os.fsync(self._file)
        except OSError as reason:
            raise MirrorError(f"{self._name} cannot be written: {reason.strerror}") from None

    def close(self) -> None:
        """Idempotent."""
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
            self._file = None


def _opened(folder: Path, name: str) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as reason:
        raise MirrorError(f"{folder / name} cannot be written: {reason.strerror}") from None


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
