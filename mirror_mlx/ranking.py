"""The likely next tokens of each row: what the tap says of the target's rows, glue of the draft's, the end of both."""

import time
from collections.abc import Callable, Sequence
from threading import Thread

import mlx.core as mx
import numpy as np

from mirror_mlx.messages import Candidates


class Ranking:
    """Candidates still on the device; `read` waits until they are there. Safe to read from any thread.

    ready   whether they are there already
    arrays  what has to be evaluated: ids [γ+1, m], probabilities [γ+1, m], the window's own probabilities [γ]
    """

    def __init__(self, ids: mx.array, probs: mx.array, own: mx.array, ready: bool) -> None:
        self.ready = ready
        self.arrays = (ids, probs, own)

    def read(self) -> Candidates:
        """Best first."""
        ids, probs, own = (np.array(a) for a in self.arrays)
        order = np.argsort(-probs, axis=-1, kind="stable")
        return Candidates(
            tokens=np.take_along_axis(ids, order, -1).tolist(),
            probs=np.take_along_axis(probs, order, -1).tolist(),
            own=own.tolist(),
        )

    def heard(self) -> Callable[[], float]:
        """Reads it, on a thread of its own where it is not there yet, so that the target can proceed. Returns what
        waits for that, and says when it was (`time.perf_counter`)."""
        at: list[float] = []

        def read() -> None:
            self.read()
            at.append(time.perf_counter())

        def when() -> float:
            reading.join()
            return at[0]

        if self.ready:
            read()
            return lambda: at[0]
        reading = Thread(target=read, daemon=True)
        reading.start()
        return when


def rank(scores: mx.array, window: Sequence[int], count: int, *, ready: bool = False) -> Ranking:
    """The `count` best tokens of each row of scores [γ+1, V], and the probability of the window's own tokens."""
    probs = mx.softmax(scores, axis=-1)
    count = min(count, scores.shape[-1])
    ids = mx.argpartition(-probs, kth=count - 1, axis=-1)[:, :count]
    own = mx.take_along_axis(probs[: len(window)], mx.array(list(window), dtype=mx.uint32)[:, None], axis=-1)[:, 0]
    return Ranking(ids, mx.take_along_axis(probs, ids, axis=-1), own, ready)


def likeliest(scores: mx.array, count: int) -> list[list[int]]:
    """The `count` best tokens of each row of scores [R, V], best first."""
    count = min(count, scores.shape[-1])
    ids = mx.argpartition(-scores, kth=count - 1, axis=-1)[:, :count]
    order = mx.argsort(-mx.take_along_axis(scores, ids, axis=-1), axis=-1)
    found: list[list[int]] = mx.take_along_axis(ids, order, axis=-1).tolist()
    return found
