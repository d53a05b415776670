"""The language-model head in a graph: K buckets of the vocabulary, of each its best row and its share of the softmax.

Row i is in bucket i mod K. A vocabulary is never handed out.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from mirror_mlx.convert.blocks import linear
from mirror_mlx.convert.options import MAX_GROUPS, MAX_SIZE
from mirror_mlx.convert.toolkit import mb
from mirror_mlx.convert.weights import Linear


def part_size(buckets: int) -> int:
    """Rows of one convolution: the most that are whole rounds of buckets and below the Neural Engine's limit."""
    return (MAX_SIZE - 1) // buckets * buckets


def padded(rows: int, buckets: int) -> int:
    return -(-rows // buckets) * buckets


def bucketed(y: Any, parts: Sequence[Linear], buckets: int) -> dict[str, Any]:
    """y (1, C or rank, 1, S) → `max`, `arg`, `sumexp`, (1, K, 1, S) each; `arg` a of bucket b is row a·K + b.

    Every part is reduced by itself; then the parts, which are few, against each other. Of equal rows the first counts.
    """
    columns = y.shape[-1]
    best, places, sums, offsets = [], [], [], [0]
    for part in parts:
        groups = part.weight.shape[0] // buckets
        logits = mb.reshape(x=linear(y, part), shape=[1, groups, buckets, columns])
        top = mb.reduce_max(x=logits, axes=[1], keep_dims=True)
        best.append(top)
        places.append(mb.reduce_argmax(x=logits, axis=1, keep_dims=True))
        sums.append(mb.reduce_sum(x=mb.exp(x=mb.sub(x=logits, y=top)), axes=[1], keep_dims=True))
        offsets.append(offsets[-1] + groups)
    found = (best[0], places[0], sums[0]) if len(parts) == 1 else _combined(best, places, sums, offsets[:-1])
    shape = [1, buckets, 1, columns]
    return {name: mb.reshape(x=x, shape=shape) for name, x in zip(("max", "arg", "sumexp"), found, strict=True)}


def _combined(best: list[Any], places: list[Any], sums: list[Any], offsets: list[int]) -> tuple[Any, Any, Any]:
    """Each a list over parts of (1, 1, K, S) → (1, 1, K, S) of all of them."""
    every = mb.concat(values=best, axis=1)
    top = mb.reduce_max(x=every, axes=[1], keep_dims=True)
    total = mb.mul(x=mb.concat(values=sums, axis=1), y=mb.exp(x=mb.sub(x=every, y=top)))
    # Places are below MAX_GROUPS, so float16 has them exactly, and the Neural Engine has no int32 arithmetic.
    place = mb.cast(x=mb.concat(values=places, axis=1), dtype="fp16")
    place = mb.add(x=place, y=np.array(offsets, np.float16)[None, :, None, None])
    first = mb.select(cond=mb.greater_equal(x=every, y=top), a=place, b=np.float16(MAX_GROUPS))
    arg = mb.cast(x=mb.reduce_min(x=first, axes=[1], keep_dims=True), dtype="int32")
    return top, arg, mb.reduce_sum(x=total, axes=[1], keep_dims=True)
