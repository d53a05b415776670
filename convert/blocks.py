"""The parts of a decoder block as MIL operations on (1, C, 1, S): what the Neural Engine takes as it is."""

from collections.abc import Callable
from typing import Any

import numpy as np

from mirror_mlx.convert.precision import constant
from mirror_mlx.convert.toolkit import mb
from mirror_mlx.convert.weights import Block, Linear, Norm

Write = Callable[[Any, Any], tuple[Any, Any]]
"""Fresh keys and values (1, KV, S, D) → all keys and values (1, KV, T, D)."""
_LEAST_EPS = 6e-8  # float16's smallest number


def linear(x: Any, layer: Linear) -> Any:
    """(1, in, 1, S) → (1, out, 1, S)."""
    bias = {} if layer.bias is None else {"bias": constant(layer.bias)}
    return mb.conv(x=x, weight=layer.weight.constant(), pad_type="valid", **bias)


def rms_norm(x: Any, norm: Norm) -> Any:
    """Over axis 1 of (1, C, 1, S)."""
    y = mb.transpose(x=x, perm=[0, 2, 3, 1])
    return mb.transpose(x=_normed(y, norm), perm=[0, 3, 1, 2])


def block(x: Any, layer: Block, cos: Any, sin: Any, mask: Any, write: Write) -> Any:
    """One layer: x (1, c, 1, S) → (1, c, 1, S); cos, sin (1, 1, S, D), mask (1, 1, S, T)."""
    n = rms_norm(x, layer.input_norm)
    queries = rotated(heads(linear(n, layer.q), layer.heads, layer.q_norm), cos, sin)
    keys = rotated(heads(linear(n, layer.k), layer.kv_heads, layer.k_norm), cos, sin)
    keys, values = write(keys, heads(linear(n, layer.v), layer.kv_heads, None))
    queries = mb.mul(x=queries, y=np.float16(layer.scale))
    h = mb.add(x=x, y=linear(attention(queries, keys, values, mask), layer.o))
    n = rms_norm(h, layer.post_norm)
    return mb.add(x=h, y=linear(mb.mul(x=mb.silu(x=linear(n, layer.gate)), y=linear(n, layer.up)), layer.down))


def heads(x: Any, count: int, norm: Norm | None) -> Any:
    """(1, count·D, 1, S) → (1, count, S, D), normalised over D where the model does."""
    _, width, _, columns = x.shape
    x = mb.transpose(x=mb.reshape(x=x, shape=[1, count, width // count, columns]), perm=[0, 1, 3, 2])
    return x if norm is None else _normed(x, norm)


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """(1, H, S, D), each row turned by its angles."""
    half = x.shape[-1] // 2
    a, b = mb.split(x=x, split_sizes=[half, half], axis=-1)
    turned = mb.concat(values=[mb.mul(x=b, y=np.float16(-1)), a], axis=-1)
    return mb.add(x=mb.mul(x=x, y=cos), y=mb.mul(x=turned, y=sin))


def attention(queries: Any, keys: Any, values: Any, mask: Any) -> Any:
    """queries (1, H, S, D) already scaled, keys and values (1, KV, T, D) → (1, H·D, 1, S)."""
    _, count, columns, width = queries.shape
    _, kv_heads, slots, _ = keys.shape
    # The heads of a group become rows of one matmul: keys and values are not repeated.
    grouped = [1, kv_heads, count // kv_heads * columns]
    scores = mb.matmul(x=mb.reshape(x=queries, shape=[*grouped, width]), y=keys, transpose_y=True)
    scores = mb.add(x=mb.reshape(x=scores, shape=[1, count, columns, slots]), y=mask)
    weights = mb.reshape(x=mb.softmax(x=scores, axis=-1), shape=[*grouped, slots])
    out = mb.reshape(x=mb.matmul(x=weights, y=values), shape=[1, count, columns, width])
    return mb.reshape(x=mb.transpose(x=out, perm=[0, 1, 3, 2]), shape=[1, count * width, 1, columns])


def _normed(x: Any, norm: Norm) -> Any:
    """RMSNorm over the last axis: layer norm of [x, −x], whose mean is 0, and whose variance is the mean square."""
    both = mb.concat(values=[x, mb.mul(x=x, y=np.float16(-1))], axis=-1)
    y = mb.layer_norm(x=both, axes=[-1], epsilon=np.float16(max(norm.eps, _LEAST_EPS)))
    first = mb.slice_by_index(x=y, begin=[0, 0, 0, 0], end=[*x.shape])
    return mb.mul(x=first, y=constant(norm.gain))
