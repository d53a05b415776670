"""Calibrations on disk: one small file for a target, a draft, a machine and the versions of what runs them.

In `$MIRROR_MLX_CACHE`, else ~/Library/Caches/mirror-mlx (macOS) or $XDG_CACHE_HOME/mirror-mlx, in `calibration`. What
cannot be read or written is measured again.
"""

import json
import os
import platform
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from importlib import metadata
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mirror_mlx.calibration.measuring import Found

_VERSION = 1  # of what is measured, and how


def folder() -> Path:
    if given := os.environ.get("MIRROR_MLX_CACHE"):
        return Path(given).expanduser() / "calibration"
    if sys.platform == "darwin":
        return _home() / "Library" / "Caches" / "mirror-mlx" / "calibration"
    return Path(os.environ.get("XDG_CACHE_HOME") or _home() / ".cache") / "mirror-mlx" / "calibration"


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:  # a user without a home, as in some containers
        return Path(tempfile.gettempdir())


def file_for(target: nn.Module, draft: Any, wanted: Mapping[str, Any]) -> Path | None:
    """Where the calibration of these is kept. None for a draft that cannot be told from others."""
    drafted = "none" if draft is None else _draft(draft)
    if drafted is None:
        return None
    about = {
        "version": _VERSION, "target": identity(target), "draft": drafted, "wanted": dict(wanted),
        "machine": [platform.platform(), platform.machine(), os.cpu_count(), str(mx.default_device()), _cores()],
        "versions": [_release(name) for name in ("mirror-mlx", "mlx", "mlx-lm")],
    }  # fmt: skip
    digest = blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=12).hexdigest()
    return folder() / f"{digest}.json"


def read(file: Path) -> Found | None:
    try:
        return Found.from_dict(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def write(file: Path, found: Found) -> None:
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(found.as_dict()), encoding="utf-8")
        os.replace(partial, file)


def forget(file: Path) -> None:
    with suppress(OSError):
        file.unlink()


def identity(model: nn.Module) -> str:
    """Names, shapes and types of a model's weights, and a sample of each: enough to tell two models apart."""
    found = blake2b(digest_size=12)
    for name, value in tree_flatten(model.parameters()):
        found.update(f"{name} {value.shape} {value.dtype}".encode())
        if value.size:
            found.update(str(mx.sum(value.reshape(-1)[:16].astype(mx.float32)).item()).encode())
    return found.hexdigest()


def _draft(draft: Any) -> str | None:
    model = getattr(draft, "model", None)
    found = identity(model) if isinstance(model, nn.Module) else getattr(draft, "identity", None)
    return None if found is None else f"{type(draft).__qualname__} {getattr(draft, 'host', '')} {found}"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


def _release(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
