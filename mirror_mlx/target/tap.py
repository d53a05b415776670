"""What the tap says: the likely next tokens of each row, read at a middle layer."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mirror_mlx.messages import Candidates


class Tap:
    """The tapped layer's candidates for each row; `read` waits until they are there."""

    def __init__(self, ids: mx.array, probs: mx.array, own: mx.array, ready: bool) -> None:
        self.ready = ready
        self.arrays = (ids, probs, own)

    def read(self) -> Candidates:
        """Best first. Safe from any thread."""
        ids, probs, own = (np.array(a) for a in self.arrays)
        order = np.argsort(-probs, axis=-1, kind="stable")
        return Candidates(
            tokens=np.take_along_axis(ids, order, -1).tolist(),
            probs=np.take_along_axis(probs, order, -1).tolist(),
            own=own.tolist(),
        )


def candidates(scores: mx.array, window: Sequence[int], count: int, *, ready: bool) -> Tap:
    """The `count` best tokens of each row of scores [γ+1, V], and the probability of the window's own tokens."""
    probs = mx.softmax(scores, axis=-1)
    count = min(count, scores.shape[-1])
    ids = mx.argpartition(-probs, kth=count - 1, axis=-1)[:, :count]
    own = mx.take_along_axis(probs[: len(window)], mx.array(list(window), dtype=mx.uint32)[:, None], axis=-1)[:, 0]
    return Tap(ids, mx.take_along_axis(probs, ids, axis=-1), own, ready)
