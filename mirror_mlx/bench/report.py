"""A report: files that the measurements wrote, as one page that opens anywhere, with no network."""

import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirror_mlx import __version__, storage
from mirror_mlx.bench import files
from mirror_mlx.bench.report_kinds import KINDS, recognise
from mirror_mlx.bench.report_page import Section, page
from mirror_mlx.bench.report_plots import draw, embedded
from mirror_mlx.bench.report_tables import TEXTS
from mirror_mlx.bench.report_timeline import Timeline
from mirror_mlx.errors import DataError

TITLE = "mirror-mlx report"
_DATE = "%Y-%m-%d %H:%M"
_WANTED = "files that bench's --json or generate --trace wrote"
_DAMAGE = (ArithmeticError, AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError)
"""What plain data raise that lack something."""


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was read: its kind, one of `KINDS`; its JSON; when it was written, as text."""

    path: str
    kind: str
    data: Any
    written: str


def read(path: str) -> Source:
    """Raises DataError for a file that cannot be read, is no JSON, or that no measurement wrote."""
    content = files.read_text(path, f"give {_WANTED}")
    written = time.strftime(_DATE, time.localtime(Path(path).expanduser().stat().st_mtime))
    try:
        # JSON has no NaN; what Python writes as one is a figure that is not known.
        data = _clean(json.loads(content, parse_constant=lambda name: None))
    except (ValueError, RecursionError):
        empty = "it is empty" if not content.strip() else "it is no JSON"
        raise DataError(f"{path}: {empty}: give {_WANTED}") from None
    kind = recognise(data)
    if kind is None:
        known = ", ".join(dict.fromkeys(one.command.removeprefix("mirror-mlx ") for one in KINDS.values()))
        raise DataError(f"{path}: unknown: it is none of what these write: {known}")
    return Source(path, kind, data, written)


def _clean(value: Any) -> Any:
    """Without characters that no page can hold: halves of characters, and control characters."""
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" or (c < " " and c not in "\t\n") else c for c in value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else value


def section(source: Source, number: int) -> Section:
    """What the page says of a file. Raises DataError where it lacks what its kind has."""
    kind = KINDS[source.kind]
    try:
        pictures = [
            embedded(svg, f"f{number}p{count}") for count, svg in enumerate(draw(source.kind, source.data), start=1)
        ]
        line = Timeline.of(source.data).payload() if source.kind == "trace" else None
        said = TEXTS[source.kind](source.data)
    except _DAMAGE as reason:
        what = f"no {reason}" if isinstance(reason, KeyError) else str(reason) or type(reason).__name__
        raise DataError(f"{source.path}: it is incomplete ({what}): write it again with {kind.command}") from None
    return Section(kind.title, Path(source.path).name, kind.command, source.written, said, pictures, line)


def write(paths: Sequence[str], out: Path, title: str = TITLE) -> int:
    """Read the files and write the page, at once. Returns its size in bytes. Raises MirrorError."""
    sources = [read(path) for path in paths]
    sections = [section(source, number) for number, source in enumerate(sources, start=1)]
    return files.replace(out, page(title, about(), sections))


def about() -> dict[str, str]:
    """When, on what and with what the page was written. What was measured, and where, each section says."""
    found = {"mirror-mlx": __version__}
    found |= {name: number for name in ("mlx", "mlx-lm") if (number := storage.release(name)) is not None}
    versions = ", ".join(f"{name} {number}" for name, number in found.items())
    return {
        "written": time.strftime(_DATE),
        "written on": f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} cores",
        "written with": f"{versions}, Python {platform.python_version()}",
    }
