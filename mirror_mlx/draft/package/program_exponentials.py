"""exp and what is made of it, as fast as the machine allows.

Off Apple silicon MLX's CPU backend takes exponentials one at a time. numpy is many times faster, even with a copy back
to MLX: there these functions wait for their operand and leave MLX.
"""

import sys
from collections.abc import Callable

import mlx.core as mx
import numpy as np

_NOTHING = -104.0
"""exp of less is zero in float32, the smallest denormals included."""

Function = Callable[[mx.array], mx.array]


def by_numpy() -> bool:
    """Whether numpy is the faster way on the default device."""
    return sys.platform != "darwin" and mx.default_device() == mx.Device(mx.cpu)


def exp() -> Function:
    if not by_numpy():
        return mx.exp
    return lambda x: mx.array(_exp(np.asarray(x)))


def sigmoid() -> Function:
    if not by_numpy():
        return mx.sigmoid
    return lambda x: mx.array(np.reciprocal(_one_and_exp(np.asarray(x))))


def silu() -> Function:
    if not by_numpy():
        return lambda x: x * mx.sigmoid(x)

    def run(x: mx.array) -> mx.array:
        values = np.asarray(x)
        return mx.array(values / _one_and_exp(values))

    return run


def tanh() -> Function:
    if not by_numpy():
        return mx.tanh
    return lambda x: mx.array(np.tanh(np.asarray(x)))


def softmax(axis: int) -> Function:
    if not by_numpy():
        return lambda x: mx.softmax(x, axis=axis)

    @np.errstate(invalid="ignore")
    def run(x: mx.array) -> mx.array:
        values = np.asarray(x)
        most = values.max(axis, keepdims=True)
        end = _end(values, most) if axis in (-1, values.ndim - 1) else None
        part = _exp(values[..., :end] - most)
        part /= part.sum(axis, keepdims=True)
        if end is None:
            return mx.array(part)
        whole = np.zeros_like(values)
        whole[..., :end] = part
        return mx.array(whole)

    return run


def _end(values: np.ndarray, most: np.ndarray) -> int | None:
    """The first place from which on every row's softmax is zero to the last bit, as masks leave it; None: nowhere."""
    columns = values.reshape(-1, values.shape[-1]).max(axis=0)
    alive = np.flatnonzero(~(columns < most.min() + _NOTHING))  # what is not a number is alive
    end = int(alive[-1]) + 1 if len(alive) else 0
    return end if 0 < end <= values.shape[-1] // 2 else None


def _one_and_exp(x: np.ndarray) -> np.ndarray:
    """1 + exp(−x)."""
    result = _exp(-x)
    result += 1
    return result


def _exp(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.exp(x)
