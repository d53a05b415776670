"""Multi-stream attention over the blocks of a Qwen3 or Llama model (Bhendawade et al., arXiv 2402.11131, eqs. 1–3).

A main row attends to the mains before it and to itself. Stream j of main row t attends to the mains up to t and to
streams 1 … j of the same row. Its position is t + j. The weights are the block's own.
"""

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn

Rotate = Callable[[Any, mx.array], mx.array]
Attend = Callable[[mx.array, mx.array, mx.array], mx.array]
"""(queries [B, H, R, D], keys, values [B, K, R, D], rotated) → [B, H, R, D]."""


def block(layer: Any, x: mx.array, rotate: Rotate, attend: Attend) -> mx.array:
    """One decoder block on rows x [B, R, C]; `attend` is its attention, `rotate(rope, heads)` gives rows positions."""
    a = layer.self_attn
    n = layer.input_layernorm(x)
    queries = rotate(a.rope, heads(a.q_proj(n), a.n_heads, getattr(a, "q_norm", None)))
    keys = rotate(a.rope, heads(a.k_proj(n), a.n_kv_heads, getattr(a, "k_norm", None)))
    out = attend(queries, keys, heads(a.v_proj(n), a.n_kv_heads, None))
    h = x + a.o_proj(out.transpose(0, 2, 1, 3).reshape(*x.shape[:2], -1))
    return h + layer.mlp(layer.post_attention_layernorm(h))


def heads(x: mx.array, count: int, norm: nn.Module | None) -> mx.array:
    """[B, R, count·D] → [B, count, R, D], normalised where the model does."""
    x = x.reshape(*x.shape[:2], count, -1)
    return (norm(x) if norm is not None else x).transpose(0, 2, 1, 3)


def rotated(rope: Any, x: mx.array, positions: mx.array) -> mx.array:
    """x [1, H, R, D], each row at its own position [R]: as a batch of R rows with an offset each."""
    return rope(x.transpose(2, 1, 0, 3), offset=positions).transpose(2, 1, 0, 3)


def with_streams(
    layer: Any, scale: float, main: mx.array, streams: Sequence[mx.array]
) -> tuple[mx.array, list[mx.array]]:
    """One block on a whole text: mains [B, T, C] and, for each j = 1 … s, stream j of every row [B, T, C]."""
    kept: list[tuple[mx.array, mx.array]] = []

    def causal(queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
        kept.append((keys, values))
        mask = "causal" if queries.shape[2] > 1 else None
        return mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)

    def multi(queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
        kept.append((keys, values))
        return _stream(queries, kept[0], kept[1:], scale)

    main = block(layer, main, lambda rope, x: rope(x), causal)
    return main, [block(layer, x, _at(j), multi) for j, x in enumerate(streams, start=1)]


def _at(offset: int) -> Rotate:
    return lambda rope, x: rope(x, offset=offset)


def _stream(
    queries: mx.array, main: tuple[mx.array, mx.array], own: Sequence[tuple[mx.array, mx.array]], scale: float
) -> mx.array:
    """Attention of stream j, queries [B, H, T, D], to the mains up to t and to `own`, streams 1 … j at the same t."""
    batch, count, length, width = queries.shape
    groups = count // main[0].shape[1]
    q = (queries * scale).reshape(batch, -1, groups, length, width)
    past = q @ main[0][:, :, None].swapaxes(-1, -2)
    past = mx.where(mx.tri(length, dtype=mx.bool_), past, -mx.inf)
    here = [(q * keys[:, :, None]).sum(axis=-1, keepdims=True) for keys, _ in own]
    weights = mx.softmax(mx.concatenate([past, *here], axis=-1), axis=-1, precise=True)
    out = weights[..., :length] @ main[1][:, :, None]
    for j, (_, values) in enumerate(own):
        out = out + weights[..., length + j, None] * values[:, :, None]
    return out.reshape(batch, count, length, width)
