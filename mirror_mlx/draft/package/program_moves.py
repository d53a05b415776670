"""Ops that move values about and compute nothing: shapes, slices, joins, gathers."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from mirror_mlx.draft.package.program_rules import MX_TYPES, NP_TYPES, Call, Rule, Run
from mirror_mlx.errors import DraftError


def held(call: Call) -> Any:
    """The dtype that holds the first result."""
    return (NP_TYPES if call.xp is np else MX_TYPES)[call.results[0].dtype]


def _reshape(call: Call) -> Run:
    shape = call.result()
    return lambda x: x.reshape(shape)


def _transpose(call: Call) -> Run:
    order = call.axes("perm")
    return lambda x: x.transpose(order)


def _concat(call: Call) -> Run:
    join, axis = call.xp.concatenate, call.param("axis", 0)
    if call.param("interleave", False):
        raise call.refuse("'interleave'")
    return lambda *values: join(values, axis=axis)


def _stack(call: Call) -> Run:
    join, axis = call.xp.stack, call.param("axis", 0)
    return lambda *values: join(values, axis=axis)


def _split(call: Call) -> Run:
    sizes, axis = call.param("split_sizes"), call.param("axis")
    if sizes is None:
        count = call.param("num_splits")
        sizes = [call.shape("x")[axis] // count] * count
    ends, split = np.cumsum(sizes)[:-1].tolist(), call.xp.split
    return (lambda x: split(x, ends, axis=axis)) if ends else (lambda x: x)


def _tile(call: Call) -> Run:
    tile, reps = call.xp.tile, call.param("reps")
    return lambda x: tile(x, reps)


def _where(call: Call) -> Run:
    where = call.xp.where
    return lambda cond, a, b: where(cond, a, b)


def _cast(call: Call) -> Run:
    kind = held(call)
    return lambda x: x.astype(kind)


def _gather(call: Call) -> Run:
    xp, axis = call.xp, call.param("axis", 0)
    if call.param("batch_dims", 0):
        raise call.refuse("'batch_dims'")
    last = call.shape("x")[axis] - 1
    # MLX reads whatever memory an index out of range leads to.
    return lambda x, indices: xp.take(x, xp.clip(indices, -last - 1, last), axis=axis)


def _gather_along_axis(call: Call) -> Run:
    xp, axis = call.xp, call.param("axis", 0)
    last = call.shape("x")[axis] - 1
    return lambda x, indices: xp.take_along_axis(x, xp.clip(indices, -last - 1, last), axis=axis)


def _slicing(call: Call) -> Any:
    """(begin, end) → what to index with, as solve_slice_by_index_slice in coremltools."""
    rank = len(call.shapes["x"])
    strides = call.param("stride") or [1] * rank
    begin_mask, end_mask, squeezed = (
        call.param(name) or [False] * rank for name in ("begin_mask", "end_mask", "squeeze_mask")
    )

    def slices(begin: Sequence[int], end: Sequence[int]) -> tuple[slice | int, ...]:
        return tuple(
            int(begin[i]) if squeezed[i] and not begin_mask[i]
            else 0 if squeezed[i]
            else slice(None if begin_mask[i] else int(begin[i]), None if end_mask[i] else int(end[i]), strides[i])
            for i in range(rank)
        )  # fmt: skip

    if "begin" in call.known and "end" in call.known:
        fixed = slices(call.known["begin"], call.known["end"])
        return lambda begin, end: fixed
    return slices


def _slice_by_index(call: Call) -> Run:
    slices = _slicing(call)
    shape, _ = call.results[0]

    def run(x: Any, begin: Any, end: Any) -> Any:
        part = x[slices(begin, end)]
        if shape is not None and part.shape != shape:
            raise DraftError(f"{call.where}: {begin} … {end} is not inside {call.shapes['x']}")
        return part

    return run


def _slice_update(call: Call) -> Run:
    slices = _slicing(call)
    shape, update_shape = call.shape("x"), call.shape("update")

    def run(x: mx.array, update: mx.array, begin: Any, end: Any) -> mx.array:
        where = slices(begin, end)
        if _extent(where, shape) != update_shape:
            raise DraftError(f"{call.where}: {begin} … {end} of {shape} does not hold {update_shape}")
        result = x[...]
        result[where] = update
        return result

    return run


def _extent(where: tuple[slice | int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of what some slices lead to."""
    sizes = zip(where, shape, strict=True)
    return tuple(len(range(*one.indices(size))) for one, size in sizes if isinstance(one, slice))


MOVES: dict[str, Rule] = {
    "identity": Rule(("x",), lambda call: lambda x: x, exact=True, host=True),
    "reshape": Rule(("x",), _reshape, exact=True, host=True),
    "expand_dims": Rule(("x",), _reshape, exact=True, host=True),
    "squeeze": Rule(("x",), _reshape, exact=True, host=True),
    "transpose": Rule(("x",), _transpose, exact=True, host=True),
    "concat": Rule(("values",), _concat, exact=True, host=True),
    "stack": Rule(("values",), _stack, exact=True, host=True),
    "split": Rule(("x",), _split, exact=True, host=True),
    "tile": Rule(("x",), _tile, exact=True, host=True),
    "select": Rule(("cond", "a", "b"), _where, exact=True, host=True),
    "cast": Rule(("x",), _cast, host=True),
    "gather": Rule(("x", "indices"), _gather, exact=True, host=True),
    "gather_along_axis": Rule(("x", "indices"), _gather_along_axis, exact=True, host=True),
    "slice_by_index": Rule(("x", "begin", "end"), _slice_by_index, exact=True, host=True, indices=("begin", "end")),
    "slice_update": Rule(("x", "update", "begin", "end"), _slice_update, exact=True, indices=("begin", "end")),
}
