"""What the target thinks of every position of the training rows: its best tokens and their probabilities, kept on disk.

For each position the `top` most likely next tokens and their log-probabilities; what is left is one more entry, the
tail. 64 tokens take 384 bytes a position (256 where ids fit 16 bits), whatever the vocabulary.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mirror_mlx.errors import DataError

TOP = 64


@dataclass(frozen=True)
class Opinions:
    """The target's opinion of rows. `ids`, `logprobs`: [rows, L, top], memory-mapped."""

    ids: np.ndarray
    logprobs: np.ndarray

    def of(self, rows: np.ndarray) -> tuple[mx.array, mx.array]:
        """ids [B, L, top] int32 and log-probabilities [B, L, top] fp32 of some rows."""
        order = np.argsort(rows)  # a mapped file is read in one sweep
        back = np.argsort(order)
        ids, logprobs = self.ids[rows[order]][back], self.logprobs[rows[order]][back]
        return mx.array(ids.astype(np.int32)), mx.array(logprobs.astype(np.float32))


def opinions(
    rows: np.ndarray,
    target: nn.Module,
    folder: Path,
    *,
    batch_size: int,
    top: int = TOP,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Opinions:
    """The target's opinion of `rows` [rows, L + 1]: position i of a row is about its token i + 1.

    What `folder` holds already, of the same call, is not computed again. Raises DataError where the disk is full.
    """
    count, length = rows.shape[0], rows.shape[1] - 1
    folder.mkdir(parents=True, exist_ok=True)
    vocab = int(target(mx.array(rows[:1, :1])).shape[-1])
    top = min(top, vocab)
    small = np.uint16 if vocab <= 1 << 16 else np.uint32
    ids = _mapped(folder / "ids.npy", (count, length, top), small)
    logprobs = _mapped(folder / "logprobs.npy", (count, length, top), np.float16)
    done = _done(folder)
    while done < count:
        progress(done, count)
        part = slice(done, min(done + batch_size, count))
        best, theirs = best_of(target(mx.array(rows[part, :-1])), top)
        mx.eval(best, theirs)
        ids[part], logprobs[part] = np.array(best).astype(small), np.array(theirs).astype(np.float16)
        done = part.stop
        if done % (16 * batch_size) < batch_size or done == count:
            ids.flush()
            logprobs.flush()
            _mark(folder, done)
    progress(count, count)
    return Opinions(ids, logprobs)


def best_of(logits: mx.array, top: int) -> tuple[mx.array, mx.array]:
    """The `top` best tokens [..., top] of logits [..., V] and their log-probabilities, in no order."""
    logits = logits.astype(mx.float32)
    logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
    if top >= logits.shape[-1]:
        return mx.broadcast_to(mx.arange(logits.shape[-1]), logits.shape), logprobs
    best = mx.argpartition(-logprobs, kth=top - 1, axis=-1)[..., :top]
    return best, mx.take_along_axis(logprobs, best, axis=-1)


def _mapped(path: Path, shape: tuple[int, ...], kind: type) -> np.ndarray:
    """A file mapped as an array of this shape, its room on disk reserved: a full disk shows here, not as a crash."""
    if path.is_file():
        try:
            found = np.lib.format.open_memmap(path, mode="r+")
        except (OSError, ValueError):
            raise DataError(f"{path} is damaged: remove {path.parent}") from None
        if found.shape == shape and found.dtype == kind:
            return found
        raise DataError(f"{path} is of other data: remove {path.parent}")
    try:
        made = np.lib.format.open_memmap(path, mode="w+", dtype=kind, shape=shape)
        if hasattr(os, "posix_fallocate"):
            with path.open("r+b") as file:
                os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    except OSError as error:
        path.unlink(missing_ok=True)
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        raise DataError(
            f"cannot reserve {size / 1e9:.1f} GB in {path.parent}: {error.strerror}; give another --cache"
        ) from None
    return made


def _done(folder: Path) -> int:
    try:
        return int(json.loads((folder / "done.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return 0


def _mark(folder: Path, done: int) -> None:
    partial = folder / ".done.json"
    partial.write_text(json.dumps(done), encoding="utf-8")
    partial.replace(folder / "done.json")
