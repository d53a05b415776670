"""Checkpoints: a run can be killed at any moment and go on as if it had not been.

A checkpoint is a folder `checkpoint-<step>` with the weights, the optimizer's state and `state.json`. It is written
under another name, renamed when complete, and only then is the one before it removed. No random state is needed: the
order of the data follows from (seed, epoch), and nothing else in a run is random once the weights are made.
"""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx.optimizers import Optimizer
from mlx.utils import tree_flatten, tree_unflatten

from mirror_mlx.errors import DataError
from mirror_mlx.train.export import save_weights


@dataclass
class Progress:
    """Where a run stands: steps done, the data position that follows, tokens seen, seconds spent training."""

    step: int = 0
    epoch: int = 0
    place: int = 0
    tokens: int = 0
    seconds: float = 0.0


def save(folder: Path, model: nn.Module, optimizer: Optimizer, progress: Progress, settings: dict[str, Any]) -> Path:
    """Write a checkpoint into `folder` and remove older ones; returns its path.

    Raises DataError where it cannot be written; the one before it is then kept.
    """
    path = folder / f"checkpoint-{progress.step:08d}"
    partial = folder / ".checkpoint"
    shutil.rmtree(partial, ignore_errors=True)
    plain = {"progress": asdict(progress), "settings": settings}
    try:
        partial.mkdir(parents=True)
        save_weights(partial / "model.safetensors", dict(tree_flatten(model.trainable_parameters())))
        save_weights(partial / "optimizer.safetensors", dict(tree_flatten(optimizer.state)))
        (partial / "state.json").write_text(json.dumps(plain, indent=2), encoding="utf-8")
    except (OSError, RuntimeError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        kept = f"; {found[-1].name} is kept, --resume goes on from it" if (found := find(folder)) else ""
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"cannot write a checkpoint to {folder}: {reason}{kept}") from None
    shutil.rmtree(path, ignore_errors=True)
    partial.rename(path)
    for old in find(folder):
        if old != path:
            shutil.rmtree(old)
    return path


def find(folder: Path) -> list[Path]:
    """The complete checkpoints in `folder`, oldest first."""
    return sorted(folder.glob("checkpoint-*"))


def read(path: Path) -> tuple[Progress, dict[str, Any]]:
    """Progress and settings of the checkpoint at `path`. Raises DataError where it is damaged."""
    try:
        plain = json.loads((path / "state.json").read_text(encoding="utf-8"))
        return Progress(**plain["progress"]), plain["settings"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}): remove it and train again") from None


def restore(path: Path, model: nn.Module, optimizer: Optimizer) -> None:
    """Put the checkpoint's weights and optimizer state in place. Raises DataError where it is damaged."""
    try:
        weights = _load(path / "model.safetensors")
        if weights.keys() != dict(tree_flatten(model.trainable_parameters())).keys():
            raise ValueError("it holds another model")
        model.load_weights(list(weights.items()), strict=False)
        state = tree_unflatten(list(_load(path / "optimizer.safetensors").items()))
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{path} is damaged ({error}): remove it and train again") from None
    optimizer.state = state
    mx.eval(model.parameters(), optimizer.state)


def _load(path: Path) -> dict[str, mx.array]:
    arrays = mx.load(str(path))
    assert isinstance(arrays, dict)
    return arrays


def remove(folder: Path) -> None:
    """Remove all checkpoints: a finished run needs none."""
    for path in find(folder):
        shutil.rmtree(path)
