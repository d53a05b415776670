"""What is kept on this machine to be quicker next time: in `$MIRROR_MLX_CACHE`, else ~/Library/Caches/mirror-mlx on a
Mac, else $XDG_CACHE_HOME/mirror-mlx. Nothing depends on it: what cannot be written or read is found out again.
"""

import json
import os
import sys
import tempfile
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any


def folder() -> Path:
    if given := os.environ.get("MIRROR_MLX_CACHE"):
        return Path(given).expanduser()
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "mirror-mlx"
    return Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "mirror-mlx"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir())


def read(file: Path) -> Any:
    """What `write` wrote; None where there is nothing that can be read."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def write(file: Path, value: Any) -> None:
    """As JSON, at once: a reader sees the old file or the new one."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(value), encoding="utf-8")
        os.replace(partial, file)


def forget(file: Path) -> None:
    with suppress(OSError):
        file.unlink()


def release(library: str) -> str | None:
    """The version that is installed, by which what was kept is told apart; None: it is not."""
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return None
