"""Files that a measurement reads and writes: an error in one line, and never half a file."""

import os
from pathlib import Path

from mirror_mlx.errors import DataError, MirrorError


def read_text(path: str, hint: str) -> str:
    """Raises DataError; `hint` is what to do where there is no such file."""
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"there is no file {path!r}: {hint}") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text") from None
    except OSError as reason:
        raise DataError(f"{path} cannot be read: {reason.strerror}") from None


def replace(file: Path, text: str) -> int:
    """Write a file at once: a reader sees the old one or the new one. Returns its bytes. Raises MirrorError."""
    partial = file.with_name(f".{file.name}")
    content = text.encode("utf-8", "replace")
    try:
        partial.write_bytes(content)
        os.replace(partial, file)
    except OSError as reason:
        partial.unlink(missing_ok=True)
        raise MirrorError(f"{file} cannot be written: {reason.strerror}") from None
    return len(content)
