"""Calibrations on disk: one small file for a target, a draft, a machine and the versions of what runs them."""

import json
import os
import platform
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mirror_mlx import storage
from mirror_mlx.calibration.measuring import Found

_VERSION = 12  # of what is measured, and how


def file_for(target: nn.Module, draft: Any, wanted: Mapping[str, Any]) -> Path | None:
    """Where the calibration of these is kept. None for a draft that cannot be told from others."""
    drafted = "none" if draft is None else _draft(draft)
    if drafted is None:
        return None
    about = {
        "version": _VERSION, "target": identity(target), "draft": drafted, "wanted": dict(wanted),
        "machine": [platform.platform(), platform.machine(), os.cpu_count(), str(mx.default_device()), _cores()],
        "versions": [storage.release(name) for name in ("mirror-mlx", "mlx", "mlx-lm")],
    }  # fmt: skip
    digest = blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=12).hexdigest()
    return storage.folder() / "calibration" / f"{digest}.json"


def read(file: Path) -> Found | None:
    try:
        return Found.from_dict(storage.read(file))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


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
