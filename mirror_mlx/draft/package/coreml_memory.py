"""Memory of ours that Core ML reads and writes.

Core ML is given pointers, so a block must outlive every MLMultiArray over it. A prediction's arrays stay bound for
about a second after it has returned (apple/coremltools#2827: `-[MLE5ExecutionStream resetAfterLingering:]`), on a
thread of Core ML's own. So blocks are not freed when a host closes but `LINGER` seconds later: `retire`. A deallocator
in Python would run on that thread, perhaps in an interpreter that is ending: there is none.
"""

import math
import mmap
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

import numpy as np

ROW = 64  # bytes: the Neural Engine pads rows to these
LINGER = 10.0  # seconds

_retired: deque[tuple[float, list[Any]]] = deque()
_kept: list[list[Any]] = []
_lock = threading.Lock()


class Block:
    """One tensor in page-aligned memory, zeros at first. Apple's header of `outputBackings` asks for whole pages.

    raw      [bytes] uint8, all of it, in one piece
    array    the tensor, a view of `raw`
    strides  in elements, as Core ML counts them; with `padded`, each row begins at a multiple of 64 bytes
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], *, padded: bool = False) -> None:
        item = dtype.itemsize
        pitch = shape[-1] * item
        if padded and len(shape) > 1:
            pitch = math.ceil(pitch / ROW) * ROW
        lengths = [*shape[1:-1], pitch // item] if len(shape) > 1 else []
        self.strides = tuple(math.prod(lengths[axis:]) for axis in range(len(shape)))
        size = max(1, math.prod(shape[:-1]) * pitch)
        pages = mmap.mmap(-1, math.ceil(size / mmap.PAGESIZE) * mmap.PAGESIZE)
        self.raw: np.ndarray[Any, Any] = np.frombuffer(pages, np.uint8)
        self.array: np.ndarray[Any, Any] = np.ndarray(
            shape, dtype, buffer=self.raw, strides=tuple(stride * item for stride in self.strides)
        )


def retire(things: Iterable[Any], *, for_good: bool = False) -> None:
    """Keep what Core ML may still hold `LINGER` seconds longer, or `for_good`. Frees what has served its time."""
    now = time.monotonic()
    with _lock:
        while _retired and _retired[0][0] <= now:
            _retired.popleft()
        kept = list(things)
        if for_good:
            _kept.append(kept)
        elif kept:
            _retired.append((now + LINGER, kept))
